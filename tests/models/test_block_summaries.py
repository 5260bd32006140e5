"""Block means, attention to summaries and the choice of blocks against their definitions."""

import pytest
import torch
from drawn import leaf
from memory import LargestStorage
from same import assert_same

from models.ops import block_summaries
from models.ops.block_summaries import block_means, choose_blocks, hidden_blocks, highest_blocks, summary_attention
from models.ops.tiles import TileBudget

BATCH, HEADS, KEY_HEADS, LENGTH, WIDTH, BLOCK, BLOCKS = 2, 4, 2, 22, 4, 4, 5


def tensors():
    shapes = (HEADS, LENGTH), (KEY_HEADS, BLOCKS), (KEY_HEADS, BLOCKS)
    return [leaf(BATCH, *shape, WIDTH, seed=seed) for seed, shape in enumerate(shapes)]


def unread():
    hidden = torch.zeros(BATCH, BLOCKS, dtype=torch.bool)
    hidden[0, 0] = hidden[0, 2] = hidden[1, :4] = True
    return hidden


def complete(first=0):
    position = torch.arange(first, first + LENGTH)[:, None]
    return (torch.arange(BLOCKS) + 1) * BLOCK <= position + 1  # (N, C)


def probabilities(q, k, hidden):
    visible = complete() if hidden is None else complete() & ~hidden[:, None, None]
    weights = (q @ k.repeat_interleave(HEADS // KEY_HEADS, 1).mT / WIDTH**0.5).exp() * visible
    return weights / weights.sum(-1, keepdim=True).clamp(min=1e-9)


def test_the_highest_blocks_and_of_equal_ones_the_first():
    low = -float("inf")
    scores = torch.tensor([[1.0, 3.0, 3.0, -2.0, 3.0], [-0.0, 0.0, low, -1.0, low], [low, -3.0, -2.0, -2.0, low]])
    expected = [[1, 2, 4], [0, 1, 3], [2, 3, 1]]
    assert highest_blocks(scores, 3).tolist() == expected
    assert highest_blocks(scores[1:2], 9).tolist() == [[0, 1, 3, -1, -1]]
    assert highest_blocks(torch.tensor([[5.0, float("inf"), 1e38]]), 2).tolist() == [[1, 2]]
    assert highest_blocks(torch.zeros(1, 4096), 7).tolist() == [list(range(7))]


def test_means_are_those_of_complete_blocks_without_padding():
    x = torch.arange(11.0).view(1, 1, 11, 1).expand(2, -1, -1, -1)
    mask = torch.zeros(2, 11, dtype=torch.bool)
    mask[1, 0] = mask[1, 4:8] = True
    assert block_means(x, 4).flatten(1).tolist() == [[1.5, 5.5], [1.5, 5.5]]
    assert block_means(x, 4, mask).flatten(1).tolist() == [[1.5, 5.5], [2.0, 0.0]]
    assert hidden_blocks(mask, 4).tolist() == [[False, False], [False, True]]
    assert hidden_blocks(None, 4) is None


@pytest.mark.parametrize("tile", [1, 300, 2**18])
@pytest.mark.parametrize("hidden", [None, unread()], ids=["all", "hidden"])
def test_attention_equals_its_definition(monkeypatch, tile, hidden):
    monkeypatch.setattr(block_summaries, "TILE", TileBudget(tile, tile))
    leaves = tensors()
    ours, _ = summary_attention(*leaves, hidden, block=BLOCK, selected=2)
    q, k, v = leaves
    theirs = probabilities(q, k, hidden) @ v.repeat_interleave(HEADS // KEY_HEADS, 1)
    assert_same(ours, theirs, leaves)


@pytest.mark.parametrize("tile", [1, 300, 2**18])
@pytest.mark.parametrize("hidden", [None, unread()], ids=["all", "hidden"])
def test_the_choice_of_the_attention(monkeypatch, tile, hidden):
    """The first block, the one before the query's own, and then those with the highest mean over a group's heads."""
    monkeypatch.setattr(block_summaries, "TILE", TileBudget(tile, tile))
    q, k, v = tensors()
    _, chosen = summary_attention(q, k, v, hidden, block=BLOCK, selected=3)
    means = probabilities(q, k, hidden).unflatten(1, (KEY_HEADS, -1)).mean(2)
    for b in range(BATCH):
        for h in range(KEY_HEADS):
            for t in range(LENGTH):
                current = t // BLOCK
                past = [c for c in range(current) if hidden is None or not hidden[b, c]]
                ranked = sorted(past, key=lambda c: (c not in (0, current - 1), -float(means[b, h, t, c].detach())))
                assert set(chosen[b, h, t].tolist()) - {-1} == set(ranked[:3])


@pytest.mark.parametrize("tile", [1, 300, 2**18])
@pytest.mark.parametrize("hidden", [None, unread()], ids=["all", "hidden"])
def test_the_choice_by_products(monkeypatch, tile, hidden):
    monkeypatch.setattr(block_summaries, "TILE", TileBudget(tile, tile))
    q, k, _ = (x.detach() for x in tensors())
    chosen = choose_blocks(q, k, hidden, block=BLOCK, selected=2)
    for b in range(BATCH):
        for h in range(HEADS):
            for t in range(LENGTH):
                past = [c for c in range(t // BLOCK) if hidden is None or not hidden[b, c]]
                products = {c: float(q[b, h, t] @ k[b, h // (HEADS // KEY_HEADS), c]) for c in past}
                assert chosen[b, h, t].tolist()[: len(past)] == sorted(past, key=lambda c: -products[c])[:2]


def test_queries_of_later_tokens():
    q, k, v = (x.detach() for x in tensors())
    out, chosen = summary_attention(q, k, v, None, block=BLOCK, selected=2)
    later = q[:, :, 9:]
    part, choice = summary_attention(later, k, v, None, block=BLOCK, selected=2, first=9)
    torch.testing.assert_close(part, out[:, :, 9:], atol=1e-14, rtol=0)
    assert torch.equal(choice, chosen[:, :, 9:])
    every = choose_blocks(q, k, None, block=BLOCK, selected=2)
    assert torch.equal(choose_blocks(later, k, None, block=BLOCK, selected=2, first=9), every[:, :, 9:])


def test_memory_grows_as_the_length(monkeypatch):
    """Scores, N^2 / b numbers, exist tile by tile."""
    monkeypatch.setattr(block_summaries, "TILE", TileBudget(2**13, 2**13))
    length = 1024
    q = torch.randn(1, 1, length, 8, requires_grad=True)
    k, v = (torch.randn(1, 1, length // 4, 8, requires_grad=True) for _ in range(2))
    with LargestStorage() as largest:
        summary_attention(q, k, v, None, block=4, selected=2)[0].sum().backward()
        choose_blocks(q, k, None, block=4, selected=2)
    assert largest.numbers <= 8 * length < length * length // 4
