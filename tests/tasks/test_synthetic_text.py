"""Generated reviews: what they say is what they are labelled, and a seed gives the same ones everywhere."""

import numpy as np
import pytest

from tasks.lra import synthetic_text
from tests.helpers import simple_readers as readers
from tests.helpers.tasks import no_progress


def examples_of(count=400, **changes):
    settings = {"max_length": 200, "distance": 40, "negated": 0.5, "words": 8, "seed": (3, 1)}
    return synthetic_text.generate(count, progress=no_progress, **(settings | changes))


def parts(data: bytes):
    """(verdict, negated, bytes between the two) of a generated review."""
    [frame] = [frame for frame in synthetic_text.FRAMES if frame in data]
    verdict, middle = data.index(b"Altogether"), data.index(frame) + len(frame)
    word = data[verdict:].split(b".")[0].split()[-1]
    return int(word in synthetic_text.WORDS[1]), synthetic_text.FRAMES.index(frame), verdict - middle


@pytest.mark.parametrize(("distance", "negated"), [(40, 0.5), (0, 0.0), (90, 1.0), (17, 0.25)])
def test_generated_reviews_mean_what_they_are_labelled(distance, negated):
    examples = examples_of(distance=distance, negated=negated)
    reviews = [parts(bytes(row)) for row in np.split(examples.tokens, examples.offsets[1:-1])]
    assert [favour ^ denied for favour, denied, _ in reviews] == examples.labels.tolist()
    assert {between for _, _, between in reviews} == {distance}
    share = sum(denied for _, denied, _ in reviews) / len(reviews)
    assert abs(share - negated) < 4 * (negated * (1 - negated) / len(reviews)) ** 0.5 + 1e-9
    assert examples.labels.sum() == 200 and np.diff(examples.offsets).max() <= 200
    reading_the_word = np.mean([favour == label for (favour, *_), label in zip(reviews, examples.labels, strict=True)])
    assert reading_the_word == 1 - share


def test_a_verdict_is_one_of_so_many_words():
    def verdicts(words):
        texts = examples_of(words=words)
        rows = [bytes(row) for row in np.split(texts.tokens, texts.offsets[1:-1])]
        return {row[row.index(b"Altogether") :].split(b".")[0].split()[-1] for row in rows}

    assert verdicts(1) == {synthetic_text.WORDS[0][0], synthetic_text.WORDS[1][0]} and len(verdicts(8)) == 16
    for wrong in (0, 9):
        with pytest.raises(ValueError, match=f"words={wrong} is not between 1 and 8"):
            examples_of(words=wrong)


@pytest.mark.parametrize("gram", [1, 3])
def test_words_alone_do_not_tell_the_class(gram):
    """Standard deviation of a guess on 1,000 reviews: 1.6 %."""
    score = {}
    for negated in (0.5, 0.0):
        examples = examples_of(3000, negated=negated)
        texts = [bytes(row) for row in np.split(examples.tokens, examples.offsets[1:-1])]
        score[negated] = readers.linear(readers.counts(texts, gram), examples.labels)
    assert abs(score[0.5] - 50) < 6.4
    assert score[0.0] > 56, "the knob makes it easy, and this reader reads"
