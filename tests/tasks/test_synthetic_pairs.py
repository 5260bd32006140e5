"""Generated pairs: they mean the same or not, as they are labelled, and a seed gives the same ones everywhere."""

import numpy as np
import pytest
import test_synthetic_text

from tasks.examples import content_hash
from tasks.lra import synthetic_pairs
from tests.helpers import simple_readers as readers
from tests.helpers.tasks import no_progress


def examples_of(count=400, **changes):
    settings = {"max_length": 120, "distance": 20, "negated": 0.25, "words": 4, "against": 0.5, "seed": (3, 1)}
    return synthetic_pairs.generate(count, progress=no_progress, **(settings | changes))


@pytest.mark.parametrize(
    ("distance", "negated", "against"), [(20, 0.25, 0.5), (0, 0.0, 0.1), (40, 0.5, 1.0), (9, 1.0, 0.0)]
)
def test_generated_pairs_mean_the_same_or_not(distance, negated, against):
    examples = examples_of(distance=distance, negated=negated, against=against)
    texts = [test_synthetic_text.parts(bytes(row)) for row in np.split(examples.tokens, examples.offsets[1:-1])]
    meanings = np.array([favour ^ denied for favour, denied, _ in texts]).reshape(-1, 2)
    label = examples.labels.reshape(-1, 2)
    assert (label[:, 0] == label[:, 1]).all() and label[:, 0].sum() == 200
    assert ((meanings[:, 0] == meanings[:, 1]) == label[:, 0]).all()
    assert {between for _, _, between in texts} == {distance} and np.diff(examples.offsets).max() <= 120
    agree = meanings[label[:, 0] == 1]
    assert abs(1 - agree.mean() - against) <= 4 * (against * (1 - against) / 200) ** 0.5
    assert abs(meanings[label[:, 0] == 0].mean(0) - 0.5).max() < 4 * 0.5 / 200**0.5
    verdicts = np.array([favour for favour, *_ in texts]).reshape(-1, 2)
    reading_the_verdicts = ((verdicts[:, 0] == verdicts[:, 1]) == label[:, 0]).mean()
    expected = 1 - 2 * negated * (1 - negated)
    assert abs(reading_the_verdicts - expected) <= 4 * (expected * (1 - expected) / 400) ** 0.5


@pytest.mark.parametrize("gram", [1, 3])
def test_words_alone_do_not_tell_the_class(gram):
    """Standard deviation of a guess on 1,000 pairs: 1.6 %."""
    score = {}
    for negated, words in ((0.5, 8), (0.0, 1)):
        examples = examples_of(3000, negated=negated, words=words)
        texts = [bytes(row) for row in np.split(examples.tokens, examples.offsets[1:-1])]
        first, second = (readers.counts(texts[tower::2], gram) for tower in (0, 1))
        score[negated] = readers.linear(np.c_[np.minimum(first, second), abs(first - second)], examples.labels[::2])
    assert abs(score[0.5] - 50) < 6.4
    assert score[0.0] > 70, "the settings make it easy, and this reader reads"


@pytest.mark.parametrize(("make", "pinned"), [(examples_of, "3fd491"), (test_synthetic_text.examples_of, "214e27")])
def test_generated_texts_are_the_same_everywhere(make, pinned):
    """Another value means another VERSION: every number made with the old one is stale."""
    assert content_hash(make()).startswith(pinned)
    assert content_hash(make(seed=(3, 2))) != content_hash(make())
