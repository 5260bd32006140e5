"""Layers with the kernels of flash-linear-attention, which are stood in for by loops with the library's conventions.

The loops have the signatures and layouts that the library documents: tokens before heads, log decays, `scale`, states
(B, H, K, V). The layer must be the same function with them.
"""

import pytest
import torch

from models.attention.deltanet import DeltaNet
from models.attention.forgetting import ForgettingAttention
from models.attention.gated_deltanet import GatedDeltaNet
from models.attention.gla import GatedLinearAttention
from models.attention.hgrn2 import HGRN2
from models.attention.kda import KimiDeltaAttention
from models.attention.latte import Latte
from models.attention.luna import Luna
from models.attention.mamba2 import Mamba2
from models.attention.rwkv7 import RWKV7
from models.ops import fla_kernels
from models.ops.delta_rule import beta_delta_rule, delta_rule
from tests.helpers.kernels import with_and_without


def recurrent(q, k, v, transition, scale, initial_state=None, output_final_state=False):
    """S_t = transition(S_{t-1}, t) with k_t v_t' or what the transition adds, y_t = scale S_t' q_t."""
    if initial_state is None:
        initial_state = q.new_zeros(q.shape[0], *q.shape[2:], v.shape[-1])
    assert initial_state.dtype == torch.float32
    state, rows = initial_state, []
    for t in range(q.shape[1]):
        state = transition(state, t)
        rows.append(scale * (q[:, t, :, None] @ state)[..., 0, :])
    return torch.stack(rows, 1), state


def chunk_gla(q, k, v, g, scale=None, **options):
    assert q.shape == k.shape == g.shape
    step = lambda s, t: g[:, t, ..., None].exp() * s + k[:, t, ..., None] * v[:, t, :, None]  # noqa: E731
    return recurrent(q, k, v, step, scale, **options)


def chunk_simple_gla(q, k, v, g=None, scale=None, **options):
    g = torch.zeros_like(q[..., 0]) if g is None else g
    assert g.shape == q.shape[:3] and k.shape == q.shape
    return chunk_gla(q, k, v, g[..., None].expand_as(q), scale, **options)


def chunk_lightnet(q, k, v, scale=None):
    total = torch.cat([k[:, :1], k.logcumsumexp(1)], 1)  # the first decay is of a state of zeros
    return chunk_gla(q, (k - total[:, 1:]).exp(), v, total[:, :-1] - total[:, 1:], scale)


def chunk_kda(q, k, v, g, beta, scale=None, **options):
    assert g.shape == k.shape and beta.shape == k.shape[:3]

    def step(state, t):
        key, state = k[:, t, ..., None], g[:, t, ..., None].exp() * state
        return state + key * beta[:, t, :, None, None] * (v[:, t, :, None] - key.mT @ state)

    return recurrent(q, k, v, step, scale, **options)


def chunk_gated_delta_rule(q, k, v, g, beta, scale=None, **options):
    return chunk_kda(q, k, v, g[..., None].expand_as(k), beta, scale, **options)


def chunk_delta_rule(q, k, v, beta, scale=None, **options):
    assert q.dtype != torch.float32
    q, k, v = q.float(), k.float(), v.float()
    return chunk_kda(q, k, v, torch.zeros_like(k), beta, scale, **options)


def chunk_dplr_delta_rule(q, k, v, a, b, gk, scale=None, **options):
    def step(state, t):
        removed = b[:, t, ..., None] * (a[:, t, :, None] @ state)
        return gk[:, t, ..., None].exp() * state + removed + k[:, t, ..., None] * v[:, t, :, None]

    return recurrent(q, k, v, step, scale, **options)


def parallel_forgetting_attn(q, k, v, g, scale=None):
    assert g.shape == q.shape[:3]
    sums = g.cumsum(1).mT
    scores = scale * torch.einsum("bihd,bjhd->bhij", q, k) + sums[..., None] - sums[..., None, :]
    later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return torch.einsum("bhij,bjhd->bihd", scores.masked_fill(later, float("-inf")).softmax(-1), v)


LOOPS = [chunk_gla, chunk_simple_gla, chunk_kda, chunk_gated_delta_rule, chunk_delta_rule, chunk_dplr_delta_rule]
LOOPS = {loop.__name__: loop for loop in [*LOOPS, chunk_lightnet, parallel_forgetting_attn]}


@pytest.fixture
def called(monkeypatch):
    """The names of the kernels that are called."""
    names = set()

    def function(name):
        assert name in fla_kernels.MODULES
        names.add(name)
        return LOOPS[name]

    monkeypatch.setattr(fla_kernels, "function", function)
    monkeypatch.setattr(fla_kernels, "DEVICE", "cpu")
    monkeypatch.setenv(fla_kernels.SWITCH, "0")
    return names


