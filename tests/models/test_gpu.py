"""The same code on a GPU: float32 outputs and gradients equal the CPU's, bfloat16 is close, runs are reproducible."""

from functools import partial

import pytest
import torch
from zoo import CASES, build, inputs, padding, run

from benchmarks.gpu.models import SMALL, deterministic_kernels

ROUNDING = {"hyena": 1e-4}  # Fourier transforms of a GPU round differently: 3e-5 on an H200
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


def pass_through(name, pattern, device, *, autocast=False):
    """(output, gradient of x and of every parameter) on the CPU, in float32."""
    model = build(name, pattern).to(device)
    x, context = (None if t is None else t.to(device) for t in inputs(pattern, 53))
    mask = padding(2, 53 if context is None else context.shape[1], 9).to(device)
    x.requires_grad_()
    with torch.autocast(device, torch.bfloat16, enabled=autocast):
        y = run(model, x, context, key_padding_mask=mask)
    y.float().pow(2).sum().backward()
    results = [y, x.grad, *(p.grad for p in model.parameters() if p.grad is not None)]
    return [tensor.detach().float().cpu() for tensor in results]


@pytest.mark.parametrize(("name", "pattern"), CASES)
def test_float32_equals_the_cpu(name, pattern, monkeypatch):
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", False)
    (y, *gradients), (expected_y, *expected) = (pass_through(name, pattern, device) for device in ("cuda", "cpu"))
    # a gradient that is zero except for rounding has no digits to compare
    floor = SMALL * max(tensor.abs().max().item() for tensor in expected)
    share = ROUNDING.get(name, 1e-5)
    close = partial(torch.testing.assert_close, rtol=1e-4)
    close(y, expected_y, atol=share * max(1.0, expected_y.abs().max().item()))
    for ours, theirs in zip(gradients, expected, strict=True):
        close(ours, theirs, atol=share * max(1.0, theirs.abs().max().item(), floor))


@pytest.mark.parametrize(("name", "pattern"), CASES)
def test_bfloat16_is_close(name, pattern):
    rough, exact = (pass_through(name, pattern, "cuda", autocast=on)[0] for on in (True, False))
    assert (rough - exact).abs().max() <= 0.03 * exact.abs().max()


@pytest.mark.parametrize(("name", "pattern"), CASES)
def test_the_same_twice(name, pattern):
    with deterministic_kernels():
        first, second = pass_through(name, pattern, "cuda"), pass_through(name, pattern, "cuda")
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
