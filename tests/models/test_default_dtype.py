"""Every model is built and runs where torch's default type is another one."""

import contextlib

import pytest
import torch
from zoo import CLASSES, DIM, HEADS, MAX_LENGTH, NAMES, in_chunks, load

# torch has no 16-bit QR decomposition for their initial values, or no complex numbers of 16 bits
WIDE = {"lavo", "performer", "performer_relu", "performer_skyformer", "rwkv4", "rwkv7", "s4d", "s5"}


@pytest.fixture(params=[torch.float64, torch.bfloat16], ids=str)
def dtype(request):
    torch.set_default_dtype(request.param)
    yield request.param
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("name", NAMES)
def test_trains_and_decodes_in_the_default_type(name, dtype):
    if dtype is torch.bfloat16 and name in WIDE:
        return
    for pattern in CLASSES[name].patterns:
        model = CLASSES[name](DIM, HEADS, pattern=pattern, max_length=MAX_LENGTH, **load(name)[1])
        x = torch.randn(2, 13, DIM, requires_grad=True)
        y = model(x, torch.randn(2, 13, DIM) if pattern.cross else None)[0]
        y.sum().backward()
        assert y.dtype == x.grad.dtype == dtype and x.grad.isfinite().all()
        if pattern == "causal_self":
            with contextlib.suppress(NotImplementedError), torch.no_grad():
                assert in_chunks(model, x, model.init_state(2), (5, 1, 7))[0].dtype == dtype
