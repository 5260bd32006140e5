"""Cross entropy in slices of tokens: equal to torch's over all logits, with the memory of one slice."""

import contextlib
import itertools

import pytest
import torch
import torch.nn.functional as F
from memory import peak_allocated_mb
from zoo import few_kernels

from models.ops import cross_entropy
from models.ops.cross_entropy import linear_cross_entropy
from models.ops.precision import upcast
from models.ops.tiles import TileBudget

WIDTH, WORDS = 6, 11


def everything(hidden, weight, bias, targets, **options):
    """The same with all logits at once."""
    logits = F.linear(hidden, weight, bias)
    return F.cross_entropy(upcast(logits), targets, reduction="none", **options)


def arguments(tokens=13, *, dtype=torch.float64, bias=True, scale=1.0):
    generator = torch.Generator().manual_seed(0)
    hidden, weight, b = (
        (scale * torch.randn(*shape, generator=generator, dtype=torch.float64)).to(dtype).requires_grad_()
        for shape in ((tokens, WIDTH), (WORDS, WIDTH), (WORDS,))
    )
    targets = torch.randint(WORDS, (tokens,), generator=generator)
    targets[1], targets[-1] = -100, -100
    return hidden, weight, b if bias else None, targets


def with_gradients(function, hidden, weight, bias, targets, **options):
    """(losses, gradients) for incoming gradients that differ by token."""
    losses = function(hidden, weight, bias, targets, **options)
    cotangent = torch.arange(losses.numel(), dtype=losses.dtype).cos().view(losses.shape)
    leaves = [leaf for leaf in (hidden, weight, bias) if leaf is not None and leaf.requires_grad]
    return losses, torch.autograd.grad((losses * cotangent).sum(), leaves)


def check(arguments, atol, **options):
    ours, our_gradients = with_gradients(linear_cross_entropy, *arguments, **options)
    theirs, their_gradients = with_gradients(everything, *arguments, **options)
    assert ours.dtype is theirs.dtype
    torch.testing.assert_close(ours, theirs, atol=atol, rtol=atol)
    for a, b in zip(our_gradients, their_gradients, strict=True):
        assert a.dtype is b.dtype
        torch.testing.assert_close(a, b, atol=atol, rtol=atol)


@pytest.fixture(params=itertools.product([0.9, 3, 1000], [False, True]), ids=str)
def sliced(request, monkeypatch):
    """13 tokens in 13 slices smaller than the vocabulary, in 5 with a shorter last one, and in one; in both forms."""
    tokens, few = request.param
    monkeypatch.setattr(cross_entropy, "SLICE", TileBudget(int(tokens * WORDS), 1))
    with few_kernels() if few else contextlib.nullcontext():
        yield


@pytest.mark.usefixtures("sliced")
@pytest.mark.parametrize("bias", [True, False])
def test_equals_torch(bias):
    hidden, weight, b, targets = arguments(bias=bias)
    check((hidden, weight, b, targets), 1e-12)
    check((hidden, weight.detach(), b, targets), 1e-12)  # frozen
    check((hidden.detach(), weight, b, targets), 1e-12)
    with pytest.raises(ValueError, match=r"targets are \(12,\), hidden states \(13, 6\)"):
        linear_cross_entropy(hidden, weight, b, targets[1:])


@pytest.mark.usefixtures("sliced")
def test_any_leading_shape_and_any_ignored_index():
    hidden, weight, bias, _ = arguments(24)
    targets = torch.arange(24).view(2, 3, 4) % 7
    losses = linear_cross_entropy(hidden.view(2, 3, 4, WIDTH), weight, bias, targets, ignore_index=5)
    expected = everything(hidden, weight, bias, targets.flatten(), ignore_index=5)
    torch.testing.assert_close(losses, expected.view(2, 3, 4), atol=1e-12, rtol=0)
    assert torch.equal(losses == 0, targets == 5)
    part = linear_cross_entropy(hidden.view(4, 6, WIDTH)[:, -2:], weight, bias, targets.view(4, 6)[:, -2:])
    whole = everything(hidden, weight, bias, targets.flatten())
    torch.testing.assert_close(part, whole.view(4, 6)[:, -2:], atol=1e-12, rtol=0)
    assert linear_cross_entropy(hidden[:0], weight, bias, targets.flatten()[:0]).shape == (0,)


