"""A content belongs to one split, and what belongs to another one is drawn again."""

import numpy as np
import pytest

from tasks.lra import synthetic
from tests.helpers.tasks import no_progress, refused


def test_each_content_belongs_to_one_split_in_fixed_shares():
    splits = np.array([synthetic.split_of(str(i).encode()) for i in range(4000)])
    shares = np.bincount(splits) / len(splits)
    assert abs(shares - [0.75, 0.125, 0.125]).max() < 0.03
    assert splits[:8].tolist() == [synthetic.split_of(str(i).encode()) for i in range(8)]


@pytest.mark.parametrize("split", [synthetic.TRAIN, synthetic.VAL, synthetic.TEST])
def test_examples_of_other_splits_are_drawn_again(split):
    random, contents, seen = np.random.Generator(np.random.PCG64(0)), np.zeros(300, np.int64), []

    def draw(rejected):
        contents[rejected] = random.integers(1000, size=len(rejected))
        return [str(content).encode() for content in contents[rejected]]

    drawn = synthetic.rejecting(300, split, draw, "drawing", lambda *call: seen.append(call))
    assert {synthetic.split_of(str(content).encode()) for content in contents} == {split}
    assert drawn > 300 and seen[-1] == (f"drawing: {drawn:,} drawn", 300, 300)


def test_no_content_of_the_split_is_one_line():
    content = next(str(i).encode() for i in range(100) if synthetic.split_of(str(i).encode()) == synthetic.TEST)
    with refused(kind=ValueError, match="drawing: 3 of 3 examples were rejected 1000 times"):
        synthetic.rejecting(3, synthetic.TRAIN, lambda rejected: [content] * len(rejected), "drawing", no_progress)
