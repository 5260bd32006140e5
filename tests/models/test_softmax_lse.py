"""Attention with the logarithm of its sums: by torch's kernels and by tiles, against the definition."""

import pytest
import torch

from models.ops import softmax_lse as layer
from models.ops.softmax_lse import Visible, softmax_lse, softmax_lse_backward
from models.ops.tiles import TileBudget

PATHS = ("kernel", "tiles")


@pytest.fixture(params=PATHS)
def path(request, monkeypatch):
    if request.param == "tiles":
        monkeypatch.setattr(layer, "_cpu_kernel_fits", lambda q, visible: False)
        monkeypatch.setattr(layer, "TILE", TileBudget(200, 200))
    return request.param


def tensors(length=23, dtype=torch.float64, width=8):
    """Queries, keys, values and a cotangent with heads as an inner dimension, as projections return them."""
    generator = torch.Generator().manual_seed(0)
    tensors = torch.randn(4, 2, length, 3, width, generator=generator, dtype=torch.float64).to(dtype)
    return [x.transpose(1, 2) for x in tensors]


def definition(q, k, v, visible):
    scores = q @ k.mT * q.shape[-1] ** -0.5
    if visible.causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), float("-inf"))
    if visible.hidden is not None:
        scores = scores.masked_fill(visible.hidden[:, None, None], float("-inf"))
    return scores.softmax(-1) @ v, scores.logsumexp(-1)


def hidden(length=23):
    """Padding on the right and in the middle."""
    position = torch.arange(length)
    return torch.stack([position >= 17, (position > 4) & (position < 9)])


def test_float16_scores_do_not_overflow(path):
    q, _, v, grad = (x.half() for x in tensors(width=64))
    q = 100 * q.sign() + q  # whose product with itself is 80,000 after the scale
    out, lse = softmax_lse(q, q, v, Visible(causal=True))
    exact, exact_lse = definition(*(x.double() for x in (q, q, v)), Visible(causal=True))
    assert (out.double() - exact).abs().max() <= 0.01
    assert ((lse.double() - exact_lse) / exact_lse).abs().max() <= 1e-6
    assert all(torch.isfinite(x).all() for x in softmax_lse_backward(grad, q, q, v, out, lse, Visible(causal=True)))


VISIBLE = [Visible(causal, mask) for causal in (False, True) for mask in (None, hidden())]


@pytest.mark.parametrize("visible", VISIBLE, ids=str)
def test_equals_its_definition(path, visible):
    *qkv, grad = tensors()
    leaves = [x.clone().requires_grad_() for x in qkv]
    out, lse = softmax_lse(*qkv, visible)
    expected, expected_lse = definition(*leaves, visible)
    torch.testing.assert_close(out, expected, atol=1e-13, rtol=0)
    torch.testing.assert_close(lse, expected_lse, atol=1e-13, rtol=0)
    gradients = softmax_lse_backward(grad, *qkv, out, lse, visible)
    torch.testing.assert_close(gradients, torch.autograd.grad(expected, leaves, grad), atol=1e-12, rtol=0)


def test_backward_converts_keys_and_values_as_forward_does(path):
    """Under autocast on a GPU queries had 16 bits and summaries of keys 32, which torch's kernel refuses."""
    q, k, v, grad = tensors(dtype=torch.float32)
    narrow = [x.bfloat16() for x in (q, k, v)]
    out, lse = softmax_lse(narrow[0], k, v, Visible(False))
    gradients = softmax_lse_backward(grad.bfloat16(), narrow[0], k, v, out, lse, Visible(False))
    expected = softmax_lse_backward(grad.bfloat16(), *narrow, out, lse, Visible(False))
    for ours, theirs in zip(gradients, expected, strict=True):
        assert ours.dtype is torch.bfloat16
        assert torch.equal(ours, theirs)


def test_part_of_a_larger_softmax(path):
    """With o and l of all keys, backward returns the gradients of the given keys."""
    q, k, v, grad = tensors()
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    out, lse = definition(*leaves, Visible(False))
    theirs = torch.autograd.grad(out, leaves, grad)
    out, lse = out.detach(), lse.detach()
    parts = [
        softmax_lse_backward(grad, q, k[:, :, part], v[:, :, part], out, lse, Visible(False))
        for part in (slice(0, 9), slice(9, None))
    ]
    dq, dk, dv = zip(*parts, strict=True)
    torch.testing.assert_close((sum(dq), torch.cat(dk, 2), torch.cat(dv, 2)), theirs, atol=1e-12, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_narrow_types(path, dtype):
    *qkv, grad = tensors(dtype=dtype)
    visible = Visible(True, hidden())
    out, lse = softmax_lse(*qkv, visible)
    expected, expected_lse = definition(*(x.double() for x in qkv), visible)
    assert out.dtype is dtype
    assert lse.dtype is torch.float32
    bound = 2e-6 if dtype is torch.float32 else 2e-2
    assert (out - expected).abs().max() <= bound * expected.abs().max()
    assert (lse - expected_lse).abs().max() <= bound
    assert all(x.dtype is dtype for x in softmax_lse_backward(grad, *qkv, out, lse, visible))


def test_a_query_that_sees_nothing_is_finite(path):
    *qkv, grad = tensors()
    everything = Visible(True, torch.ones(2, 23, dtype=torch.bool))
    out, lse = softmax_lse(*qkv, everything)
    assert torch.isfinite(out).all()
    gradients = softmax_lse_backward(grad, *qkv, out, torch.full_like(lse, torch.finfo(lse.dtype).max), everything)
    assert all((x == 0).all() for x in gradients)


def test_dropout_drops_the_same_again(monkeypatch):
    monkeypatch.setattr(layer, "TILE", TileBudget(200, 200))
    q, k, _, _ = tensors(width=23)
    v = torch.eye(23, dtype=torch.float64).expand(2, 3, 23, 23)  # so that o is the weights
    first, lse = softmax_lse(q, k, v, Visible(True, dropout=0.25, seed=1))
    again, other = (softmax_lse(q, k, v, Visible(True, dropout=0.25, seed=seed))[0] for seed in (1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    weights, full_lse = softmax_lse(q, k, v, Visible(True))
    torch.testing.assert_close(lse, full_lse, atol=1e-13, rtol=0)
    kept = first != 0
    torch.testing.assert_close(first[kept], weights[kept] / 0.75, atol=1e-13, rtol=0)
    assert 0.2 < 1 - kept.sum() / (weights > 0).sum() < 0.3
    dv = softmax_lse_backward(first, q, k, v, first, lse, Visible(True, dropout=0.25, seed=1))[2]
    torch.testing.assert_close(dv, first.mT @ first, atol=1e-12, rtol=0)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_the_gpu_kernel_equals_the_tiles(monkeypatch):
    *qkv, grad = (x.cuda() for x in tensors(64, torch.bfloat16))
    results = []
    for _ in range(2):
        out, lse = softmax_lse(*qkv, Visible(True))
        results.append((out, lse, *softmax_lse_backward(grad, *qkv, out, lse, Visible(True))))
        monkeypatch.setattr(layer, "_cuda_kernel_fits", lambda q, visible: False)
    for ours, theirs in zip(*results, strict=True):
        assert (ours - theirs).abs().max() <= 0.02 * theirs.abs().max()
