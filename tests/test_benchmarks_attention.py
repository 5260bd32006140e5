"""The decoders in `benchmarks.attention` call the unmodified layers."""

import pytest
import torch

from benchmarks.attention import decoding


@pytest.mark.parametrize("name", ["latte", "luna", "lavo"])
@torch.no_grad()
def test_a_token_is_decoded_after_any_number(monkeypatch, name):
    monkeypatch.setattr(decoding, "WINDOW", 2)
    for length in (0, 3):
        y, state = getattr(decoding, name)(length)()
        assert y.shape[:2] == (1, decoding.HEADS) and y.shape[-1] == decoding.WIDTH
        assert torch.isfinite(y).all() and state is not None