@pytest.mark.usefixtures("sliced")
def test_tied_weights_get_both_gradients():
    _, weight, bias, targets = arguments()
    inputs = torch.arange(13) % WORDS
    ours, theirs = (
        with_gradients(
            lambda _, w, b, t, f=f: f(torch.tanh(F.embedding(inputs, w)), w, b, t), None, weight, bias, targets
        )
        for f in (linear_cross_entropy, everything)
    )
    torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=0)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_under_autocast_it_is_what_the_head_computes(kind):
    """16-bit logits with a float32 softmax; a 16-bit softmax would change these losses by more than 0.001."""
    args = arguments(dtype=torch.float32, scale=2.0)
    exact = linear_cross_entropy(*args)
    with torch.autocast("cpu", kind):
        ours, our_gradients = with_gradients(linear_cross_entropy, *args)
        theirs, their_gradients = with_gradients(everything, *args)
    assert ours.dtype is torch.float32
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    assert (ours - exact).abs().max() > 1e-3
    for a, b in zip(our_gradients, their_gradients, strict=True):
        assert a.dtype is b.dtype is torch.float32
        assert (a - b).abs().max() <= 0.01 * b.abs().max()


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_a_model_of_16_bits(kind):
    args = arguments(dtype=kind)
    ours, gradients = with_gradients(linear_cross_entropy, *args)
    exact, expected = with_gradients(everything, *(x.detach().float().requires_grad_() for x in args[:3]), args[3])
    assert ours.dtype is torch.float32
    torch.testing.assert_close(ours, exact, atol=0.05, rtol=0)
    for a, b in zip(gradients, expected, strict=True):
        assert a.dtype is kind
        assert (a.float() - b).abs().max() <= 0.02 * b.abs().max()


def test_float32_stays_close_where_logits_are_far_apart():
    args = arguments(dtype=torch.float32, scale=100.0)
    wide = [x.detach().double().requires_grad_() for x in args[:3]]
    (ours, gradients), (exact, expected) = (
        with_gradients(linear_cross_entropy, *args),
        with_gradients(everything, *wide, args[3]),
    )
    assert exact.max() > 10_000
    for a, b in zip((ours, *gradients), (exact, *expected), strict=True):
        assert (a - b).abs().max() <= 1e-5 * b.abs().max()


@pytest.mark.parametrize("target", [WORDS, -1, -99, 2**40])
def test_a_target_outside_the_vocabulary_is_an_error(target):
    hidden, weight, bias, targets = arguments()
    targets[4] = target
    with pytest.raises(IndexError, match=f"target {target} is not in the vocabulary, 0 to 10"):
        linear_cross_entropy(hidden, weight, bias, targets)


def test_memory_is_that_of_a_slice(monkeypatch):
    assert cross_entropy.SLICE.cpu * 4 <= 2**26  # bytes
    monkeypatch.setattr(cross_entropy, "SLICE", TileBudget(2**20, 1))  # 4 MiB
    tokens, words = 1024, 2**13  # 32 MiB of logits
    leaves = torch.randn(tokens, 8, requires_grad=True), torch.randn(words, 8, requires_grad=True), None
    targets = torch.arange(tokens)

    def train(function):
        function(*leaves, targets).sum().backward()

    assert peak_allocated_mb(lambda: train(everything)) > 32
    assert peak_allocated_mb(lambda: train(linear_cross_entropy)) < 4 + 1
    with torch.autocast("cpu", torch.bfloat16):  # and once more in 16 bits
        assert peak_allocated_mb(lambda: train(linear_cross_entropy)) < 4 + 2 + 1
