"""Attention by a table of blocks against one dense softmax with multiplicities."""

import pytest
import torch
from drawn import leaf
from same import assert_same

from models.ops import block_sparse
from models.ops.block_sparse import Rows, block_sparse_attention
from models.ops.tiles import TileBudget

BLOCKS, SIZE, WIDTH = 5, 3, 4
ROWS = [
    Rows(torch.tensor([0, 2]), torch.tensor([[0, 1, 4], [3, -1, 3]])),  # block 2 sees block 3 twice
    Rows(torch.tensor([4]), torch.tensor([[2]])),
]


def tensors():
    return [leaf(BLOCKS, SIZE, WIDTH, seed=seed) for seed in range(3)]


def hidden():
    mask = torch.zeros(BLOCKS, SIZE, dtype=torch.bool)
    mask[1, 1:] = mask[2, 0] = True
    return mask


def definition(q, k, v):
    times = torch.zeros(BLOCKS, BLOCKS, dtype=torch.float64)
    for queries, keys in ROWS:
        for g, listed in zip(queries, keys, strict=True):
            for key in listed[listed >= 0]:
                times[g, key] += 1
    times = times.repeat_interleave(SIZE, 0).repeat_interleave(SIZE, 1) * ~hidden().flatten()
    q, k, v = (x.flatten(0, 1) for x in (q, k, v))
    weights = (q @ k.mT / WIDTH**0.5).exp() * times
    return (weights @ v / weights.sum(1, keepdim=True).clamp(min=1e-9)).view(BLOCKS, SIZE, WIDTH)


@pytest.mark.parametrize("tile", [1, 2**16])
def test_blocks_that_see_the_same_are_one_row_and_nothing_need_be_hidden(monkeypatch, tile):
    monkeypatch.setattr(block_sparse, "TILE", TileBudget(tile, tile))
    together = [Rows(torch.tensor([[0, 3], [4, 1]]), torch.tensor([[0, 2], [4, 3]]))]
    alone = [Rows(torch.tensor([0, 3, 4, 1]), torch.tensor([[0, 2], [0, 2], [4, 3], [4, 3]]))]
    leaves, nothing = tensors(), torch.zeros(BLOCKS, SIZE, dtype=torch.bool)
    pair = (block_sparse_attention(*leaves, rows, hidden=mask) for rows, mask in ((together, None), (alone, nothing)))
    assert_same(*pair, leaves)


@pytest.mark.parametrize("tile", [1, 2**16])
def test_equals_its_definition(monkeypatch, tile):
    monkeypatch.setattr(block_sparse, "TILE", TileBudget(tile, tile))
    leaves = tensors()
    ours, theirs = block_sparse_attention(*leaves, ROWS, hidden=hidden()), definition(*leaves)
    assert_same(ours, theirs, leaves)
    assert (ours[[1, 3]] == 0).all()  # blocks that are not listed
