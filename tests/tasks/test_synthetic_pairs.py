"""Invented pairs: they share their key or not, as they are labelled, and a seed gives the same ones everywhere."""

import numpy as np
import pytest
from listops_helpers import quiet

from tasks import cache
from tasks.lra import synthetic_pairs


def stand_in(count=400, **changes):
    settings = {"max_length": 120, "distance": 40, "keys": 7, "seed": (3, 1), "progress": quiet, **changes}
    return synthetic_pairs.generate(count, **settings)


def keys_of(examples):
    """Key of each text, and where it stands."""
    found = []
    for row in np.split(examples.tokens, examples.offsets[1:-1]):
        before, _, after = bytes(row).partition(b"as shown by ")
        found.append((after[:6], len(before)))
    return found


@pytest.mark.parametrize(("distance", "keys"), [(40, 7), (0, 2), (100, 500)])
def test_invented_pairs_share_their_key_or_not(distance, keys):
    examples = stand_in(distance=distance, keys=keys)
    found = keys_of(examples)
    words = {synthetic_pairs.key(number) for number in range(keys)}
    assert {word for word, _ in found} <= words and len(words) == keys
    assert min(place for _, place in found) >= distance
    same = [first[0] == second[0] for first, second in zip(found[::2], found[1::2], strict=True)]
    assert same == [bool(label) for label in examples.labels[::2]] == [bool(label) for label in examples.labels[1::2]]
    assert sum(same) == 200 and np.diff(examples.offsets).max() <= 120
    if keys == 7:
        counts = [[word for word, _ in found[tower::2]] for tower in (0, 1)]
        assert all(abs(words.count(word) - 400 / 7) < 4 * (400 / 7) ** 0.5 for words in counts for word in set(words))


def test_no_two_keys_are_the_same():
    words = {synthetic_pairs.key(number) for number in range(0, synthetic_pairs.MOST_KEYS, 37)}
    assert len(words) == -(-synthetic_pairs.MOST_KEYS // 37) and {len(word) for word in words} == {6}


def test_invented_pairs_are_the_same_everywhere():
    """Another value means another VERSION: every number made with the old one is stale."""
    pinned = "1cc706"
    assert cache.content(stand_in()).startswith(pinned)
    assert cache.content(stand_in(seed=(3, 2))) != cache.content(stand_in())
