"""The compiled running softmax against its definition and its form in torch, both in float64."""

import pytest
import torch
from test_running_softmax import EXTREMES, definition, passes, ramp, random_jumps, tensors, worst

from models.ops import native
from models.ops.running_softmax import running_softmax
from tests.helpers.kernels import compiled, relative_errors

pytestmark = [compiled, pytest.mark.slow]  # the first test compiles for half a minute

HIDDEN = {
    "none": lambda mask: None,
    "some": lambda mask: mask,
    "first": lambda mask: torch.arange(mask.shape[1]) < torch.tensor([[mask.shape[1] // 2], [mask.shape[1] - 1]]),
    "all of one": lambda mask: mask | torch.tensor([[False], [True]]),
}


def masks(length, kind):
    return HIDDEN[kind](torch.rand(2, length, generator=torch.Generator().manual_seed(length)) < 0.4)


def in_single(leaves):
    return [x.detach().float() for x in leaves]


@pytest.mark.parametrize("kind", HIDDEN)
@pytest.mark.parametrize(("latents", "width"), [(16, 16), (48, 32), (16, 80)])
@pytest.mark.parametrize("length", [1, 2, 63, 127, 129])
def test_equals_the_definition(monkeypatch, length, latents, width, kind):
    mask = masks(length, kind)

    def attention(*leaves):
        function = definition if leaves[0].dtype is torch.float64 else running_softmax
        return function(*leaves, key_padding_mask=mask)

    weights, theta, v = tensors(length, latents=latents, width=width)
    weights = weights / weights.sum(-1, keepdim=True)
    assert max(relative_errors(monkeypatch, attention, [weights, theta, v])) < 2e-6


@pytest.mark.parametrize("kind", ["some", "first", "all of one"])
def test_hidden_keys_weigh_nothing(monkeypatch, kind):
    monkeypatch.setenv(native.SWITCH, "1")
    mask = masks(150, kind)
    leaves = in_single(tensors(150, latents=16, width=16))
    outcome = passes(running_softmax, leaves, key_padding_mask=mask)
    leaves[2] = leaves[2].masked_fill(mask[:, None, :, None], float("nan"))
    again = passes(running_softmax, leaves, key_padding_mask=mask)
    assert all(torch.equal(a, b) for a, b in zip(outcome, again, strict=True))
    before_the_first = (~mask).cumsum(1)[:, None, :, None] == 0
    assert (outcome[0].masked_select(before_the_first) == 0).all()
    assert all((x.masked_select(mask[:, None, :, None]) == 0).all() for x in outcome[2:])


@pytest.mark.parametrize("extreme", EXTREMES)
def test_is_exact_for_extreme_logits(monkeypatch, extreme):
    monkeypatch.setenv(native.SWITCH, "1")
    weights, theta, v = tensors(256, latents=48, width=16, spread=1.0)
    theta = torch.cat([EXTREMES[extreme](part) for part in theta.split(3, -1)], -1)
    inputs = in_single([weights / weights.sum(-1, keepdim=True), theta, v])
    exact = passes(definition, [x.double() for x in inputs])
    assert worst(passes(running_softmax, inputs), exact) <= 2e-6


@pytest.mark.parametrize("kind", HIDDEN)
def test_any_logits_give_finite_numbers(monkeypatch, kind):
    monkeypatch.setenv(native.SWITCH, "1")
    weights, theta, v = tensors(256, latents=16, width=16)
    for wild in (ramp(theta, 3000), 1000 * theta, -ramp(theta, 3000), random_jumps(theta, 300)):
        outcome = passes(running_softmax, in_single([weights, wild, v]), key_padding_mask=masks(256, kind))
        assert all(torch.isfinite(x).all() for x in outcome)


def test_what_is_not_a_number_stays_one(monkeypatch):
    monkeypatch.setenv(native.SWITCH, "1")
    weights, theta, v = in_single(tensors(100, latents=16, width=16))
    theta[0, 0, 70, 3] = float("nan")
    y = running_softmax(weights, theta, v)
    assert y[0, 0, 70:].isnan().all()
    assert y[0, 0, :70].isfinite().all() and y[0, 1].isfinite().all() and y[1].isfinite().all()


@pytest.mark.parametrize("shape", ["flat", "ramp", "slow ramp", "stairs", "values of one sign"])
def test_is_exact_over_65536_tokens(monkeypatch, shape):
    length = 65536
    weights, theta, v = tensors(length, batch=1, heads=1, latents=16, width=16, spread=1.0)
    draw = torch.rand(length, 16, generator=torch.Generator().manual_seed(1))
    theta = {"ramp": ramp(theta, 3000), "slow ramp": ramp(theta, 5)}.get(shape, theta)
    if shape == "stairs":
        theta = theta + 150 * (draw < 20 / length).double().cumsum(0)
    if shape == "values of one sign":
        v = v.abs()
    leaves = [weights / weights.sum(-1, keepdim=True), theta, v]
    assert max(relative_errors(monkeypatch, running_softmax, leaves)) <= 2e-6


def test_large_tensors_are_written_past_the_caches_with_the_same_numbers(monkeypatch):
    monkeypatch.setenv(native.SWITCH, "1")
    few = in_single(tensors(300, batch=1, heads=3, latents=16, width=16))
    many = [x.expand(80, -1, -1, -1) for x in few]  # above 2^20 numbers
    assert many[0].numel() > 2**20
    cotangent = torch.randn(few[2].shape, generator=torch.Generator().manual_seed(9))
    few, many = ([x.detach().requires_grad_() for x in leaves] for leaves in (few, many))
    y, expected = running_softmax(*many), running_softmax(*few)
    ours = torch.autograd.grad(y, many, cotangent.expand_as(y))
    for a, b in zip([y, *ours], [expected, *torch.autograd.grad(expected, few, cotangent)], strict=True):
        assert torch.equal(a, b.expand_as(a))


def test_reads_any_layout_and_writes_that_of_projections(monkeypatch):
    monkeypatch.setenv(native.SWITCH, "1")
    inputs = in_single(tensors(70, latents=16, width=16))
    expected = passes(running_softmax, inputs)
    assert all(x.transpose(1, 2).is_contiguous() for x in expected)
    sliced = torch.cat([inputs[0][..., :1], inputs[0]], -1)[..., 1:]  # rows that are not aligned to vectors
    columns = [x.mT.contiguous().mT for x in inputs[1:]]
    for other in ([sliced, *inputs[1:]], [inputs[0], *columns], [x.contiguous() for x in inputs]):
        assert all(torch.equal(a, b) for a, b in zip(expected, passes(running_softmax, other), strict=True))
    y = running_softmax(*(x.requires_grad_() for x in inputs))
    gradients = torch.autograd.grad(y.sum(), inputs, retain_graph=True)  # for a cotangent without strides
    for a, b in zip(gradients, torch.autograd.grad(y, inputs, torch.ones_like(y)), strict=True):
        assert torch.equal(a, b)


def test_keeps_its_inputs_alone(monkeypatch):
    monkeypatch.setenv(native.SWITCH, "1")
    inputs = [x.requires_grad_() for x in in_single(tensors(200, latents=16, width=16))]
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.data_ptr()) or x, lambda x: x):
        running_softmax(*inputs)
    assert kept == [x.data_ptr() for x in inputs]


def test_what_it_does_not_take_goes_through_torch(monkeypatch):
    monkeypatch.setenv(native.SWITCH, "1")
    leaves = tensors(40, latents=16, width=16)
    assert worst(passes(running_softmax, leaves), passes(definition, leaves)) <= 1e-12
    odd = in_single(tensors(40, latents=5, width=16))
    assert worst(passes(running_softmax, odd), passes(definition, [x.double() for x in odd])) <= 2e-6
