"""The same code on a GPU: float32 outputs and gradients equal the CPU's, bfloat16 is close, runs are reproducible."""

import pytest
import torch
from zoo import CASES, build, inputs, padding, run

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
    ours, theirs = pass_through(name, pattern, "cuda"), pass_through(name, pattern, "cpu")
    # of the largest entry of all: a gradient that is zero except for rounding has no digits to compare, and Fourier
    # transforms round differently (Hyena: 5e-5 on an H200)
    largest = max(1.0, *(tensor.abs().max().item() for tensor in theirs))
    for our, their in zip(ours, theirs, strict=True):
        torch.testing.assert_close(our, their, rtol=1e-4, atol=1e-4 * largest)


@pytest.mark.parametrize(("name", "pattern"), CASES)
def test_bfloat16_is_close(name, pattern):
    rough, exact = (pass_through(name, pattern, "cuda", autocast=on)[0] for on in (True, False))
    assert (rough - exact).abs().max() <= 0.03 * exact.abs().max()


@pytest.mark.parametrize(("name", "pattern"), CASES)
def test_the_same_twice(name, pattern, monkeypatch):
    """With the deterministic kernels that training asks for: without them a gather's gradient is a sum in any order."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    before = torch.get_deterministic_debug_mode()
    torch.set_deterministic_debug_mode("warn")
    try:
        first, second = pass_through(name, pattern, "cuda"), pass_through(name, pattern, "cuda")
    finally:
        torch.set_deterministic_debug_mode(before)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
