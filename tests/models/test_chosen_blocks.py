"""Attention to chosen blocks against one dense softmax."""

from itertools import pairwise

import pytest
import torch
from drawn import leaf
from memory import LargestStorage
from same import assert_same

from models.ops import chosen_blocks
from models.ops.chosen_blocks import chosen_block_attention
from models.ops.tiles import TileBudget

BATCH, HEADS, KEY_HEADS, LENGTH, WIDTH, BLOCK = 2, 4, 2, 23, 4, 5


def tensors(queries=LENGTH):
    shapes = (HEADS, queries), (KEY_HEADS, LENGTH), (KEY_HEADS, LENGTH)
    return [leaf(BATCH, *shape, WIDTH, seed=seed) for seed, shape in enumerate(shapes)]


def choices(mask=None):
    """Two of the past blocks with visible keys, or fewer: (B, H, N, 3)."""
    chosen, generator = torch.full((BATCH, HEADS, LENGTH, 3), -1), torch.Generator().manual_seed(1)
    for b in range(BATCH):
        for h in range(HEADS):
            for t in range(LENGTH):
                past = torch.randperm(t // BLOCK, generator=generator)[:2].tolist()
                past = [c for c in past if mask is None or not mask[b, c * BLOCK : (c + 1) * BLOCK].all()]
                chosen[b, h, t, 1 : 1 + len(past)] = torch.tensor(past, dtype=torch.int64)
    return chosen


def padding():
    mask = torch.zeros(BATCH, LENGTH, dtype=torch.bool)
    mask[0, [1, 2, 7]] = mask[0, 17:] = mask[1, :10] = mask[1, 11] = True
    return mask


def definition(q, k, v, chosen, mask):
    first = LENGTH - q.shape[2]
    token, block = torch.arange(LENGTH), torch.arange(LENGTH) // BLOCK
    past = (chosen[..., None] == block).any(3)  # (B, H, N, M)
    in_block = (block == block[first:, None]) & (token <= token[first:, None])
    visible = past | in_block
    if mask is not None:
        visible = visible & ~mask[:, None, None]
    k, v = (x.repeat_interleave(HEADS // KEY_HEADS, 1) for x in (k, v))
    weights = (q @ k.mT / WIDTH**0.5).exp() * visible
    return weights @ v / weights.sum(-1, keepdim=True).clamp(min=1e-9)


def check(leaves, chosen, mask):
    ours = chosen_block_attention(*leaves, chosen, block=BLOCK, key_padding_mask=mask)
    assert_same(ours, definition(*leaves, chosen, mask), leaves)


@pytest.mark.parametrize("tile", [1, 50, 2**18])
@pytest.mark.parametrize("narrow", [1, 16])
@pytest.mark.parametrize("padded", [False, True])
def test_equals_its_definition(monkeypatch, tile, narrow, padded):
    """In tiles of one chunk and in those where a query occurs several times."""
    monkeypatch.setattr(chosen_blocks, "TILE", TileBudget(tile, tile))
    monkeypatch.setattr(chosen_blocks, "NARROWEST", narrow)
    monkeypatch.setattr(chosen_blocks, "MOST", narrow)
    mask = padding() if padded else None
    check(tensors(), choices(mask), mask)


@pytest.mark.parametrize("queries", [1, 3, 11])
def test_queries_of_the_last_tokens(queries):
    check(tensors(queries), choices()[:, :, -queries:], None)


def test_without_choices():
    check(tensors(), choices()[..., :0], None)
    check(tensors(), torch.full_like(choices(), -1), padding())


def test_a_query_that_sees_no_key_gets_zeros():
    y = chosen_block_attention(*tensors(), torch.full_like(choices(), -1), block=BLOCK, key_padding_mask=padding())
    assert (y[1, :, :10] == 0).all()
    assert (y[1, :, 10:] != 0).all()


def test_scores_far_apart_stay_finite():
    q, k, v = (x.detach().float() for x in tensors())
    y = chosen_block_attention(1e4 * q, 1e4 * k, v, choices(), block=BLOCK)
    assert torch.isfinite(y).all()


def test_memory_grows_as_the_length(monkeypatch):
    monkeypatch.setattr(chosen_blocks, "TILE", TileBudget(2**12, 2**12))
    sizes = []
    for length in (256, 512, 1024):
        leaves = [torch.randn(1, 1, length, 8, requires_grad=True) for _ in range(3)]
        block = torch.arange(length)[:, None] // 16
        chosen = torch.where(block > torch.arange(3), torch.arange(3), -1)[None, None]
        with LargestStorage() as largest:
            chosen_block_attention(*leaves, chosen, block=16).sum().backward()
        sizes.append(largest.numbers)
    assert all(b <= 2.25 * a for a, b in pairwise(sizes)), sizes
    assert sizes[-1] <= 1024 * 8 * 2
