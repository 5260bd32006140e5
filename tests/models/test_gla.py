"""Gated linear attention beyond the contract: its gate."""

import pytest
import torch
from drawn import draw

from models.attention.gla import GatedLinearAttention


def build(dim=16, heads=2, **hyper):
    torch.manual_seed(0)
    return GatedLinearAttention(dim, heads, pattern="causal_self", max_length=8, **hyper)


def test_starts_with_a_long_memory():
    """The roots of sigmoids near 1/2: half of a state is left after 16 tokens or so."""
    *_, decay = build(64, 4).project(torch.randn(1, 50, 64))[0]
    assert -0.07 < decay.mean() < -0.03


@pytest.mark.parametrize("bias", [-1e4, 1e4])
def test_a_saturated_gate_forgets_everything_or_nothing(bias):
    model = build(temperature=1.0).double()
    with torch.no_grad():
        model.decay_out.bias.fill_(bias)
    x = draw(2, 70, 16).requires_grad_()
    q, k, v, _ = model.project(x)[0]
    scores = (q @ k.mT).tril() if bias > 0 else (q @ k.mT) * torch.eye(70, dtype=torch.float64)
    y = model(x)[0]
    torch.testing.assert_close(y, model.write(x, scores @ v), atol=1e-12, rtol=0)
    assert torch.isfinite(torch.autograd.grad(y.sum(), x)[0]).all()
