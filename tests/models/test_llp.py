"""Visible keys of LLP's queries, which the page of its Table 7 refers to."""

import pytest
import torch

from models.attention.llp import LLP


def llp(pattern="causal_self", **options):
    torch.manual_seed(0)
    return LLP(16, 2, pattern=pattern, max_length=64, **{"segment": 8, **options}).double()


def visible(model, length=30):
    """(N, N) True where the output at i depends on the input at j."""
    x = torch.randn(1, length, model.dim, dtype=torch.float64).requires_grad_()
    y = model(x)[0]
    rows = [torch.autograd.grad(y[0, i].sum(), x, retain_graph=True)[0][0].abs().sum(-1) > 0 for i in range(length)]
    return torch.stack(rows)


def blocks(half, length=30):
    """Block of the key minus block of the query, (N, N)."""
    block = torch.arange(length) // half
    return block - block[:, None]


@pytest.mark.parametrize("pattern", ["causal_self", "noncausal_self"])
@pytest.mark.parametrize(("segment", "half"), [(2, 1), (8, 4), (20, 10), (64, 32)])
def test_a_query_sees_its_half_segment_and_the_one_before(pattern, segment, half):
    """Also in the noncausal slot: the paper describes no other layer (D-19)."""
    past = torch.ones(30, 30, dtype=torch.bool).tril()
    assert torch.equal(visible(llp(pattern, segment=segment)), past & (blocks(half) >= -1))
