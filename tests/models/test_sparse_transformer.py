"""The Sparse Transformer with an open first position, against Long Range Arena's mask."""

import torch

from models.attention.sparse_transformer import fixed_pattern, is_summary


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
