"""The parameters in Luna Table 5: counts of our recipe and printed counts.

`python tests/models/test_translation_parameters.py` prints them. RFA's are not reproduced: the paper prints 1.3 M
more than for softmax attention, while ours only adds the scales of its random directions, 512 in each of 18 attentions.
The directions, 8 x 256 x 64 numbers each, would add 2.36 M; a bias or a gate per head would add far too few.
"""

import pytest

from harness.config.build import on_meta
from harness.config.compose import compose

SOFTMAX, LUNA = 64_874_496, 18 * (512 * 512 + 512) + 12 * 2 * 512  # W of P's query in 18 attentions, 12 norms of P
ROWS = [  # row, printed millions, overrides, what we count, whether it is what is printed
    ("Transformer-base", "64.9", ["model=vanilla"], SOFTMAX, True),
    ("RFA (k=256)", "66.2", ["model=rfa"], SOFTMAX + 18 * 512, False),
    ("Luna (l=16)", "69.6", ["model=luna", "model.slots=16"], SOFTMAX + LUNA + 16 * 512, True),
    ("Luna (l=32)", "69.6", ["model=luna", "model.slots=32"], SOFTMAX + LUNA + 32 * 512, True),
    # not printed: a P per attention, without the norm that passes it on
    (
        "Non-contextual P",
        "",
        ["model=luna", "model.slots=16", "model.contextual=false"],
        SOFTMAX + LUNA - 12 * 2 * 512 + 18 * 16 * 512,
        False,
    ),
]


@pytest.mark.parametrize(
    ("row", "printed", "overrides", "count", "reproduced"), ROWS, ids=lambda value: str(value)[:20]
)
def test_parameters_of_the_recipe(row, printed, overrides, count, reproduced):
    counts = counted(overrides)
    assert counts == count
    assert (f"{counts / 1e6:.1f}" == printed) is reproduced


def counted(overrides: list[str]) -> int:
    return on_meta(compose(["task=mt/wmt14_ende", *overrides])).parameters()["total"]


if __name__ == "__main__":
    for row, printed, overrides, _, _ in ROWS:
        print(f"{row:<20}{printed:>6} M {counted(overrides):>14,}")
