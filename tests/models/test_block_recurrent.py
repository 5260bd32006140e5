"""The Block-Recurrent Transformer beyond the contract: its layers, T5's ranges, states, gates."""

import math

import pytest
import torch
from zoo import build, inputs, run

from models.attention.base import Pattern
from models.attention.block_recurrent import BlockRecurrent, distance_ranges

CAUSAL = Pattern.CAUSAL_SELF


def test_ranges_of_distances_are_those_of_t5():
    """Single distances up to 15, then sixteen geometrically growing ranges up to 128."""
    buckets = distance_ranges(torch.arange(600))
    assert buckets[:16].tolist() == list(range(16))
    assert buckets.diff().min() == 0 and buckets.diff().max() == 1
    assert buckets[[16, 18, 19, 32, 64, 112, 113, 127, 599]].tolist() == [16, 16, 17, 21, 26, 30, 31, 31, 31]


def test_states_are_kept_in_full_precision():
    model = build("block_recurrent", CAUSAL)
    x, _ = inputs(CAUSAL, 13)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        state = model.chunk(x, model.init_state(2))[1]
    assert state["memory"]["states"].dtype is torch.float32


def public_attention(q, k, v, factor, bias=None, mask=None):
    """q, k, v (B, length, H, E). A row that is masked everywhere reads nothing."""
    scores = torch.einsum("bqhe,bkhe->bhqk", q, k)
    if bias is not None:
        scores = scores + bias
    scores = scores * factor[:, None, None]
    if mask is not None:
        scores = scores.where(mask, -1e6)
    highest = scores.amax(-1, keepdim=True).clamp(min=-1e3).detach()
    weights = (scores - highest).exp()
    weights = weights / (weights.sum(-1, keepdim=True) + (-1e3 - highest).exp())
    return torch.einsum("bhqk,bkhe->bqhe", weights, v)


def public_layer(model, x):
    """The recurrent layer of meliad 760591c (2022-06-03), window by window, with both outputs in one projection."""
    recurrence, w = model.recurrence, model.window

    def heads(y, linear, unit=True):
        y = (y @ linear.T).reshape(*y.shape[:2], model.heads, -1)
        return y * torch.rsqrt(y.square().sum(-1, keepdim=True) + 1e-6) if unit else y

    queries, keys = heads(x, model.q_proj.weight), heads(x, model.k_proj.weight)
    values, queries2 = heads(x, model.v_proj.weight, False), heads(x, recurrence.token_q.weight)
    position = torch.arange(2 * w)[None] - (torch.arange(w)[:, None] + w)
    mask = (position < 0) & (position >= -w)
    distance = (-position).clamp(min=0)
    large = 16 + ((distance.clamp(min=1) / 16).log() / math.log(128 / 16) * 16).int()
    bias = model.position_bias[:, distance.where(distance < 16, large.clamp(max=31))]

    states = recurrence.first_states.expand(len(x), -1, -1)
    before = torch.zeros_like(keys[:, :w]), torch.zeros_like(values[:, :w])
    out = []
    for window in zip(*(y.split(w, 1) for y in (keys, values, queries, queries2)), strict=True):
        k, v = (torch.cat(pair, 1) for pair in zip(before, window[:2], strict=True))
        u = (
            states * torch.rsqrt(states.square().mean(-1, keepdim=True) + 1e-6) * recurrence.norm.weight
            + recurrence.ids
        )
        q_weight, q2_weight = recurrence.state_q.weight.chunk(2)
        k_weight, v_weight = recurrence.state_kv.weight.chunk(2)
        state_k, state_v = heads(u, k_weight), heads(u, v_weight, False)
        read = [
            public_attention(heads(u, q_weight), state_k, state_v, recurrence.state_factors[0]),
            public_attention(heads(u, q2_weight), k, v, recurrence.state_factors[1]),
        ]
        hidden, gate = torch.cat(read, 2).flatten(2), recurrence.gate
        new = hidden @ gate.new.weight.T
        if hasattr(gate, "rate"):
            keep = gate.rate.sigmoid()
            following = states * keep + new * (1 - keep)
        else:
            enter, forget = (hidden @ gate.gates.weight.T + gate.gates.bias).chunk(2, -1)
            following = states * (forget + 1).sigmoid() + new * (enter - 1).sigmoid()
        both = [
            public_attention(window[2], k, v, model.factor, bias, mask),
            public_attention(window[3], state_k, state_v, recurrence.token_factor),
        ]
        out.append(torch.cat(both, 2).flatten(2))
        before, states = window[:2], following
    weight = torch.cat([model.out_proj.weight, recurrence.token_out.weight], 1)
    return torch.cat(out, 1) @ weight.T


@pytest.mark.slow
@pytest.mark.parametrize("gate", ["bias", "lstm"])
def test_equals_the_published_code_in_the_papers_size(gate):
    """Width 1024, 8 heads, three windows of 512 and 512 states, in output and every gradient."""
    torch.manual_seed(0)
    model = BlockRecurrent(1024, 8, pattern=CAUSAL, max_length=1536, gate=gate).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1 + 0.2 * torch.randn_like(parameter))  # factors and norms away from 1
    x = torch.randn(1, 1536, 1024, dtype=torch.float64, requires_grad=True)
    cotangent, leaves = torch.randn_like(x), {"x": x, **dict(model.named_parameters())}
    ours, public = run(model, x), public_layer(model, x)
    torch.testing.assert_close(ours, public, atol=1e-9, rtol=1e-9)
    gradients = [torch.autograd.grad((y * cotangent).sum(), list(leaves.values())) for y in (ours, public)]
    for name, a, b in zip(leaves, *gradients, strict=True):
        assert (a - b).abs().max() <= 1e-9 * b.abs().max(), name
