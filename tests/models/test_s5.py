"""S5's start, and its halves of conjugate pairs."""

import pytest
import torch
from golden import golden, needs_golden

from models.attention.s5 import S5, hippo_normal


def test_hippo_normal_is_the_normal_part_of_hippo_legs():
    """HiPPO-LegS plus p p' with p_i = sqrt(i + 1/2), built as published, is V diag(L) V*."""
    order = torch.arange(6, dtype=torch.float64)
    root = (2 * order + 1).sqrt()
    legs = -((root[:, None] * root).tril(-1) + torch.diag(order + 1))
    p = (order + 0.5).sqrt()
    eigenvalues, vectors = hippo_normal(6)
    rebuilt = vectors @ torch.diag(eigenvalues) @ vectors.mH
    torch.testing.assert_close(rebuilt.real, legs + p[:, None] * p, atol=1e-12, rtol=0)
    assert rebuilt.imag.abs().max() < 1e-12


@needs_golden
def test_eigenvalues_are_the_published_ones():
    _, a = golden("s5_n63")
    eigenvalues = torch.view_as_real(hippo_normal(16)[0])
    torch.testing.assert_close(eigenvalues, a["Lambda"].double(), atol=1e-4, rtol=0)


@pytest.mark.parametrize("pattern", ["causal_self", "noncausal_self"])
def test_one_half_of_the_pairs_is_as_good_as_all(pattern):
    torch.manual_seed(0)
    half = S5(5, 1, pattern=pattern, max_length=8, d_state=8, blocks=2, gate="none").double()
    whole = S5(5, 1, pattern=pattern, max_length=8, d_state=8, blocks=2, gate="none", conj_sym=False).double()
    with torch.no_grad():
        for name, dim in (("eigenvalues", 0), ("enter", 0), ("leave", 2), ("log_step", 0)):
            kept = getattr(half, name)
            other = kept if name == "log_step" else kept * torch.tensor([1.0, -1.0])  # conjugate
            getattr(whole, name).copy_(torch.cat([kept, other], dim))
        whole.skip.copy_(half.skip)
    x = torch.randn(2, 13, 5, dtype=torch.float64)
    torch.testing.assert_close(half(x)[0], whole(x)[0], atol=1e-12, rtol=0)


def test_no_mode_grows():
    model = S5(5, 1, pattern="causal_self", max_length=8, d_state=8, blocks=1)
    torch.nn.init.constant_(model.eigenvalues, 3.0)
    assert (model.matrices()[0].abs() < 1).all()
