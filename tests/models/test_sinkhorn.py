"""Sinkhorn attention beyond the contract: layouts."""

import pytest
import torch
from zoo import build, inputs, run

from models.attention.base import Pattern
from models.attention.sinkhorn import cut_blocks

SELF = Pattern.NONCAUSAL_SELF
MASK = torch.tensor([[1, 1, 0, 1, 1, 1, 0], [0, 1, 0, 1, 0, 0, 0]], dtype=torch.bool)


@pytest.mark.parametrize(
    ("strided", "expected"),
    [(False, [[[0, 1], [3, 4], [5]], [[1, 3], [], []]]), (True, [[[0, 4], [1, 5], [3]], [[1, 3], [], []]])],
)
def test_blocks_hold_the_real_tokens(strided, expected):
    blocks = cut_blocks(MASK, 2, strided=strided)
    token, filled = blocks.token.view(2, 4, 2), blocks.filled.view(2, 4, 2)
    tokens_by_block = [[token[b, g][filled[b, g]].tolist() for g in range(4)] for b in range(2)]
    assert tokens_by_block == [[*example, []] for example in expected]
    assert blocks.count.tolist() == [3, 1]
    for b in range(2):
        slots = blocks.slot[b][MASK[b]]
        assert blocks.token[b][slots].tolist() == MASK[b].nonzero()[:, 0].tolist()


def test_padded_queries_get_zeros():
    model = build("sinkhorn", SELF).double()
    x, _ = inputs(SELF, 7, dtype=torch.float64)
    y = run(model, x, key_padding_mask=~MASK)
    assert ((y == model.out_proj.bias).all(-1) == ~MASK).all()
