"""Compiled kernels against torch's forms in float64, with the same masks of dropout, in any layout, by any threads."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
import torch
from drawn import draw
from memory import saved_for_backward
from same import gradients
from test_running_softmax import EXTREMES, passes, ramp, random_jumps, tensors, worst
from test_running_softmax import definition as running_softmax_definition
from torch import Tensor

from models.attention.bigbird import BigBird
from models.attention.kernelized import kernelized
from models.attention.lavo import read
from models.attention.llp import LLP
from models.attention.longnet import LongNet
from models.attention.luna import Luna
from models.attention.vanilla import Vanilla
from models.ops import native
from models.ops.attention import attention
from models.ops.banded import banded_attention
from models.ops.dropout import CompiledMasks, dropout_mask
from models.ops.packed_prefix import ACTIVATIONS, SOFTPLUS, packed_prefix
from models.ops.running_softmax import running_softmax
from tests.helpers.kernels import compiled, relative_errors

pytestmark = [compiled, pytest.mark.slow]  # the first test compiles for a minute
SHARE = 0.3


@pytest.fixture
def kernels(monkeypatch):
    monkeypatch.setenv(native.SWITCH, "1")


def hidden(batch, length, share=0.4):
    """Padded keys: none in the first row, the first half in the second, all in the last, some elsewhere."""
    mask = torch.rand(batch, length, generator=torch.Generator().manual_seed(1)) < share
    mask[0], mask[1, : length // 2], mask[-1] = False, True, True
    return mask


class Case(NamedTuple):
    name: str
    call: Callable[..., Tensor]  # of the leaves, and of `dropout` if it has one
    shapes: tuple[tuple[int, ...], ...]
    options: dict
    drops: bool = True

    def leaves(self):
        leaves = [draw(*shape, seed=seed) for seed, shape in enumerate(self.shapes)]
        if self.call is running_softmax:
            leaves[0] = leaves[0].softmax(-1)
        return leaves

    def __str__(self):
        return self.name


def qkv(batch, heads, queries, keys, width, value_width):
    return tuple((batch, heads, *shape) for shape in ((queries, width), (keys, width), (keys, value_width)))


SHAPES = {  # (B, H, N, M, E, F)
    "one query": (2, 3, 1, 2, 16, 16),
    "rectangle": (3, 2, 20, 33, 16, 48),
    "many pairs": (40, 2, 7, 5, 16, 16),
    "several tiles": (2, 2, 1100, 1100, 32, 16),
    "short tiles": (2, 1, 20, 20000, 16, 16),
}
CASES = []
for label, sizes in SHAPES.items():
    queries, keys = sizes[2:4]
    square = (*sizes[:3], queries, *sizes[4:])
    pairs = torch.rand(queries, keys, generator=torch.Generator().manual_seed(1)) > 0.4
    pairs[..., 0] = True
    seen = ~hidden(sizes[0], keys)[:, None, None]
    seen[..., 0] = True
    CASES += [
        Case(f"softmax, {label}", attention, qkv(*sizes), {}),
        Case(f"softmax with a scale, {label}", attention, qkv(*sizes), {"scale": 0.7}),
        Case(f"causal softmax, {label}", attention, qkv(*square), {"causal": True}),
        Case(f"softmax of some keys, {label}", attention, qkv(*sizes), {"mask": seen}),
        Case(f"softmax of some pairs, {label}", attention, qkv(*sizes), {"mask": pairs}),
        Case(f"kernel, {label}", kernelized, qkv(*sizes), {}),
        Case(f"kernel, padded, {label}", kernelized, qkv(*sizes), {"key_padding_mask": hidden(sizes[0], keys)}),
    ]


def band(q, k, v, bias=None, **options):
    return banded_attention(q, k, v, bias=bias, **options)


for length, left, right, width in [
    *((1, 3, 0, 16), (5, 2, 1, 32), (129, 15, 15, 16), (300, 255, 0, 64), (517, 100, 40, 32), (65, 170, 170, 16)),
    (3000, 63, 63, 16),
]:
    shapes, bias = ((3, 2, length, width),) * 3, ((2, left + right + 1),)
    options = {"left": left, "right": right}
    CASES += [
        Case(f"band, {length} {left} {right}", band, shapes, options),
        Case(f"band with a bias, {length} {left} {right}", band, shapes + bias, options),
        Case(f"band, padded, {length}", band, shapes + bias, options | {"key_padding_mask": hidden(3, length)}),
    ]
for length, width, bases, window in [
    *((1, 16, 16, 4), (150, 32, 16, 7), (1000, 64, 64, 256), (2500, 32, 32, 2500), (1300, 16, 16, 1)),
    (5000, 16, 16, 300),
]:
    shapes = (2, 3, length, width), (2, 3, -(-length // window), bases), (3, bases, width)
    CASES.append(Case(f"read, {length} {width} {bases} {window}", read, shapes, {"window": window}))
for length, slots, width, untied in [
    *((1, 16, 16, False), (2, 32, 32, True), (127, 48, 16, False), (129, 16, 48, True), (64, 16, 80, False)),
    (8192, 32, 32, False),
]:
    shapes = (length, width), (length, width * (1 + untied)), (length, width), (slots, width)
    shapes = tuple((3, 2, *shape) for shape in shapes)
    unread = torch.arange(slots) >= torch.tensor([[1], [slots // 2], [slots]])
    for name, activation in ACTIVATIONS.items():
        options = {"activation": activation}
        padded = options | {"key_padding_mask": hidden(3, length), "slot_mask": unread}
        CASES += [
            Case(f"{name} slots, {length} {slots} {width}", packed_prefix, shapes, options),
            Case(f"{name} slots, padded and unread, {length} {slots} {width}", packed_prefix, shapes, padded),
        ]
for length, latents, width in ((1, 16, 16), (2, 48, 32), (63, 16, 80), (127, 48, 32), (129, 16, 16), (8192, 16, 16)):
    shapes = tuple((3, 2, length, size) for size in (latents, latents, width))
    padded = {"key_padding_mask": hidden(3, length)}
    CASES += [
        Case(f"running softmax, {length} {latents} {width}", running_softmax, shapes, {}, False),
        Case(f"running softmax, padded, {length} {latents} {width}", running_softmax, shapes, padded, False),
    ]
LONG = ((1, 1, 65536, 16),) * 3
CASES += [
    Case("running softmax, 65536", running_softmax, LONG, {}, False),
    Case("softplus slots, 65536", packed_prefix, (*LONG, (1, 1, 16, 16)), {"activation": SOFTPLUS}, False),
]
# one of each operator, of a hundred tokens or so
SMALL = [
    case for case in CASES if case.name.endswith(("rectangle", "129 15 15", "150 32 16 7", "127 48 16", "127 48 32"))
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_equals_its_form_in_torch(monkeypatch, case):
    for dropout in (0.0, SHARE) if case.drops else (0.0,):
        options = case.options | ({"dropout": dropout} if case.drops else {})
        assert max(relative_errors(monkeypatch, seeded(case.call, options), case.leaves())) < 5e-6


def seeded(function, options):
    """The function with these options and the same seed of dropout at every call."""

    def call(*leaves):
        torch.manual_seed(11)
        return function(*leaves, **options)

    return call


@pytest.mark.parametrize("seed", [0, 12345, 2**31 - 1, (1 << 40) + 3])
@pytest.mark.parametrize("share", [1e-7, 0.1, 0.9, 1 - 1e-7])
def test_masks_are_those_of_numpys_generator(kernels, seed, share):
    counts = [1, 31, 32, 33, 1000]
    masks = CompiledMasks.draw(native.load(), share, [seed + i for i in range(len(counts))], counts)
    bits = np.unpackbits(masks.bits.numpy(), bitorder="little")
    for i, (count, start) in enumerate(zip(counts, masks.starts.tolist(), strict=True)):
        expected = dropout_mask(torch.empty(count, dtype=torch.float64), share, seed + i)
        assert (bits[start : start + count] == (expected > 0).numpy()).all()
        assert expected.max() in (0, pytest.approx(masks.factor, rel=1e-15))


def results(case, leaves, **options):
    leaves = [x.detach().requires_grad_() for x in leaves]
    torch.manual_seed(3)
    y = case.call(*leaves, **case.options, **options)
    return [y, *gradients(y, leaves)]


# softmax attention without dropout is torch's
OWN = [(case, SHARE) for case in SMALL if case.drops] + [(case, 0.0) for case in SMALL if case.call is not attention]


@pytest.mark.parametrize(("case", "dropout"), OWN, ids=str)
def test_threads_layouts_and_leftovers_change_no_bit(kernels, case, dropout):
    """Only the shape determines the runs of blocks, and their sums into common keys have a fixed order."""
    options = {"dropout": dropout} if case.drops else {}
    leaves = [x.float() for x in case.leaves()]
    expected, threads = results(case, leaves, **options), torch.get_num_threads()
    try:
        for number in (1, 2, 4):
            torch.set_num_threads(number)
            assert all(map(torch.equal, expected, results(case, leaves, **options)))
    finally:
        torch.set_num_threads(threads)
    moved = [x.transpose(-3, -2).contiguous().transpose(-3, -2) if x.dim() == 4 else x for x in leaves]
    columns = [x.mT.contiguous().mT for x in leaves]
    sliced = [torch.cat([x[..., :1], x], -1)[..., 1:] for x in leaves]  # rows that are not aligned to vectors
    for other in (moved, columns, sliced):
        for a, b in zip(expected, results(case, other, **options), strict=True):
            torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("case", [case for case in SMALL if case.call in (running_softmax, packed_prefix)], ids=str)
def test_keeps_its_inputs_alone(kernels, case):
    leaves = [x.float().requires_grad_() for x in case.leaves()]
    kept = saved_for_backward(lambda: case.call(*leaves, **case.options))
    assert {x.data_ptr() for x in kept if x.is_floating_point()} == {x.data_ptr() for x in leaves}


@pytest.mark.parametrize("gain", [10.0, 1e4])
@pytest.mark.parametrize("case", SMALL, ids=str)
def test_large_scores_stay_finite(kernels, case, gain):
    first, second, *rest = (x.float() for x in case.leaves())
    scaled = [first, gain * second, *rest] if case.call is running_softmax else [gain * first, gain * second, *rest]
    assert all(x.isfinite().all() for x in results(case, scaled))


def test_activations_keep_the_digits_of_small_numbers(kernels):
    """With one of 16 slots read, only keys matter: y is the mean of the values with weights a."""
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


def in_single(leaves):
    return [x.detach().float() for x in leaves]


@pytest.mark.parametrize("extreme", EXTREMES)
def test_the_running_softmax_is_exact_for_extreme_logits(kernels, extreme):
    weights, theta, v = tensors(256, latents=48, width=16, spread=1.0)
    theta = torch.cat([EXTREMES[extreme](part) for part in theta.split(3, -1)], -1)
    inputs = in_single([weights / weights.sum(-1, keepdim=True), theta, v])
    exact = passes(running_softmax_definition, [x.double() for x in inputs])
    assert worst(passes(running_softmax, inputs), exact) <= 2e-6
    mask = hidden(2, 256)
    for wild in (ramp(theta, 3000), -ramp(theta, 3000), random_jumps(theta, 300)):
        outcome = passes(running_softmax, in_single([weights, wild, v]), key_padding_mask=mask)
        assert all(torch.isfinite(x).all() for x in outcome)


def test_hidden_keys_weigh_nothing_and_what_is_not_a_number_stays_one(kernels):
    leaves, mask = in_single(tensors(150, latents=16, width=16)), hidden(2, 150)
    outcome = passes(running_softmax, leaves, key_padding_mask=mask)
    leaves[2] = leaves[2].masked_fill(mask[:, None, :, None], float("nan"))
    again = passes(running_softmax, leaves, key_padding_mask=mask)
    assert all(torch.equal(a, b) for a, b in zip(outcome, again, strict=True))
    assert (outcome[0].masked_select((~mask).cumsum(1)[:, None, :, None] == 0) == 0).all()
    assert all((x.masked_select(mask[:, None, :, None]) == 0).all() for x in outcome[2:])
    weights, theta, v = in_single(tensors(100, latents=16, width=16))
    theta[0, 0, 70, 3] = float("nan")
    y = running_softmax(weights, theta, v)
    assert y[0, 0, 70:].isnan().all()
    assert y[0, 0, :70].isfinite().all() and y[0, 1].isfinite().all() and y[1].isfinite().all()


def test_large_tensors_are_written_past_the_caches_with_the_same_numbers(kernels):
    few = in_single(tensors(300, batch=1, heads=3, latents=16, width=16))
    many = [x.expand(80, -1, -1, -1) for x in few]  # above 2^20 numbers
    assert many[0].numel() > 2**20
    cotangent = draw(*few[2].shape, seed=9).float()
    few, many = ([x.detach().requires_grad_() for x in leaves] for leaves in (few, many))
    y, expected = running_softmax(*many), running_softmax(*few)
    ours = torch.autograd.grad(y, many, cotangent.expand_as(y))
    for a, b in zip([y, *ours], [expected, *torch.autograd.grad(expected, few, cotangent)], strict=True):
        assert torch.equal(a, b.expand_as(a))


LAYERS = {
    "vanilla": (Vanilla, "causal_self", {}),
    "luna": (Luna, "noncausal_self", {"slots": 16}),
    "bigbird": (BigBird, "noncausal_self", {"block": 16, "random_blocks": 1}),
    "longnet": (LongNet, "causal_self", {"segments": [64, 128], "ratios": [1, 2]}),
    "llp": (LLP, "causal_self", {"segment": 64}),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_train_alike_in_both_forms(monkeypatch, name):
    kind, pattern, options = LAYERS[name]
    torch.manual_seed(0)
    layer = kind(64, 2, pattern=pattern, max_length=256, dropout=0.2, **options).train()
    x = draw(2, 256, 64).float()
    outcomes = []
    for switch in "01":
        monkeypatch.setenv(native.SWITCH, switch)
        torch.manual_seed(5)
        with torch.profiler.profile() as profile:
            y, _ = layer(x)
            trained = torch.autograd.grad(y.square().sum(), list(layer.parameters()), allow_unused=True)
        operators = {event.key for event in profile.key_averages()}
        wanted = {f"longhaul::softmax_lse_{way}" for way in ("forward", "backward")}
        assert (wanted <= operators) == (switch == "1")
        outcomes.append([y, *(g for g in trained if g is not None)])
    largest = max(x.abs().max().item() for x in outcomes[0])  # the gradient of a key's bias is 0 but for rounding
    for a, b in zip(*outcomes, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5 * largest)


def test_what_kernels_do_not_take_keeps_its_form(monkeypatch):
    """Other widths, other slots, float64, torch.compile, and a share of 1."""
    cases = [(draw(1, 2, 40, 12).float(), 0.3), (draw(1, 2, 40, 16), 0.3), (draw(1, 2, 40, 16).float(), 1.0)]
    slots = draw(1, 2, 5, 16).float()
    for x, share in cases:
        outcomes = []
        for switch in "01":
            monkeypatch.setenv(native.SWITCH, switch)
            torch.manual_seed(0)
            outcomes.append((
                attention(x, x, x, dropout=share),
                banded_attention(x, x, x, left=3, right=3, dropout=share),
                packed_prefix(*(x,) * 4, activation=SOFTPLUS, dropout=share),
                packed_prefix(*(cases[2][0],) * 3, slots, activation=SOFTPLUS),
                running_softmax(x[..., :5].softmax(-1), x[..., :5], x),
            ))  # fmt: skip
        assert all(map(torch.equal, *outcomes))
        assert share < 1 or all((y == 0).all() for y in outcomes[1][:2])
    monkeypatch.setenv(native.SWITCH, "1")
    x = torch.zeros(1, 16)
    assert native.kernels(x) is not None and native.kernels(x.double()) is native.kernels(x[:, :8]) is None
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert native.kernels(x) is None, "torch.compile knows no form of these operators"
