"""Running sums over tokens, against torch's cumsum."""

import pytest
import torch
from same import assert_same

from models.ops.prefix_sums import CHUNK, prefix_sums


@pytest.mark.parametrize("length", [1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK, 200])
def test_equals_cumsum(length):
    x = torch.randn(2, 3, length, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()
    assert_same(prefix_sums(x), x.cumsum(2), [x])
