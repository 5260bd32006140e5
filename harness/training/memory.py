"""Cells that do not fit into a device: layers that are computed twice, and the micro-batch that takes half as much."""

from typing import Any

from omegaconf import DictConfig
from torch import nn
from torch.utils.checkpoint import checkpoint

from harness.config.allowed import devices_of
from harness.errors import UsageError
from harness.training.batches.loader import micro_batch_size, micro_batches

SWITCH = "resources.checkpoint_layers"


def recompute_layers(model: nn.Module, resources: DictConfig) -> None:
    """With `resources.checkpoint_layers=true` the backward pass computes each layer again, with the same dropout masks.

    Loss and gradients are those of the plain pass; only the inputs of the layers are kept. Raises UsageError for a
    model without layers.
    """
    if not resources.checkpoint_layers:
        return
    layers = [module for module in model.modules() if getattr(module, "is_layer", False)]
    if not layers:
        raise UsageError(f"{SWITCH}=true: {type(model).__name__} has no layers to compute again")
    for layer in layers:
        layer.forward = Recomputed(layer, layer.forward)


class Recomputed:
    """The forward pass of a layer. Raises UsageError for one that changes its buffers: a second pass would as well."""

    def __init__(self, layer: nn.Module, forward: Any):
        self.layer, self.forward = layer, forward

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        if not self.layer.training:
            return self.forward(*inputs, **named)
        before = [buffer._version for buffer in self.layer.buffers()]
        outputs = checkpoint(self.forward, *inputs, use_reentrant=False, **named)
        if before != [buffer._version for buffer in self.layer.buffers()]:
            kind = type(self.layer).__name__
            raise UsageError(f"{SWITCH}=true: {kind} keeps statistics, which it would count twice; leave it out")
        return outputs


def smaller(cfg: DictConfig) -> str:
    """A setting with which the cell takes less memory, and the same updates: half the micro-batch, if there is one."""
    train, devices = cfg.train, devices_of(cfg)
    if train.batch_tokens:
        parts = micro_batches(train, devices)
        return f"train.micro_batch_tokens={max(1, train.batch_tokens // (2 * parts * devices))}"
    size, share = micro_batch_size(train, devices), train.batch_size // devices
    if halves := [part for part in range(1, size // 2 + 1) if share % part == 0]:
        return f"train.micro_batch_size={halves[-1]}"
    return f"{SWITCH}=true"
