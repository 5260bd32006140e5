"""Gated linear attention against its recurrence and against published numbers."""

import contextlib

import pytest
import torch
from golden import check, golden, leaves_of, needs_golden
from hypothesis import given, settings
from hypothesis import strategies as st
from same import assert_same, gradients
from zoo import few_kernels

from models.ops import gated_linear
from models.ops.decayed_chunks import Decay
from models.ops.gated_linear import gated_linear_attention, gated_linear_step
from models.ops.tiles import TileBudget


def recurrence(q, k, v, g, state):
    """The definition, one token after another."""
    rows = []
    for t in range(q.shape[2]):
        if g is not None:
            state = state * g[:, :, t, :, None].exp()
        state = state + k[:, :, t, :, None] * v[:, :, t, None]
        rows.append(torch.einsum("bhk,bhkv->bhv", q[:, :, t], state))
    return torch.stack(rows, 2), state


def tensors(length, decays, *, batch=2, heads=2, keys=3, values=4, seed=0, dtype=torch.float64):
    """q, k, v, log decays of `decays` channels (none for 0) from weak to strong, and a state."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(batch, heads, *shape, generator=generator, dtype=dtype).requires_grad_()

    q, k, v = normal(length, keys), normal(length, keys), normal(length, values)
    g = None
    if decays:
        g = (-50 * torch.rand(batch, heads, length, decays, generator=generator, dtype=dtype) ** 8).requires_grad_()
    return q, k, v, g, normal(keys, values)


@settings(max_examples=20)
@given(
    length=st.integers(1, 200),
    decays=st.sampled_from([0, 1, 3]),
    tile=st.sampled_from([1, 2**13, 2**19]),
    form=st.sampled_from([contextlib.nullcontext, few_kernels]),
)
def test_equals_the_recurrence_in_outputs_and_gradients(length, decays, tile, form):
    q, k, v, g, state = leaves = tensors(length, decays)
    with pytest.MonkeyPatch.context() as patch, form():
        patch.setattr(gated_linear, "TILE", TileBudget(tile, tile))
        ours = gated_linear_attention(q, k, v, g, initial_state=state)
        assert_same(ours, recurrence(*leaves), leaves, atol=1e-11, rtol=1e-11)


@pytest.mark.parametrize("decays", [0, 1, 260])
def test_wide_keys_have_longer_chunks(decays):
    """Keys of width 260 are read in chunks of 128."""
    *leaves, state = tensors(300, decays, batch=1, heads=1, keys=260)
    ours = gated_linear_attention(*leaves, initial_state=state)
    assert_same(ours, recurrence(*leaves, state), [*leaves, state], atol=1e-8, rtol=1e-9)


@pytest.mark.parametrize("shared", [False, True], ids=["own q and k", "shared q and k"])
@pytest.mark.parametrize("decays", [0, 1, 3])
@pytest.mark.parametrize("length", [1, 48, 64])
def test_a_sequence_of_one_chunk_needs_no_states(length, decays, shared, monkeypatch):
    *_, v, g, _ = tensors(length, decays)
    q, k, *_ = tensors(length, 0, heads=1 if shared else 2, seed=1)
    mask = torch.rand(2, length, generator=torch.Generator().manual_seed(3)) < 0.2
    y, _ = gated_linear_attention(q, k, v, g, key_padding_mask=mask)
    expected = [y, *gradients(y, [q, k, v, g])]
    monkeypatch.setattr(gated_linear._CutTokens, "carry", None)
    y, state = gated_linear_attention(q, k, v, g, final_state=False, key_padding_mask=mask)
    assert state is None
    assert_same([y, *gradients(y, [q, k, v, g])], expected, rtol=1e-12)


@settings(max_examples=15)
@given(
    length=st.integers(1, 150),
    decays=st.sampled_from([0, 1, 3]),
    keys=st.sampled_from([1, 3]),
    tile=st.sampled_from([1, 2**19]),
)
def test_queries_and_keys_that_heads_share_are_read_as_one_head(length, decays, keys, tile):
    _, _, v, g, state = tensors(length, decays if keys == 3 else min(decays, 1), keys=keys, heads=3)
    q, k, *_ = tensors(length, 0, keys=keys, heads=1, seed=1)
    mask = torch.rand(2, length, generator=torch.Generator().manual_seed(3)) < 0.2
    decay = None if g is None else g[:, :, -1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gated_linear, "TILE", TileBudget(tile, tile))
        pairs = [
            (
                *gated_linear_attention(a, b, v, g, initial_state=state, key_padding_mask=mask),
                *gated_linear_step(a[:, :, -1], b[:, :, -1], v[:, :, -1], state, decay),
            )
            for a, b in ((q, k), (x.expand(-1, 3, -1, -1) for x in (q, k)))
        ]
        assert_same(*pairs, [q, k, v, g, state], atol=1e-11, rtol=1e-11)


@pytest.mark.parametrize("decays", [0, 1, 3])
def test_the_state_hands_over_and_padding_leaves_it_alone(decays):
    *leaves, state = tensors(150, decays, batch=1)
    whole, last = gated_linear_attention(*leaves, initial_state=state)
    first, middle = gated_linear_attention(*at(leaves, slice(0, 67)), initial_state=state)
    second, end = gated_linear_attention(*at(leaves, slice(67, None)), initial_state=middle)
    assert_same((torch.cat([first, second], 2), end), (whole, last), rtol=1e-7)
    mask = torch.rand(1, 150, generator=torch.Generator().manual_seed(3)) < 0.4
    y, last = gated_linear_attention(*leaves, initial_state=state, key_padding_mask=mask)
    expected = gated_linear_attention(*at(leaves, ~mask[0]), initial_state=state)
    assert_same((y[:, :, ~mask[0]], last), expected, rtol=1e-7)


def at(leaves, tokens):
    return [None if x is None else x[:, :, tokens] for x in leaves]


def weak_and_strong(decays):
    generator = torch.Generator().manual_seed(4)
    g = -1e-3 * torch.rand(2, 2, 256, decays, generator=generator)
    g[torch.rand(g.shape, generator=generator) < 0.1] = -1e4
    g[:, :, 100] = float("-inf")
    return g.requires_grad_()


@pytest.mark.parametrize(("decays", "heads"), [(1, 2), (3, 2), (1, 1)])
def test_any_decay_is_exact_in_float32(decays, heads):
    """Strong next to weak decays: differences of sums would lose the weak ones, e^-sum would overflow."""
    _, _, v, _, _ = tensors(256, 0, seed=4, dtype=torch.float32)
    q, k, *_ = tensors(256, 0, heads=heads, seed=4, dtype=torch.float32)
    g = weak_and_strong(decays)
    y, state = gated_linear_attention(q, k, v, g)
    exact, exact_state = recurrence(*(x.double() for x in (q, k, v, g)), torch.zeros_like(state).double())
    torch.testing.assert_close(y.double(), exact, atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(state.double(), exact_state, atol=1e-5, rtol=1e-5)
    y.sum().backward()
    assert all(torch.isfinite(x.grad).all() for x in (q, k, v, g))


def test_16_bits_are_summed_in_float32():
    q, k, v, g, _ = (None if x is None else x.bfloat16() for x in tensors(300, 3))
    exact, _ = recurrence(*(x.double() for x in (q, k, v, g)), torch.zeros(2, 2, 3, 4, dtype=torch.float64))
    with torch.autocast("cpu", torch.bfloat16):
        y, state = gated_linear_attention(q, k, v, g)
    assert y.dtype is torch.bfloat16
    assert state.dtype is torch.float32
    assert (y.double() - exact).abs().max() < 0.01 * exact.abs().max()


@needs_golden
def test_published_gated_linear_attention():
    meta, a = golden("gla_n63")
    q, tolerance = a["q"] * meta["hyper"]["K"] ** -0.5, meta["tolerance_max_abs"]
    zero, _ = gated_linear_attention(q, a["k"], a["v"], a["gk"])
    y, state = gated_linear_attention(q, a["k"], a["v"], a["gk"], initial_state=a["initial_state"])
    for ours, theirs in ((zero, "y0"), (y, "y"), (state, "final_state")):
        torch.testing.assert_close(ours, a[theirs], atol=tolerance, rtol=0)


@needs_golden
def test_published_linear_attention():
    meta, a = golden("linear_cs_unnormalised_n128")
    leaves = leaves_of(a, "qkv")
    q, k, v = leaves.values()
    check(meta, a, gated_linear_attention(q * meta["hyper"]["K"] ** -0.5, k, v)[0], leaves)


@pytest.mark.parametrize("width", [1, 5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_strong_decay_makes_no_denormal_numbers(width, dtype):
    """Exponentials and products that give denormal numbers take 20 to 200 times as long on some processors."""
    tiny, lower = torch.finfo(dtype).tiny, torch.ones(64, 64, dtype=dtype).tril()
    for strength in (0.5, 2.0, 5.0, 20.0, 1000.0):
        g = -strength * torch.linspace(0.5, 1.5, 64, dtype=dtype)[:, None].expand(64, width)
        decay = Decay(g, lower)
        factors = [decay.from_start, decay.to_end, *(factor for level in decay.levels for factor in level)]
        factors += [decay.pair] if width == 1 else [right @ left.mT for right, left in decay.levels]
        sizes = torch.cat([factor.flatten() for factor in factors])
        assert (sizes > 0).any() and not ((sizes > 0) & (sizes < 1e4 * tiny)).any()
        exact = g.double().cumsum(0).exp()
        torch.testing.assert_close(decay.from_start.double(), exact, atol=1e-15 if tiny > 1e-300 else 1e-120, rtol=3e-5)
