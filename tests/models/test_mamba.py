"""Mamba against published numbers and the public module, the gradients of its scan, its start."""

import pytest
import torch
from drawn import draw
from golden import check, fill, golden, leaves_of, needs_golden

from models.attention.mamba import Mamba
from models.ops import selective_scan as ops
from models.ops.selective_scan import selective_scan, selective_step
from models.ops.tiles import TileBudget

ROLES = {
    "w_in": "in_proj.weight",
    "conv_w": "convolution.weight",
    "conv_b": "convolution_bias",
    "w_x": "x_proj.weight",
    "w_dt": "dt_proj.weight",
    "b_dt": "dt_proj.bias",
    "A_log": "log_decay",
    "D": "skip",
    "w_o": "out_proj.weight",
}
THEIRS = {"conv1d.weight": "convolution.weight", "conv1d.bias": "convolution_bias"}
THEIRS |= {"A_log": "log_decay", "D": "skip"}  # other names are the same


def build(dim=8, **hyper):
    torch.manual_seed(0)
    return Mamba(dim, 1, pattern="causal_self", max_length=8, **hyper)


def newest_first(name, taps):
    """Taps (I, taps) in our order, the token's own first, of public ones, where it is the last."""
    return taps.squeeze(1).flip(-1) if name in ("conv_w", "conv1d.weight") else taps


@needs_golden
@pytest.mark.parametrize("tile", [1, 2**19])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_published_numbers(dtype, tile, monkeypatch):
    monkeypatch.setattr(ops, "TILE", TileBudget(tile, tile))
    meta, a = golden("mamba_n63")
    size = meta["hyper"]
    sizes = {"d_state": size["state"], "conv": size["conv"], "dt_rank": size["dt_rank"], "expand": size["expand"]}
    model = build(size["d"], **sizes).to(dtype)
    assert set(dict(model.named_parameters())) == set(ROLES.values())
    leaves = leaves_of(a, "x", dtype) | fill(model, a, ROLES, newest_first)
    check(meta, a, model(leaves["x"])[0], leaves, newest_first)


def test_the_public_module_gives_the_same():
    transformers = pytest.importorskip("transformers")
    mamba = pytest.importorskip("transformers.models.mamba.modeling_mamba")
    config = transformers.MambaConfig(hidden_size=32, state_size=16, num_hidden_layers=1, use_mambapy=False)
    theirs, ours = mamba.MambaMixer(config, layer_idx=0).eval(), build(32)
    parameters = dict(ours.named_parameters())
    with torch.no_grad():
        for name, weight in theirs.named_parameters():
            weight += 0.1 * torch.randn_like(weight)
            parameters[THEIRS.get(name, name)].copy_(newest_first(name, weight))
    x = draw(2, 70, 32).float()
    torch.testing.assert_close(ours(x)[0], theirs(x), atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize("kept", [0, ops.KEPT], ids=["recomputed", "kept"])
@pytest.mark.parametrize("tile", [1, 2**19])
@pytest.mark.parametrize("length", [1, 5, 101])
def test_gradients_of_the_scan_and_of_both_states(tile, length, kept, monkeypatch):
    monkeypatch.setattr(ops, "TILE", TileBudget(tile, tile))
    monkeypatch.setattr(ops, "KEPT", kept)
    leaves = [
        draw(2, length, 3),
        draw(2, length, 3).exp(),
        -draw(3, 2).exp(),
        draw(2, length, 2),
        draw(2, length, 2, seed=1),
    ]
    leaves = [leaf.requires_grad_() for leaf in (*leaves, draw(2, 3, 2, seed=2))]
    assert torch.autograd.gradcheck(selective_scan, leaves, fast_mode=True)


@pytest.mark.parametrize(("kept", "computed"), [(2 * 70 * 3 * 4, 1), (2 * 70 * 3 * 4 - 1, 2)])
def test_states_of_short_inputs_are_computed_once(kept, computed, monkeypatch):
    """The states of two examples of 70 tokens have 2 x 70 x 3 x 4 numbers: two tiles of 64 and 6 tokens."""
    calls, states = [], ops._states
    monkeypatch.setattr(ops, "TILE", TileBudget(1, 1))
    monkeypatch.setattr(ops, "KEPT", kept)
    monkeypatch.setattr(ops, "_states", lambda *inputs: calls.append(inputs[-1]) or states(*inputs))
    x, b, c = draw(2, 70, 3), draw(2, 70, 4), draw(2, 70, 4, seed=1)
    y, _ = selective_scan(x.requires_grad_(), draw(2, 70, 3).exp(), -draw(3, 4).exp(), b, c)
    tiles = len(calls)
    y.sum().backward()
    assert len(calls) == computed * tiles > 1


@pytest.mark.parametrize("length", [31, 64, 333])
def test_scan_equals_its_steps_for_any_decay(length):
    x, b, c = draw(2, length, 3), draw(2, length, 4), draw(2, length, 4, seed=1)
    delta = 10 ** (3 * draw(2, length, 3, seed=2))  # from no decay to complete decay
    delta[:, ::7] = 0.0
    a, state, rows = -draw(3, 4).exp(), torch.zeros(2, 3, 4, dtype=torch.float64), []
    for t in range(length):
        y_t, state = selective_step(x[:, t], delta[:, t], a, b[:, t], c[:, t], state)
        rows.append(y_t)
    y, last = selective_scan(x, delta, a, b, c)
    torch.testing.assert_close(y, torch.stack(rows, 1), atol=1e-10, rtol=1e-12)
    torch.testing.assert_close(last, state, atol=1e-10, rtol=1e-12)
