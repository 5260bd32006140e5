"""Counts what a layer would do on a GPU, without one: kernels, waits of the CPU, copies to the device.

    python -m tests.helpers.fake_cuda.count guard.so 1024,16384 model ...     one line of JSON per form and length

`guard.so` is built from guard.cpp. It is loaded before torch, which looks for its hooks once, so this is a process of
its own. Tensors are fake (torch's FakeTensorMode): operations compute shapes and no numbers. A kernel is an operation
that is neither a view nor an allocation; fused attention counts as one kernel forward and two backward. A wait is an
operation whose result the CPU reads or whose shape depends on values. The second pass is counted, because constants are
copied to a device once; the first is forward alone.
"""

import ctypes
import importlib.util
import json
import sys
from collections import Counter
from pathlib import Path

ctypes.CDLL(str(Path(importlib.util.find_spec("torch").origin).parent / "lib" / "libtorch_cpu.so"), ctypes.RTLD_GLOBAL)
ctypes.CDLL(sys.argv[1])

import torch  # noqa: E402  (after its hooks)
import torch.nn.functional as F  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402

from benchmarks.gpu.models import LAYERS, VOCABULARY, Case, cases  # noqa: E402
from harness.config.compose import default_arguments  # noqa: E402
from harness.config.instantiate import instantiate  # noqa: E402
from models.ops.dropout import Masks  # noqa: E402

BATCH, DIM, HEADS = 1, 512, 8
NO_KERNEL = {"empty", "empty_like", "new_empty", "new_empty_strided", "empty_strided", "detach", "alias", "lift_fresh"}
NO_KERNEL |= {"_unsafe_view", "_reshape_alias", "is_same_size", "set_", "resize_", "detach_", "as_strided_"}
READS = {"_local_scalar_dense", "item", "is_nonzero"}  # the CPU reads a value
SIZES = {"nonzero", "masked_select", "unique_dim", "_unique2", "unique_consecutive", "bincount", "repeat_interleave"}
INDEX = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"}
MOST = 60_000  # kernels of a pass, after which it is not counted further


class Counted(TorchDispatchMode):
    """Counts `kernel`, `wait` and `copy` of the operations on the fake device."""

    def __init__(self):
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func._schema.name.removeprefix("aten::")
        if name in READS and args[0].device.type == "cuda":
            self.counts["wait"] += 1
            return 1.0 if args[0].is_floating_point() else 1
        if name in SIZES and args[0].device.type == "cuda":
            self.counts["wait"] += 1
        if name in INDEX:
            masks = [x for x in args[1] if x is not None and x.dtype is torch.bool and x.device.type == "cuda"]
            self.counts["wait"] += len(masks)
        out = func(*args, **(kwargs or {}))
        read = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        written = [x for x in tree_leaves(out) if isinstance(x, Tensor)]
        devices = {x.device.type for x in (*read, *written)}
        if "cuda" not in devices or func.is_view or name in NO_KERNEL or name.startswith("prim::"):
            return out
        # a number on the CPU travels with the launch
        if any(x.dim() or name in ("_to_copy", "copy_") for x in read if x.device.type == "cpu"):
            self.counts["copy"] += 1
        elif any(x.device.type == "cpu" for x in written):
            self.counts["wait"] += 1
        self.counts["kernel"] += 1
        if self.counts["kernel"] > MOST:
            raise OverflowError
        return out


class Fused(torch.autograd.Function):
    """Attention as a GPU's fused kernels compute it: no matrix of weights."""

    @staticmethod
    def forward(ctx, q, k, v, mask):
        ctx.save_for_backward(q, k, v, mask)
        return q.new_empty(*q.shape[:-1], v.shape[-1]).copy_(v[..., :1, :])

    @staticmethod
    def backward(ctx, grad):
        q, k, v, mask = ctx.saved_tensors
        dmask = torch.zeros_like(mask) if mask is not None and mask.is_floating_point() else None
        return torch.zeros_like(q), torch.zeros_like(k), v + 0.0, dmask


def fused_attention(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    return Fused.apply(q, k, v, attn_mask)


class FusedNorm(torch.autograd.Function):
    """RMSNorm as torch computes it on a GPU: one kernel, and one for each gradient."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x.new_empty(x.shape).copy_(x)

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        return grad * x, None if weight is None else torch.zeros_like(weight)


def fused_rms_norm(x, normalized_shape, weight=None, eps=None):
    return FusedNorm.apply(x.contiguous(), weight)


def without_generator(self, seed, device):
    self.words = self.generator = None


def faked(model: nn.Module, mode: FakeTensorMode) -> nn.Module:
    """The model with fake parameters and buffers on the device; what is no buffer stays, as in `model.to`."""
    for module in model.modules():
        for store in (module._parameters, module._buffers):
            for name, x in store.items():
                if x is not None:
                    fake = mode.from_tensor(x.detach()).to("cuda")
                    store[name] = nn.Parameter(fake, x.requires_grad) if isinstance(x, nn.Parameter) else fake
    return model


def counted(case: Case, length: int) -> dict[str, int | str]:
    """Counts of one forward and backward pass under bf16 autocast."""
    hyper = default_arguments(case.model)
    if case.pattern is None:
        sizes = {"vocab_size": VOCABULARY, "dim": DIM, "heads": HEADS, "ffn_dim": 2 * DIM, "layers": LAYERS}
        model = instantiate(hyper, "model", (), max_length=length, **sizes)
    else:
        model = instantiate(hyper, "model", (), DIM, HEADS, pattern=case.pattern.value, max_length=length)
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with mode:
        model = faked(model.train(), mode)
        shape = (BATCH, length) if case.pattern is None else (BATCH, length, DIM)
        for is_counted in (False, True):
            if case.pattern is None:
                inputs = [torch.zeros(shape, dtype=torch.int64, device="cuda")]
            else:
                count = 1 + case.pattern.cross
                inputs = [torch.empty(shape, device="cuda").requires_grad_() for _ in range(count)]
            with Counted() as watch:
                with torch.autocast("cuda", torch.bfloat16):
                    y = model(*inputs)
                y = y[0] if isinstance(y, tuple) else y
                if is_counted:
                    y.backward(torch.empty_like(y))
    return {key: watch.counts[key] for key in ("kernel", "wait", "copy")}


def main(lengths: str, names: list[str]) -> None:
    # in this process alone: torch's Python side finds no CUDA and no generator of its own
    F.scaled_dot_product_attention, Masks.__init__ = fused_attention, without_generator
    F.rms_norm = fused_rms_norm
    torch.cuda.amp.common.amp_definitely_not_available = lambda: False
    torch.cuda.is_bf16_supported = lambda *_: True
    torch.cuda.get_device_capability = lambda device=None: (9, 0)
    for case in cases(names):
        for length in map(int, lengths.split(",")):
            try:
                found = counted(case, length)
            except Exception as error:
                found = {"error": f"{type(error).__name__}: {error}".splitlines()[0][:200]}
            print(
                json.dumps({"form": f"{case.model} {case.pattern or 'decoder'}", "length": length, **found}), flush=True
            )


if __name__ == "__main__":
    main(sys.argv[2], sys.argv[3:])
