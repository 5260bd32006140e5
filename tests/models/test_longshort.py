"""LongShort beyond the contract: tiles, holes, memory, and the parameters that LAVO's tables print."""

import pytest
import torch
from memory import LargestStorage
from zoo import build, run

from models.attention.base import Pattern
from models.attention.longshort import LongShort
from models.ops import long_short
from models.ops.tiles import TileBudget

NONCAUSAL, CAUSAL = Pattern.NONCAUSAL_SELF, Pattern.CAUSAL_SELF


def gradients(model, x, mask=None):
    """(y, gradients of x and of every parameter)."""
    x = x.clone().requires_grad_()
    y = run(model, x, key_padding_mask=mask)
    weights = torch.randn(y.shape, generator=torch.Generator().manual_seed(3), dtype=y.dtype)
    if mask is not None:
        weights[mask.expand(y.shape[:2])] = 0
    return y, torch.autograd.grad((y * weights).sum(), [x, *model.parameters()], materialize_grads=True)


def test_causal_memory_is_a_tile(monkeypatch):
    monkeypatch.setattr(long_short, "TILE", TileBudget(2**13, 2**13))
    model = build("longshort", CAUSAL, dim=32, max_length=1024)
    x = torch.randn(1, 1024, 32, requires_grad=True)
    with LargestStorage() as largest:
        run(model, x).sum().backward()
    assert largest.numbers < 1024 * 1024 // 4 // 4  # of 2 x 1024 x 256 scores


def test_memory_is_whole_chunks():
    with pytest.raises(ValueError, match="multiple of its chunk of 4, not 6"):
        build("longshort", CAUSAL, memory=6)


def test_causal_width_is_even():
    with pytest.raises(ValueError, match="odd"):
        build("longshort", CAUSAL, dim=15, heads=3)


def test_decoding_past_max_length_is_refused():
    model = build("longshort", CAUSAL, max_length=3, memory=4)
    state = model.init_state(1)
    for _ in range(3):
        _, state = model.step(torch.zeros(1, model.dim), state)
    with pytest.raises(ValueError, match="past max_length 3"):
        model.step(torch.zeros(1, model.dim), state)


# (table, pattern, millions of vanilla and of LongShort, layers, width, heads, landmarks), D-22 and D-24
PRINTED = [
    ("T2 language model", CAUSAL, 122.32, 136.61, 12, 768, 12, 64),
    ("T3 causal speech", CAUSAL, 54.40, 57.57, 6, 512, 4, 64),
    ("T4 causal summaries", CAUSAL, 123.70, 126.88, 6, 512, 8, 64),
    ("T5 noncausal speech", NONCAUSAL, 54.40, 55.20, 6, 512, 4, 64),
    ("T6 noncausal summaries", NONCAUSAL, 123.70, 124.11, 6, 512, 8, 16),
]


@pytest.mark.parametrize(
    ("table", "pattern", "vanilla", "ours", "layers", "dim", "heads", "landmarks"), PRINTED, ids=[r[0] for r in PRINTED]
)
def test_printed_parameters(table, pattern, vanilla, ours, layers, dim, heads, landmarks):
    with torch.device("meta"):
        model = LongShort(dim, heads, pattern=pattern, max_length=4096, landmarks=landmarks)
    more = sum(p.numel() for p in model.parameters()) - 4 * dim * (dim + 1)
    # each of the two printed numbers is off by up to half a unit of its last digit
    assert abs(layers * more / 1e6 - (ours - vanilla)) < 0.01 + 1e-9
