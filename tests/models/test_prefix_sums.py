"""Running sums over tokens, against torch's cumsum."""

import pytest
import torch

from models.ops.prefix_sums import CHUNK, prefix_sums


@pytest.mark.parametrize("length", [1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK, 200])
def test_equals_cumsum(length):
    x = torch.randn(2, 3, length, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()
    cotangent = torch.randn(x.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    torch.testing.assert_close(prefix_sums(x), x.cumsum(2), rtol=0, atol=1e-12)
    ours, theirs = (torch.autograd.grad(f, x, cotangent)[0] for f in (prefix_sums(x), x.cumsum(2)))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
