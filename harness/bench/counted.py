"""do=plan costs=true: what one update of a cell computes and keeps in memory, counted without data, memory or a GPU.

Tensors are on torch's meta device: operations compute shapes and no numbers, in the forms that models have for parallel
devices, and with fused softmax attention. The batch is a micro-batch of the recipe's longest sequences, as do=bench
makes it up. Memory: the most bytes of tensors that are alive at once in a pass in float32, and two more copies of the
weights, the states of Adam. Dropout is left out, and a value that a model reads counts as 1.
"""

import time
import weakref
from typing import Any

import torch
import torch.nn.functional as F
from omegaconf import DictConfig
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from harness.bench.recipe import RecipeModel, loss_of
from harness.config.build import on_meta
from harness.config.compose import copied
from harness.errors import UsageError, one_line
from harness.training.batches.loader import micro_batch_size, micro_batches

MOST_S = 60.0  # per cell
META = torch.device("meta")


class LateError(Exception):
    """A pass took longer than it may to be counted."""


class Fused(TorchFunctionMode):
    """Softmax attention by the kernel of GPUs that takes masks and dropout and keeps no matrix of weights."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        return fused(*args, **kwargs) if func is F.scaled_dot_product_attention else func(*args, **kwargs)


def fused(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0, is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:  # fmt: skip
    bias = None if attn_mask is None else attn_mask.to(q.dtype).expand(*q.shape[:-1], k.shape[-2])
    attend = torch.ops.aten._scaled_dot_product_efficient_attention
    return attend(q, k, v, bias, True, dropout_p, is_causal, scale=scale)[0]


class Alive(TorchDispatchMode):
    """`peak`: the most bytes of tensors that were alive at once. Raises LateError in the pass at `until`."""

    def __init__(self, until: float):
        super().__init__()
        self.until, self.now, self.peak, self.known = until, 0, 0, set()

    def add(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        if (key := storage._cdata) in self.known:
            return
        self.known.add(key)
        size = storage.nbytes()
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self.remove, key, size)

    def remove(self, key: int, size: int) -> None:
        self.known.discard(key)
        self.now -= size

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if time.monotonic() > self.until:
            raise LateError
        if func is torch.ops.aten._local_scalar_dense.default:  # a value that is read: fake tensors have none
            return 1.0 if args[0].is_floating_point() else 1
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, Tensor):
                self.add(leaf)
        return out


def cost_of(cfg: DictConfig, devices: int) -> str:
    """`1.2 TFLOP an update, 3.4 GB a device`, or why it is not counted."""
    train, cfg = cfg.train, copied(cfg)
    cfg.backbone.update({key: 0.0 for key in cfg.backbone if str(key).endswith("dropout")})  # masks need a device
    try:
        recipe, built = RecipeModel(cfg, META), on_meta(cfg)
        length, model = cfg.task[recipe.key], built.model.train()
        tokens = train.micro_batch_tokens or (train.batch_tokens or 0) // devices
        size = max(1, tokens // length) if train.batch_tokens else micro_batch_size(train, devices)
        batch = recipe.batch(built, length, size)
        alive, flops = Alive(time.monotonic() + MOST_S), FlopCounterMode(display=False)
        for tensor in (*model.parameters(), *model.buffers()):
            alive.add(tensor)
        weights = alive.now
        with Fused(), alive, flops:
            loss_of(built, batch).backward()
    except LateError:
        return f"not counted within {MOST_S:.0f} s"
    except Exception as error:  # tensors without values, which a model may ask for
        reason = (
            one_line(error) if isinstance(error, UsageError) else f"{type(error).__name__}: {one_line(error)[:120]}"
        )
        return f"not counted: {reason}"
    update = flops.get_total_flops() * micro_batches(train, devices) * devices
    return f"{update / 1e12:.3g} TFLOP an update, {(alive.peak + 2 * weights) / 1e9:.3g} GB a device"
