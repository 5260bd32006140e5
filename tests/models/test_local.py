"""Visible keys of local attention."""

import pytest
import torch

from models.attention.local import Local
from tests.helpers.visible import relative, visible


@pytest.mark.parametrize("window", [1, 4, 5])
def test_keys_that_local_attention_sees(window):
    torch.manual_seed(0)
    causal = Local(16, 2, pattern="causal_self", max_length=29, window=window)
    noncausal = Local(16, 2, pattern="noncausal_self", max_length=29, window=window)
    assert torch.equal(visible(causal), (relative() <= 0) & (relative() > -window))
    assert torch.equal(visible(noncausal), relative().abs() <= window)
