"""The compiled causal attention through slots against its equation and its form in torch, both in float64."""

import pytest
import torch
from test_packed_prefix import definition, tensors

from models.ops import native
from models.ops.packed_prefix import ACTIVATIONS, SOFTPLUS, packed_prefix
from tests.helpers.kernels import compiled, relative_errors

pytestmark = [compiled, pytest.mark.slow]  # the first test compiles for half a minute


def masks(length, slots, hidden, unread):
    generator = torch.Generator().manual_seed(length)
    mask = torch.rand(3, length, generator=generator) < 0.4
    mask[0, : length // 2] = True
    mask[2] = True
    return {
        "key_padding_mask": mask if hidden else None,
        "slot_mask": torch.arange(slots) >= torch.tensor([[1], [slots // 2], [slots]]) if unread else None,
    }


def in_single(leaves):
    return [x.detach().float().requires_grad_() for x in leaves]


def passes(leaves, **options):
    y = packed_prefix(*leaves, activation=SOFTPLUS, **options)
    cotangent = torch.randn(y.shape, generator=torch.Generator().manual_seed(9)).to(y.dtype)
    return [y, *torch.autograd.grad(y, leaves, cotangent)]


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("untied", [False, True], ids=["tied", "untied"])
@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize(
    ("length", "slots", "width", "hidden", "unread"),
    [
        (1, 16, 16, False, False),
        (1, 32, 16, True, True),
        (2, 32, 32, True, False),
        (127, 48, 16, False, True),
        (129, 16, 48, True, True),
        (129, 32, 32, False, False),
        (64, 16, 80, True, False),
    ],
)
def test_equals_its_definition(monkeypatch, length, slots, width, hidden, unread, name, untied):
    options = {"activation": ACTIVATIONS[name], **masks(length, slots, hidden, unread)}

    def attention(*leaves):
        return (definition if leaves[0].dtype is torch.float64 else packed_prefix)(*leaves, **options)

    leaves = tensors(length, batch=3, width=width, slots=slots, untied=untied)
    assert max(relative_errors(monkeypatch, attention, leaves)) < 2e-6


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("gain", [10.0, 1000.0])
def test_bears_extreme_scores(monkeypatch, name, gain):
    monkeypatch.setenv(native.SWITCH, "1")
    q, memory, pack_k, pack_q = in_single(tensors(200, width=16, slots=16))
    leaves = [q, memory, gain * pack_k, pack_q]
    y = packed_prefix(*leaves, activation=ACTIVATIONS[name])
    exact = packed_prefix(*(x.double() for x in leaves), activation=ACTIVATIONS[name])
    assert (y - exact).abs().max() <= 1e-4 * exact.abs().max()  # the rounding of a score grows with the gain
    assert all(torch.isfinite(x).all() for x in torch.autograd.grad(y.sum(), (q, memory, pack_k, pack_q)))


def test_activations_keep_the_digits_of_small_numbers(monkeypatch):
    """With one of 16 slots read, only keys matter: y is the mean of the values with weights a."""
    monkeypatch.setenv(native.SWITCH, "1")
    x = torch.linspace(-100, 100, 401)
    exact = {"softplus": SOFTPLUS.value, "elu": lambda x: torch.where(x > 0, x + 1, x.exp())}
    for name, activation in ACTIVATIONS.items():
        q, memory, pack_k, pack_q = (torch.zeros(1, 1, n, 16) for n in (401, 401, 401, 16))
        memory[..., 0], pack_k[..., 0], pack_q[..., 0] = 1.0, x, 4.0  # 16^-1/2
        slots = torch.arange(16)[None] > 0
        y = packed_prefix(q, memory, pack_k, pack_q, activation=activation, slot_mask=slots)[0, 0, :, 0]
        expected = exact[name](x.double()).cumsum(0) / torch.arange(1, 402)
        # an exponent of -70 has few digits behind the point; below -87 it gives 0
        torch.testing.assert_close(y.double(), expected, atol=1e-37, rtol=1e-5)


@pytest.mark.parametrize("length", [4096, 65536])
@pytest.mark.parametrize("shift", [0.0, 1.0])
def test_is_exact_over_many_tokens(monkeypatch, length, shift):
    q, memory, pack_k, pack_q = tensors(length, batch=1, heads=4, width=32, slots=32)
    leaves = [q, memory + shift, pack_k, pack_q]
    y, *gradients = relative_errors(monkeypatch, lambda *x: packed_prefix(*x, activation=SOFTPLUS), leaves)
    assert y <= 1e-6
    assert max(gradients) <= 2e-6


def test_reads_any_layout(monkeypatch):
    monkeypatch.setenv(native.SWITCH, "1")
    leaves = in_single(tensors(100, width=16, slots=16, untied=True))
    expected = passes(leaves)

    def moved(x):
        return x.detach().transpose(1, 2).contiguous().transpose(1, 2).requires_grad_()

    def in_columns(x):
        return x.detach().mT.contiguous().mT.requires_grad_()

    for change in (moved, in_columns):
        assert same(expected, passes([change(x) for x in leaves]))


def test_keeps_its_inputs_alone(monkeypatch):
    monkeypatch.setenv(native.SWITCH, "1")
    leaves, kept = in_single(tensors(200, width=16, slots=16)), []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.data_ptr()) or x, lambda x: x):
        packed_prefix(*leaves, activation=SOFTPLUS)
    assert kept == [x.data_ptr() for x in leaves]


def test_what_it_does_not_take_goes_through_torch(monkeypatch):
    """Unsupported: slots that are not whole vectors, float64, and dropout of everything."""
    leaves = in_single(tensors(60, width=16, slots=16))
    for share in (0.3, 1.0):
        dropped = []
        for switch in "01":
            monkeypatch.setenv(native.SWITCH, switch)
            torch.manual_seed(0)
            dropped.append(passes(leaves, dropout=share))
        if share == 1.0:
            assert same(*dropped)
        for a, b in zip(*dropped, strict=True):  # supported dropout has the same masks and other roundings
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    odd = in_single(tensors(60, width=16, slots=5))
    exact = definition(*(x.double() for x in odd), activation=SOFTPLUS)
    assert (packed_prefix(*odd, activation=SOFTPLUS) - exact).abs().max() <= 1e-6 * exact.abs().max()
