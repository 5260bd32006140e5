"""Causal linear attention through slots against its equation, token by token."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from memory import saved_for_backward
from same import assert_close_to_largest, assert_same, gradients

from models.ops import packed_prefix as layer
from models.ops.packed_prefix import ACTIVATIONS, packed_prefix
from models.ops.tiles import TileBudget

SOFTPLUS = ACTIVATIONS["softplus"]


def tensors(length, *, batch=2, heads=2, width=4, slots=5, untied=False, dtype=torch.float64):
    generator = torch.Generator().manual_seed(length)
    memory = 2 * width if untied else width
    shapes = [(batch, heads, length, width), (batch, heads, length, memory), (batch, heads, length, width)]
    shapes.append((batch, heads, slots, width))
    return [torch.randn(s, generator=generator, dtype=torch.float64).to(dtype).requires_grad_() for s in shapes]


def definition(q, memory, pack_k, pack_q, *, activation, key_padding_mask=None, slot_mask=None):
    """z_t, u_t and y_t from the sums over all earlier tokens, all of them kept."""
    width = q.shape[-1]
    scale = width**-0.5
    a = activation.value(scale * pack_k @ pack_q.mT)  # (B, H, N, L)
    valid = torch.ones(1, q.shape[2]) if key_padding_mask is None else ~key_padding_mask
    valid = valid.to(q.dtype)[:, None, :, None]
    count = valid.cumsum(2).clamp(min=1)
    total = (memory[..., None] * (a * valid)[..., None, :]).cumsum(2)  # (B, H, N, F, L)
    z = (q[..., None, :] @ total[..., :width, :])[..., 0, :] * scale / count
    if slot_mask is not None:
        z = z.masked_fill(slot_mask[:, None, None], -1e30)
    return (z.softmax(-1)[..., None, :] @ total[..., -width:, :].mT)[..., 0, :] / count


@settings(max_examples=30)
@given(
    length=st.integers(1, 150),
    tile=st.sampled_from([1, 5000, 2**21]),
    untied=st.booleans(),
    padded=st.booleans(),
    masked=st.booleans(),
    activation=st.sampled_from(sorted(ACTIVATIONS)),
)
def test_equals_its_definition(length, tile, untied, padded, masked, activation):
    leaves = tensors(length, untied=untied, batch=3)
    generator = torch.Generator().manual_seed(length)
    options = {"activation": ACTIVATIONS[activation]}
    if padded:
        options["key_padding_mask"] = torch.rand(3, length, generator=generator) < 0.4
    if masked:
        options["slot_mask"] = torch.arange(5) >= torch.tensor([[1], [3], [5]])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layer, "TILE", TileBudget(tile, tile))
        patch.setattr(layer, "MIN_CHUNKS", 2)
        assert_same(packed_prefix(*leaves, **options), definition(*leaves, **options), leaves)


def test_dropout_keeps_the_mean():
    torch.manual_seed(0)
    with torch.no_grad():
        # one slot: u = 1, and y is linear in the two factors
        leaves = tensors(1, batch=4000, heads=1, slots=1)
        leaves = [x[:1].expand_as(x) for x in leaves]
        y = packed_prefix(*leaves, activation=SOFTPLUS, dropout=0.5)
        full = packed_prefix(*leaves, activation=SOFTPLUS)
    torch.testing.assert_close(y.mean(0), full[0], atol=0.0, rtol=0.15)  # each is 0 or 4 times the full one
    assert 0.7 < (y[:, 0, 0, 0] == 0).double().mean() < 0.8


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name):
    x = torch.linspace(-60, 60, 241, dtype=torch.float64).requires_grad_()
    activation = ACTIVATIONS[name]
    value = activation.value(x)
    expected = torch.logaddexp2(x, torch.zeros_like(x)) if name == "softplus" else torch.where(x > 0, x + 1, x.exp())
    torch.testing.assert_close(value, expected, atol=1e-15, rtol=1e-14)
    assert value[120] == 1  # both are 1 at 0
    (slope,) = torch.autograd.grad(value.sum(), x)
    torch.testing.assert_close(activation.slope(value), slope, atol=1e-15, rtol=1e-12)


def test_float32_is_close():
    """Largest error over largest entry, at a length at which plain sums lose digits."""
    exact = tensors(8192, batch=1, width=32, slots=32)
    rough = [x.detach().float().requires_grad_() for x in exact]
    results = []
    for leaves in (rough, exact):
        y = packed_prefix(*leaves, activation=SOFTPLUS)
        results.append([y, *gradients(y, leaves)])
    assert_close_to_largest(*results, 1e-6)


def test_examples_of_one_chunk_share_tiles(monkeypatch):
    """A tile that fits eight chunks holds eight examples of one chunk, but with dropout one, as masks follow tiles."""
    numbers = 2 * (32 * (3 * 4 + 4 * 5 + 2 * 32) + 4 * 5)
    monkeypatch.setattr(layer, "TILE", TileBudget(8 * numbers, 8 * numbers))
    tiles, compute = [], layer._TileSums
    monkeypatch.setattr(layer, "_TileSums", lambda *inputs: tiles.append(inputs[1]) or compute(*inputs))
    for dropout, count in ((0.0, 2), (0.1, 16)):
        tiles.clear()
        packed_prefix(*tensors(32, batch=16), activation=SOFTPLUS, dropout=dropout)
        assert len(tiles) == count


def test_keeps_no_more_than_its_inputs():
    leaves = tensors(4096, batch=4, heads=4, width=16, slots=32, dtype=torch.float32)
    kept = saved_for_backward(lambda: packed_prefix(*leaves, activation=SOFTPLUS))
    assert sum(x.numel() for x in kept) <= 1.5 * sum(x.numel() for x in leaves)
