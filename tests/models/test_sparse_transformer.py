import pytest
import torch
from zoo import build, inputs, run

from models.attention.base import Pattern
from models.attention.sparse_transformer import fixed_pattern, is_summary

PATTERN = Pattern.NONCAUSAL_SELF


def test_summary_columns_of_long_range_arena():
    t = torch.arange(100)
    expected = [0, *range(40, 50)]
    assert t[is_summary(t, 50, 10)].tolist() == expected + [50 + j for j in expected]


def test_lra_compat_is_lower_triangular_in_both_patterns():
    x, _ = inputs(PATTERN, 21)
    models = [build("sparse_transformer", p, lra_compat=True) for p in (PATTERN, Pattern.CAUSAL_SELF)]
    ours, causal = (run(model, x) for model in models)
    torch.testing.assert_close(ours, causal)
    assert not torch.allclose(ours, run(build("sparse_transformer", PATTERN), x))


def test_with_an_open_first_position_the_mask_is_that_of_long_range_arena():
    """One row and one column of ones around the lower triangular pattern of the tokens after the first."""
    block, columns, length = 4, 2, 14
    t = torch.arange(length - 1)
    near = t[:, None] // block == t // block
    pattern = (near | is_summary(t, block, columns)) & (t <= t[:, None])
    expected = torch.nn.functional.pad(pattern, (1, 0, 1, 0), value=True)
    v = torch.eye(length, dtype=torch.float64)[None, None]
    q = torch.zeros_like(v)
    weights = fixed_pattern(q, q, v, block=block, columns=columns, causal=True, open_first=True)[0, 0]
    torch.testing.assert_close(weights, expected / expected.sum(1, keepdim=True, dtype=torch.float64))


@pytest.mark.parametrize("open_first", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_gradients_with_dropout(causal, open_first):
    """Backward draws the masks of forward again in every part."""

    def dropped(*leaves):
        torch.manual_seed(3)
        return fixed_pattern(*leaves, block=4, columns=1, causal=causal, open_first=open_first, dropout=0.4)

    generator = torch.Generator().manual_seed(0)
    leaves = [x.requires_grad_() for x in torch.randn(3, 1, 2, 10, 3, generator=generator, dtype=torch.float64)]
    assert torch.autograd.gradcheck(dropped, leaves, fast_mode=True)
