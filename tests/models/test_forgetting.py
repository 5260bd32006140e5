"""Forget gates in softmax attention: the operator against its definition, padding, decoding, the start."""

import pytest
import torch
import torch.nn.functional as F
from memory import LargestStorage
from same import assert_same

from models.attention.forgetting import ForgettingAttention
from models.ops import forgetting as op
from models.ops.forgetting import forgetting_attention

PRO = {"qk_norm": True, "kv_shift": True, "output_norm": True, "output_gate": True}


def build(dim=16, heads=2, *, max_length=64, **hyper):
    torch.manual_seed(0)
    return ForgettingAttention(dim, heads, pattern="causal_self", max_length=max_length, **hyper)


def draw(length, *, dtype=torch.float64, width=8):
    """Leaves q, k, v (2, 3, N, E) and sums of log gates (2, 3, N)."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, 2, 3, length, width, generator=generator, dtype=torch.float64).to(dtype)
    logits = 3 * torch.randn(2, 3, length, generator=generator, dtype=torch.float64)
    return [x.requires_grad_() for x in (q, k, v, F.logsigmoid(logits).cumsum(-1))]


def definition(q, k, v, sums):
    q, k, v = (x.double() for x in (q, k, v))
    scores = q @ k.mT * q.shape[-1] ** -0.5 + sums[..., :, None] - sums[..., None, :]
    later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return scores.masked_fill(later, float("-inf")).softmax(-1) @ v


@pytest.fixture
def short_segments(monkeypatch):
    monkeypatch.setattr(op, "SEGMENT", 16)


@pytest.mark.parametrize("length", [1, 16, 17, 50])
def test_segments_equal_the_definition(length, short_segments):
    leaves = draw(length)
    assert_same(forgetting_attention(*leaves), definition(*leaves), leaves)


def test_the_reference_keeps_float32_exact(short_segments):
    """float32 resolves sums near a million to 1/16, but only their differences matter."""
    q, k, v, sums = draw(50, dtype=torch.float32)
    far = sums.detach() - 1e6
    y = forgetting_attention(q, k, v, far).double()
    torch.testing.assert_close(y, definition(q, k, v, sums), atol=1e-5, rtol=0)


def test_three_channels_keep_the_bias_in_bfloat16(short_segments):
    """The second gate of each segment is e^-250; the biases after it are near 250, where bfloat16 resolves 1."""
    q, k, v, sums = draw(50, dtype=torch.bfloat16)
    sums = 0.1 * sums - 250.0 * ((torch.arange(50) + 15) // 16)
    exact = definition(q, k, v, sums)
    assert (forgetting_attention(q, k, v, sums).double() - exact).abs().max() < 0.02
    q, k, v = (x.detach().half() for x in (q, k, v))
    assert (forgetting_attention(q, k, v, sums).double() - exact).abs().max() < 0.02


@pytest.mark.parametrize(("dropout", "dtype"), [(0.0, torch.bfloat16), (0.5, torch.float32)])
def test_bfloat16_is_kept_only_where_scores_are_not_rounded(dropout, dtype, monkeypatch):
    types, attend = [], op.softmax_lse

    def spied(q, *arguments):
        types.append(q.dtype)
        return attend(q, *arguments)

    monkeypatch.setattr(op, "softmax_lse", spied)
    y = forgetting_attention(*draw(20, dtype=torch.bfloat16), dropout=dropout)
    assert set(types) == {dtype} and y.dtype is torch.bfloat16


def test_open_gates_are_softmax_attention_and_closed_gates_keep_the_own_value():
    q, k, v, _ = draw(600)
    expected = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    torch.testing.assert_close(forgetting_attention(q, k, v, q.new_zeros(q.shape[:3])), expected)
    closed = (-1e4 * torch.ones(q.shape[:3], dtype=torch.float64)).cumsum(-1)
    torch.testing.assert_close(forgetting_attention(q, k, v, closed), v)


def test_no_tensor_has_a_number_per_pair_of_tokens():
    model, x = build(max_length=2048, **PRO), torch.randn(1, 2048, 16, requires_grad=True)
    with LargestStorage() as largest:
        model(x)[0].sum().backward()
    assert largest.numbers < 2048 * 64
