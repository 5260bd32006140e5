"""The attention layer of a causal task is probed before it trains: a layer that sees the future scores too well."""

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from harness.errors import UsageError
from models.attention.base import Attention, Pattern

LENGTH = 48  # tokens of the probe; the second half is replaced
LARGEST_CHANGE = 1e-3  # of an output, relative to the largest output, in the layer's own precision


def require_causal(model: nn.Module, settings: Mapping[str, Any]) -> None:
    """Raises UsageError if a layer's outputs change with later inputs. `settings`: those of the model.

    Random numbers are drawn as if there were no probe. A layer that does not run here, on a few tokens on the CPU, is
    not judged; `do=verify` checks more, in float64.
    """
    layer = next((module for module in model.modules() if isinstance(module, Attention)), None)
    if layer is None or layer.pattern is not Pattern.CAUSAL_SELF:
        return
    if Pattern.CAUSAL_SELF not in type(layer).patterns:
        return  # a published form that sees later tokens, which a setting of the model permits
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        try:
            change = relative_change(copy.deepcopy(layer).to("cpu").eval())
        except (RuntimeError, ValueError, TypeError, NotImplementedError, AttributeError):
            return  # training raises what is wrong with it, and says more
    if change > LARGEST_CHANGE:
        target = str(settings.get("_target_"))
        name = f"model={settings['name']}" if target.startswith("models.") else f"model=custom model._target_={target}"
        raise UsageError(
            f"model ({type(layer).__qualname__}): it sees the future, and the task is causal: of {LENGTH} tokens, the "
            f"first half changes by {100 * change:.2g} % with the second half (python run.py do=verify {name})"
        )


def relative_change(layer: Attention) -> float:
    """The largest change of an output of the first half when the second half changes, over the largest output."""
    length = min(LENGTH, layer.max_length or LENGTH)
    dtype = next((parameter.dtype for parameter in layer.parameters()), torch.float32)
    torch.default_generator.manual_seed(0)  # the CPU's alone, which the caller restores
    x, replacement = (torch.randn(1, length, layer.dim).to(dtype) for _ in range(2))
    outputs = []
    for tokens in (x, change_after_cut(x, replacement, length // 2)):
        torch.default_generator.manual_seed(0)  # layers with random features draw them again
        outputs.append(layer(tokens)[0][:, : length // 2].float())
    return max_difference(*outputs) / max(float(outputs[0].abs().max()), 1e-6)


def change_after_cut(x: Tensor, replacement: Tensor, cut: int) -> Tensor:
    """x (B, N, D) with the tokens from `cut` on replaced."""
    return torch.cat([x[:, :cut], replacement[:, cut:]], dim=1)


def max_difference(a: Tensor, b: Tensor) -> float:
    return float((a - b).detach().abs().max())
