"""The delta rule against its recurrence: outputs, states, gradients, decays of any strength."""

import contextlib

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from same import assert_same, gradients
from test_gated_linear import at, weak_and_strong
from zoo import few_kernels

from models.ops import delta_rule as ops
from models.ops.delta_rule import delta_rule, delta_rule_step, unit_inverse
from models.ops.tiles import TileBudget

FORMS = pytest.mark.parametrize(("decays", "both"), [(0, False), (1, False), (3, False), (3, True)])


def recurrence(q, k, v, r, g, e, state):
    """The definition, one token after another."""
    rows, e = [], k if e is None else e
    for t in range(q.shape[2]):
        if g is not None:
            state = state * g[:, :, t, :, None].exp()
        removed = torch.einsum("bhk,bhkv->bhv", r[:, :, t], state)
        state = state + k[:, :, t, :, None] * v[:, :, t, None] - e[:, :, t, :, None] * removed[:, :, None]
        rows.append(torch.einsum("bhk,bhkv->bhv", q[:, :, t], state))
    return torch.stack(rows, 2), state


def tensors(length, decays, both, *, batch=2, heads=2, keys=3, values=4, seed=0, dtype=torch.float64):
    """q, k, v, r, log decays of `decays` channels (none for 0) from weak to strong, e if `both`, and a state.

    |k| = |e| = 1 and |r| < 2, so that no state grows.
    """
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(batch, heads, *shape, generator=generator, dtype=dtype)

    q, v, state = normal(length, keys), normal(length, values), normal(keys, values)
    k, e = (torch.nn.functional.normalize(normal(length, keys), dim=-1) for _ in range(2))
    beta = 1.9 * torch.rand(batch, heads, length, 1, generator=generator, dtype=dtype)
    g = -50 * torch.rand(batch, heads, length, decays, generator=generator, dtype=dtype) ** 8 if decays else None
    r = beta * (e if both else k)
    leaves = (q, k, v, r, g, e if both else None, state)
    return [None if x is None else x.detach().requires_grad_() for x in leaves]


def ours(q, k, v, r, g, e, state, **options):
    return delta_rule(q, k, v, r, g, erase=e, initial_state=state, **options)


@settings(max_examples=15)
@given(
    length=st.integers(1, 200),
    decays=st.sampled_from([0, 1, 3]),
    both=st.booleans(),
    tile=st.sampled_from([1, 2**13, 2**19]),
    form=st.sampled_from([contextlib.nullcontext, few_kernels]),
)
def test_equals_the_recurrence_in_outputs_and_gradients(length, decays, both, tile, form):
    leaves = tensors(length, decays, both)
    with pytest.MonkeyPatch.context() as patch, form():
        patch.setattr(ops, "TILE", TileBudget(tile, tile))
        assert_same(ours(*leaves), recurrence(*leaves), leaves, atol=1e-11, rtol=1e-11)


@FORMS
@pytest.mark.parametrize("length", [1, 48, 64])
def test_a_sequence_of_one_chunk_needs_no_states(length, decays, both, monkeypatch):
    *leaves, _ = tensors(length, decays, both)
    mask = torch.rand(2, length, generator=torch.Generator().manual_seed(3)) < 0.2
    y, _ = ours(*leaves, None, key_padding_mask=mask)
    expected = [y, *gradients(y, leaves)]
    monkeypatch.setattr(ops._Tile, "advance", None)
    y, state = ours(*leaves, None, final_state=False, key_padding_mask=mask)
    assert state is None
    assert_same([y, *gradients(y, leaves)], expected, rtol=1e-12)


@FORMS
def test_steps_and_parts_equal_the_whole_and_padding_leaves_the_state_alone(decays, both):
    leaves = tensors(150, decays, both, batch=1)
    whole, state, rows = ours(*leaves), leaves[-1], []
    for t in range(150):
        q, k, v, r, g, e = at(leaves[:-1], t)
        y_t, state = delta_rule_step(q, k, v, r, state, g, erase=e)
        rows.append(y_t)
    assert_same((torch.stack(rows, 2), state), whole, rtol=1e-10)
    first, state = ours(*at(leaves[:-1], slice(0, 67)), leaves[-1])
    second, state = ours(*at(leaves[:-1], slice(67, None)), state)
    assert_same((torch.cat([first, second], 2), state), whole, rtol=1e-10)
    mask = torch.rand(1, 150, generator=torch.Generator().manual_seed(3)) < 0.4
    y, last = ours(*leaves, key_padding_mask=mask)
    assert_same((y[:, :, ~mask[0]], last), ours(*at(leaves[:-1], ~mask[0]), leaves[-1]), rtol=1e-7)


@FORMS
@pytest.mark.parametrize("form", [contextlib.nullcontext, few_kernels])
def test_any_decay_is_exact_in_float32(decays, both, form):
    """Strong next to weak decays: differences of sums would lose the weak ones, e^-sum would overflow."""
    q, k, v, r, g, e, state = tensors(256, decays, both, seed=4, dtype=torch.float32)
    leaves = [q, k, v, r, weak_and_strong(decays) if decays else g, e, state]
    with form():
        y, last = ours(*leaves)
        y.sum().backward()
    exact, exact_last = recurrence(*(None if x is None else x.double() for x in leaves))
    torch.testing.assert_close(y.double(), exact, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(last.double(), exact_last, atol=1e-4, rtol=1e-4)
    assert all(torch.isfinite(x.grad).all() for x in leaves if x is not None)


def test_16_bits_are_summed_in_float32():
    leaves = [x.bfloat16() for x in tensors(300, 3, True)]
    exact, _ = recurrence(*(x.double() for x in leaves))
    with torch.autocast("cpu", torch.bfloat16):
        y, state = ours(*leaves)
    assert y.dtype is torch.bfloat16
    assert state.dtype is torch.float32
    assert (y.double() - exact).abs().max() < 0.01 * exact.abs().max()


@pytest.mark.parametrize("size", [1, 2, 64])
@pytest.mark.parametrize("form", [contextlib.nullcontext, few_kernels])
def test_inverse_of_a_unit_triangle(size, form):
    products = torch.randn(3, size, size, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).tril() / 4
    triangle = products.tril(-1) + torch.eye(size)
    with form():
        torch.testing.assert_close(unit_inverse(products) @ triangle, torch.eye(size).double().expand(3, -1, -1))