LAYERS = [
    (GatedLinearAttention, {}, "chunk_gla"),
    (HGRN2, {}, "chunk_gla"),
    (Mamba2, {"d_state": 6}, "chunk_simple_gla"),
    (DeltaNet, {}, "chunk_gated_delta_rule"),
    (GatedDeltaNet, {}, "chunk_gated_delta_rule"),
    (KimiDeltaAttention, {}, "chunk_kda"),
    (RWKV7, {}, "chunk_dplr_delta_rule"),
    (ForgettingAttention, {}, "parallel_forgetting_attn"),
    (Latte, {"latents": 8}, "chunk_lightnet"),
    (Luna, {"slots": 4}, "chunk_simple_gla"),
]


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize(("kind", "options", "kernel"), LAYERS, ids=[kind.__name__ for kind, *_ in LAYERS])
def test_a_layer_is_the_same_function_with_kernels(called, monkeypatch, kind, options, kernel, padded):
    torch.manual_seed(0)
    layer = kind(16, 2, pattern="causal_self", max_length=70, **options)
    padding = (torch.arange(70) - torch.tensor([[0], [5]])) % 70 >= torch.tensor([[70], [60]]) if padded else None
    for theirs, ours in with_and_without(layer, fla_kernels.SWITCH, padding, monkeypatch, batch=2, length=70):
        torch.testing.assert_close(theirs, ours, atol=2e-4, rtol=0.0)
    assert called == {kernel}


def heads(count, width=8, length=9):
    return torch.randn(count, 2, 3, length, width).unbind(0)


def test_final_states_are_the_same(called, monkeypatch):
    torch.manual_seed(0)
    q, k, v, r, e, g = heads(6)
    k, r, e, g, beta = 0.3 * k, 0.3 * r, 0.3 * e, -g.abs(), torch.rand(2, 3, 9, 1)
    state = torch.randn(2, 3, 8, 8)
    calls = {
        "other keys": lambda: delta_rule(q, k, v, r, g, erase=e, initial_state=state),
        "no decay": lambda: delta_rule(q, k, v, r, initial_state=state),
        "one decay": lambda: delta_rule(q, k, v, r, g[..., :1], initial_state=state),
        "beta": lambda: beta_delta_rule(q, k, v, beta, None, state),
        "beta, one decay": lambda: beta_delta_rule(q, k, v, beta, g[..., :1], state),
        "beta, decays": lambda: beta_delta_rule(q, k, v, beta, g, state),
    }
    for name, call in calls.items():
        pairs = []
        for switch in "01":
            monkeypatch.setenv(fla_kernels.SWITCH, switch)
            pairs.append(call())
        for ours, theirs in zip(*pairs, strict=True):
            torch.testing.assert_close(
                theirs, ours, atol=1e-4, rtol=1e-4, msg=lambda text, name=name: f"{name}: {text}"
            )


def test_linear_attention_without_decay(called, monkeypatch):
    from models.ops.gated_linear import gated_linear_attention

    q, k, v = heads(3)
    ours = gated_linear_attention(q, k, v)
    monkeypatch.setenv(fla_kernels.SWITCH, "1")
    for a, b in zip(ours, gated_linear_attention(q, k, v), strict=True):
        torch.testing.assert_close(b, a, atol=1e-4, rtol=1e-4)
    assert called == {"chunk_simple_gla"}


def test_a_chunk_of_decoding_calls_no_kernel_of_latte(called, monkeypatch):
    """Its state enters as tokens with hidden logits, behind which the kernel's sums in float32 have no digits."""
    monkeypatch.setenv(fla_kernels.SWITCH, "1")
    layer, x = Latte(16, 2, pattern="causal_self", max_length=9, latents=8), torch.randn(2, 9, 16)
    y, state = layer.chunk(x[:, :5], layer.init_state(2))
    rest = layer.chunk(x[:, 5:], state)[0]
    assert called == set()
    torch.testing.assert_close(torch.cat([y, rest], 1), layer(x)[0], atol=1e-5, rtol=1e-4)


def test_16_bits_have_the_kernel_of_the_delta_rule(called, monkeypatch):
    monkeypatch.setenv(fla_kernels.SWITCH, "1")
    layer, x = DeltaNet(16, 2, pattern="causal_self", max_length=9), torch.randn(2, 9, 16)
    with torch.autocast("cpu", torch.bfloat16):
        y = layer(x)[0]
    torch.testing.assert_close(y.float(), layer(x)[0], atol=0.05, rtol=0.05)
    assert called == {"chunk_delta_rule", "chunk_gated_delta_rule"}


def test_kernels_are_not_for_every_tensor(called, monkeypatch):
    x = torch.randn(1, 2, 3, 4)
    assert fla_kernels.chosen(x) is None
    monkeypatch.setenv(fla_kernels.SWITCH, "1")
    assert fla_kernels.chosen(x) == fla_kernels.Kernels(torch.float32)
    assert fla_kernels.chosen(x, dtype=torch.bfloat16) == fla_kernels.Kernels(torch.bfloat16)
    assert fla_kernels.chosen(x.double()) is None and fla_kernels.chosen(x, key_width=300) is None
    with torch.autocast("cpu", torch.bfloat16):
        assert fla_kernels.chosen(x) == fla_kernels.Kernels(torch.bfloat16)
    monkeypatch.setattr(fla_kernels, "DEVICE", "cuda")
    assert fla_kernels.chosen(x) is None
