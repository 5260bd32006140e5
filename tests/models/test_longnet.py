"""The effect of LongNet's options, and its decoding state."""

import pytest
import torch

from models.attention.longnet import LongNet


def longnet(pattern="causal_self", dim=16, heads=2, max_length=64, **options):
    torch.manual_seed(0)
    options = {"segments": [4, 16], "ratios": [1, 2]} | options
    return LongNet(dim, heads, pattern=pattern, max_length=max_length, **options).double().eval()


def sequence(length=24, dim=16, seed=0):
    return torch.randn(2, length, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def decode(model, x):
    rows, state = [], model.init_state(len(x))
    for x_t in x.unbind(1):
        y_t, state = model.step(x_t, state)
        rows.append(y_t)
    return torch.stack(rows, 1)


def seen_by(model, i, length=24):
    """Positions on which the output at i depends."""
    x = sequence(length).requires_grad_()
    (gradient,) = torch.autograd.grad(model(x)[0][:, i].sum(), x)
    return torch.nonzero(gradient.abs().sum((0, 2)))[:, 0].tolist()


@pytest.mark.parametrize(("offsets", "third"), [("group", []), ("mod", [2, 5])])
def test_who_takes_part_where(offsets, third):
    """Four heads, ratio 3: adjacent heads share an offset and the third is unused, or heads 0 and 3 share one."""
    model = longnet(heads=4, segments=[6], ratios=[3], offsets=offsets)
    assert [seen_by(model, i) for i in (3, 4, 5)] == [[0, 3], [1, 4], third]
    assert seen_by(model, 9) == [6, 9]


def test_weights_of_the_mixture_have_a_gradient_unless_detached():
    x = sequence()
    gradients = []
    for detach_alpha in (True, False):
        model = longnet(detach_alpha=detach_alpha)
        y = model(x)[0]
        y.square().sum().backward()
        gradients.append((y.detach(), model.q_proj.weight.grad))
    torch.testing.assert_close(gradients[0][0], gradients[1][0])
    assert not torch.allclose(gradients[0][1], gradients[1][1])


def test_segments_longer_than_the_sequence_are_clipped():
    x = sequence(11)
    torch.testing.assert_close(longnet(segments=[4, 11])(x)[0], longnet(segments=[4, 1000])(x)[0])


def test_inner_norm_is_over_all_heads():
    model, x = longnet(subln=True), sequence()
    before = []
    model.out_proj.register_forward_pre_hook(lambda layer, inputs: before.append(inputs[0]))
    model(x)
    torch.testing.assert_close(before[0].mean(-1), torch.zeros(2, 24, dtype=torch.float64), atol=1e-12, rtol=0)
    assert not torch.allclose(model(x)[0], longnet()(x)[0])


def test_xpos_is_the_same_in_every_long_segment():
    """Only distances matter, so repetitions of a text have equal outputs, even in float32."""
    model = longnet(segments=[8, 64], ratios=[1, 2], xpos=True, max_length=64).float()
    x = sequence(64).float().repeat(1, 1500, 1)
    y = model(x)[0].unflatten(1, (-1, 64))
    torch.testing.assert_close(y[:, -1], y[:, 0], atol=1e-5, rtol=0)
    assert not torch.allclose(y[:, 0], longnet(segments=[8, 64], ratios=[1, 2]).float()(x[:, :64])[0], atol=1e-3)


@pytest.mark.parametrize("segments", [[4, 16], [5, 12], [6, 100]])
def test_the_ring_is_as_long_as_the_longest_segment(segments):
    model = longnet(segments=segments, ratios=[1, 3])
    state, ring = model.init_state(2), min(max(segments), 64)
    assert state["k"].numel() + state["v"].numel() == 2 * 2 * ring * 16
    x = sequence(64)
    torch.testing.assert_close(decode(model, x), model(x)[0], atol=1e-12, rtol=0)


@pytest.mark.parametrize("xpos", [False, True])
def test_decoding_past_max_length(xpos):
    x = sequence(40)
    whole = longnet(xpos=xpos, max_length=20)
    torch.testing.assert_close(decode(whole, x), whole(x)[0], atol=1e-12, rtol=0)
    with pytest.raises(ValueError, match="past max_length 20, which cuts a segment of 64"):
        decode(longnet(xpos=xpos, max_length=20, segments=[4, 64]), x)


def test_xpos_may_have_a_segment_longer_than_any_text():
    longnet(segments=[2048, 131072], xpos=True, max_length=65536)
