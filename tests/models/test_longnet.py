"""The effect of LongNet's options, and its decoding state."""

import pytest
import torch
from drawn import draw
from zoo import in_chunks

from models.attention.longnet import LongNet


def longnet(pattern="causal_self", dim=16, heads=2, max_length=64, **options):
    torch.manual_seed(0)
    options = {"segments": [4, 16], "ratios": [1, 2]} | options
    return LongNet(dim, heads, pattern=pattern, max_length=max_length, **options).double().eval()


def test_xpos_is_the_same_in_every_long_segment():
    """Only distances matter, so repetitions of a text have equal outputs, even in float32."""
    model = longnet(segments=[8, 64], ratios=[1, 2], xpos=True, max_length=64).float()
    x = draw(2, 64, 16).float().repeat(1, 500, 1)
    y = model(x)[0].unflatten(1, (-1, 64))
    torch.testing.assert_close(y[:, -1], y[:, 0], atol=1e-5, rtol=0)
    assert not torch.allclose(y[:, 0], longnet(segments=[8, 64], ratios=[1, 2]).float()(x[:, :64])[0], atol=1e-3)


@pytest.mark.parametrize("segments", [[4, 16], [5, 12], [6, 100]])
def test_the_ring_is_as_long_as_the_longest_segment(segments):
    model = longnet(segments=segments, ratios=[1, 3])
    state, ring = model.init_state(2), min(max(segments), 64)
    assert state["k"].numel() + state["v"].numel() == 2 * 2 * ring * 16
    x = draw(2, 64, 16)
    torch.testing.assert_close(in_chunks(model, x, state, (1,) * 64)[0], model(x)[0], atol=1e-12, rtol=0)


@pytest.mark.parametrize("xpos", [False, True])
def test_decoding_past_max_length(xpos):
    x = draw(2, 40, 16)
    whole = longnet(xpos=xpos, max_length=20)
    rows, _ = in_chunks(whole, x, whole.init_state(2), (1,) * 40)
    torch.testing.assert_close(rows, whole(x)[0], atol=1e-12, rtol=0)
    with pytest.raises(ValueError, match="past max_length 20, which cuts a segment of 64"):
        cut = longnet(xpos=xpos, max_length=20, segments=[4, 64])
        in_chunks(cut, x, cut.init_state(2), (1,) * 40)
