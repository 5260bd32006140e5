"""Compiled kernels with dropout: the masks of torch's forms, hence the same output and gradients; and their threads."""

import numpy as np
import pytest
import torch

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
from models.ops.packed_prefix import ACTIVATIONS, packed_prefix
from models.ops.running_softmax import running_softmax
from tests.helpers.kernels import compiled, relative_errors

pytestmark = [compiled, pytest.mark.slow]  # the first test compiles for a minute
SHARE = 0.3


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def seeded(function):
    """The function with the same seed of dropout at every call."""

    def call(*leaves):
        torch.manual_seed(11)
        return function(*leaves)

    return call


@pytest.mark.parametrize("seed", [0, 1, 12345, 2**31 - 1, 2**32 + 7, (1 << 40) + 3])
@pytest.mark.parametrize("share", [1e-7, 0.1, 0.5, 0.9, 1 - 1e-7])
def test_masks_are_those_of_numpys_generator(monkeypatch, seed, share):
    monkeypatch.setenv(native.SWITCH, "1")
    counts = [1, 31, 32, 33, 1000]
    masks = CompiledMasks.draw(native.load(), share, [seed + i for i in range(len(counts))], counts)
    bits = np.unpackbits(masks.bits.numpy(), bitorder="little")
    for i, (count, start) in enumerate(zip(counts, masks.starts.tolist(), strict=True)):
        expected = dropout_mask(torch.empty(count, dtype=torch.float64), share, seed + i)
        assert (bits[start : start + count] == (expected > 0).numpy()).all()
        assert expected.max() in (0, pytest.approx(masks.factor, rel=1e-15))


SHAPES = {  # (B, H, N, M, E, F)
    "one query": (2, 3, 1, 2, 16, 16),
    "rectangle": (2, 2, 20, 33, 16, 48),
    "many pairs": (40, 2, 7, 5, 16, 16),
    "several tiles": (1, 2, 1100, 1100, 32, 16),
    "short tiles": (1, 1, 20, 20000, 16, 16),
}


@pytest.mark.parametrize("kind", ["plain", "scale", "causal", "keys", "pairs"])
@pytest.mark.parametrize("shape", SHAPES)
def test_softmax_equals_its_form_in_torch(monkeypatch, shape, kind):
    batch, heads, queries, keys, width, value_width = SHAPES[shape]
    if kind == "causal":
        keys = queries
    options = {"scale": {"scale": 0.7}, "causal": {"causal": True}}.get(kind, {})
    if kind in ("keys", "pairs"):
        rows = (batch, 1, 1, keys) if kind == "keys" else (queries, keys)
        visible = torch.rand(rows, generator=torch.Generator().manual_seed(1)) > 0.4
        visible[..., 0] = True
        options = {"mask": visible}
    shapes = (queries, width), (keys, width), (keys, value_width)
    leaves = [random(batch, heads, *shape, seed=seed) for seed, shape in enumerate(shapes)]
    errors = relative_errors(monkeypatch, seeded(lambda *x: attention(*x, dropout=SHARE, **options)), leaves)
    assert max(errors) < 4e-6


@pytest.mark.parametrize("share", [0.0, SHARE])
@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_gaussian_kernel_equals_its_form_in_torch(monkeypatch, shape, padded, share):
    batch, heads, queries, keys, width, value_width = SHAPES[shape]
    shapes = (queries, width), (keys, width), (keys, value_width)
    leaves = [random(batch, heads, *shape, seed=seed) for seed, shape in enumerate(shapes)]
    hidden = torch.rand(batch, keys, generator=torch.Generator().manual_seed(1)) < 0.4
    options = {"key_padding_mask": hidden if padded else None, "dropout": share}
    errors = relative_errors(monkeypatch, seeded(lambda *x: kernelized(*x, **options)), leaves)
    assert max(errors) < 4e-6


@pytest.mark.parametrize("gain", [1e2, 1e4])
def test_large_scores_stay_finite(monkeypatch, gain):
    monkeypatch.setenv(native.SWITCH, "1")
    q, k, v = (random(1, 1, 100, 16, seed=seed).float().requires_grad_() for seed in range(3))
    y = attention(q * gain, k * gain, v, dropout=SHARE, causal=True)
    assert y.isfinite().all()
    assert all(x.isfinite().all() for x in torch.autograd.grad(y.sum(), (q, k, v)))


@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
@pytest.mark.parametrize(
    ("length", "left", "right", "width"),
    [(5, 2, 1, 32), (129, 15, 15, 16), (300, 255, 0, 64), (517, 100, 40, 32), (65, 170, 170, 16), (3000, 63, 63, 16)],
)
def test_the_band_equals_its_form_in_torch(monkeypatch, length, left, right, width, padded):
    hidden = torch.rand(3, length, generator=torch.Generator().manual_seed(2)) < 0.4
    hidden[2] = True
    leaves = [random(3, 2, length, width, seed=seed) for seed in range(3)] + [random(2, left + right + 1, seed=3)]

    def band(q, k, v, bias):
        options = {"bias": bias, "key_padding_mask": hidden if padded else None, "dropout": SHARE}
        return banded_attention(q, k, v, left=left, right=right, **options)

    assert max(relative_errors(monkeypatch, seeded(band), leaves)) < 4e-6


