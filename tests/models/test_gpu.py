"""The same code on a GPU: float32 outputs and gradients equal the CPU's, bfloat16 is close, runs are reproducible."""

from functools import partial

import pytest
import torch
from zoo import CASES, build, inputs, padding, run

from benchmarks.gpu.models import SMALL, deterministic_kernels
from harness.config.compose import compose
from harness.training.callback import TrainingCallback
from harness.training.run_cell import run_cell
from tests.helpers.cells import request_of

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


@pytest.fixture
def no_wait():
    """A function after which an operation that makes the CPU wait for the GPU is an error."""
    yield lambda: torch.cuda.set_sync_debug_mode("error")
    torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize(("name", "pattern"), CASES)
def test_no_layer_waits(name, pattern, no_wait):
    model = build(name, pattern).cuda().train()
    x, context = (None if t is None else t.cuda() for t in inputs(pattern, 53))
    for constants_are_there in (False, True):
        if constants_are_there:
            no_wait()
        run(model, x.clone().requires_grad_(), context).sum().backward()


@pytest.mark.parametrize("model", ["lavo", "latte", "luna"])
def test_no_update_waits(model, no_wait, places, monkeypatch):
    """From the batch on the device to the new weights; the third update, when constants are there."""
    begin, end, steps = TrainingCallback.on_train_batch_start, TrainingCallback.on_train_batch_end, []

    def begun(self, trainer, *rest):
        begin(self, trainer, *rest)
        if trainer.global_step >= 2:
            no_wait()

    def ended(self, trainer, *rest):
        torch.cuda.set_sync_debug_mode("default")
        steps.append(trainer.global_step)
        end(self, trainer, *rest)

    monkeypatch.setattr(TrainingCallback, "on_train_batch_start", begun)
    monkeypatch.setattr(TrainingCallback, "on_train_batch_end", ended)
    words = [f"model={model}", "task=lra/listops", "budget=smoke", "resources.accelerator=gpu", "train.max_steps=4"]
    result = run_cell(request_of(compose([*words, *places])))
    assert result.state == "done" and steps == [1, 2, 3, 4], result.detail