@pytest.mark.parametrize(
    ("length", "width", "bases", "window"),
    [(1, 16, 16, 4), (150, 32, 16, 7), (2500, 32, 32, 2500), (1300, 16, 16, 1), (5000, 16, 16, 300)],
)
def test_the_read_equals_its_form_in_torch(monkeypatch, length, width, bases, window):
    leaves = random(2, 3, length, width), random(2, 3, -(-length // window), bases, seed=1), random(3, bases, width)
    errors = relative_errors(monkeypatch, seeded(lambda *x: read(*x, window=window, dropout=SHARE)), leaves)
    assert max(errors) < 4e-6


@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
@pytest.mark.parametrize("untied", [False, True], ids=["tied", "untied"])
@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize(("length", "slots"), [(1, 16), (129, 32), (1000, 48)])
def test_slots_equal_their_form_in_torch(monkeypatch, length, slots, name, untied, padded):
    hidden = torch.rand(3, length, generator=torch.Generator().manual_seed(2)) < 0.4
    shapes = (length, 16), (length, 32 if untied else 16), (length, 16), (slots, 16)
    leaves = [random(3, 2, *shape, seed=seed) for seed, shape in enumerate(shapes)]
    options = {"activation": ACTIVATIONS[name], "key_padding_mask": hidden if padded else None, "dropout": SHARE}
    assert max(relative_errors(monkeypatch, seeded(lambda *x: packed_prefix(*x, **options)), leaves)) < 4e-6


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
    x = random(2, 256, 64).float()
    outcomes = []
    for switch in "01":
        monkeypatch.setenv(native.SWITCH, switch)
        torch.manual_seed(5)
        with torch.profiler.profile() as profile:
            y, _ = layer(x)
            gradients = torch.autograd.grad(y.square().sum(), list(layer.parameters()), allow_unused=True)
        operators = {event.key for event in profile.key_averages()}
        wanted = {f"longhaul::softmax_lse_{way}" for way in ("forward", "backward")}
        assert (wanted <= operators) == (switch == "1")
        outcomes.append([y, *(g for g in gradients if g is not None)])
    largest = max(x.abs().max().item() for x in outcomes[0])  # the gradient of a key's bias is 0 but for rounding
    for a, b in zip(*outcomes, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5 * largest)


@pytest.mark.parametrize("dropout", [0.0, SHARE])
def test_threads_change_nothing(monkeypatch, dropout):
    """Only the shape determines the runs of blocks, and their sums into common keys have a fixed order."""
    monkeypatch.setenv(native.SWITCH, "1")
    q, k, v = (random(2, 3, 700, 16, seed=seed).float().requires_grad_() for seed in range(3))
    memory, bases = (random(*shape).float().requires_grad_() for shape in ((2, 3, 7, 16), (3, 16, 16)))
    calls = {
        "softmax": (lambda: attention(q, k, v, dropout=dropout, causal=True), (q, k, v)),
        "kernel": (lambda: kernelized(q, k, v, dropout=dropout), (q, k, v)),
        "band": (lambda: banded_attention(q, k, v, left=63, right=0, dropout=dropout), (q, k, v)),
        "slots": (
            lambda: packed_prefix(q, k, v, k[:, :, :16], activation=ACTIVATIONS["elu"], dropout=dropout),
            (q, k, v),
        ),
        "read": (lambda: read(q, memory, bases, window=100, dropout=dropout), (q, memory)),
    }
    if not dropout:
        calls["running softmax"] = lambda: running_softmax(q.softmax(-1), k, v), (q, k, v)
    threads = torch.get_num_threads()
    for name, (call, leaves) in calls.items():
        outcomes = []
        try:
            for number in (1, 1, 2, 4):
                torch.set_num_threads(number)
                torch.manual_seed(3)
                y = call()
                outcomes.append([y, *torch.autograd.grad(y.square().sum(), leaves)])
        finally:
            torch.set_num_threads(threads)
        for other in outcomes[1:]:
            assert all(map(torch.equal, outcomes[0], other)), name


def test_strided_heads_and_gradients_are_read_where_they_lie(monkeypatch):
    """Heads of one projection, and a gradient that is one number."""
    leaves = [random(2, 150, 3, 32, seed=seed) for seed in range(3)]
    for function in (attention, kernelized):

        def heads(*leaves, function=function):
            return function(*(x.transpose(1, 2) for x in leaves), dropout=SHARE).sum().view(1)

        assert max(relative_errors(monkeypatch, seeded(heads), leaves)) < 1e-5


def test_what_kernels_do_not_take_keeps_its_form(monkeypatch):
    """Other widths, float64, and a share of 1."""
    cases = [(random(1, 2, 40, 12).float(), 0.3), (random(1, 2, 40, 16), 0.3), (random(1, 2, 40, 16).float(), 1.0)]
    for x, share in cases:
        outcomes = []
        for switch in "01":
            monkeypatch.setenv(native.SWITCH, switch)
            torch.manual_seed(0)
            outcomes.append(
                (attention(x, x, x, dropout=share), banded_attention(x, x, x, left=3, right=3, dropout=share))
            )
        assert all(map(torch.equal, *outcomes))
        assert share < 1 or all((y == 0).all() for y in outcomes[1])
