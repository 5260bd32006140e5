"""The checks of do=verify on one attention layer, in float64.

A causal layer is checked by changing the future, a cross layer by changing other queries, all of them by changing what
is padded. `step` and `chunk` are compared with `forward`. Shapes: x and context (2, LENGTH, D).
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from models.attention.base import Attention

LENGTH, CUT, TOLERANCE = 96, 41, 1e-9


def leaks(layer: Attention) -> dict[str, float]:
    """{input that must not matter: the largest change of an output when it is changed}."""
    x, other = random_tokens(layer, 2), random_tokens(layer, 2)
    context = random_tokens(layer, 2) if layer.pattern.cross else None
    padding = (torch.arange(LENGTH) >= CUT).expand(2, -1)
    changed = change_after_cut(x, other)
    if context is not None:
        sources = (context, change_after_cut(context, other))
        padded = [layer(x, source, key_padding_mask=padding)[0] for source in sources]
        found = {"other queries": max_difference(*(layer(q, context)[0][:, :CUT] for q in (x, changed)))}
        return found | {"padding": max_difference(*padded)}
    found = {"padding": max_difference(*(layer(q, key_padding_mask=padding)[0][:, :CUT] for q in (x, changed)))}
    if layer.pattern.causal:
        y = layer(x)[0][:, :CUT]
        found["the future"] = max_difference(y, layer(changed)[0][:, :CUT])
        found["the total length"] = max_difference(y, layer(x[:, :CUT])[0])
    return found


@torch.no_grad()
def decoding_differences(layer: Attention) -> dict[str, float]:
    """{method: the largest difference of its outputs from those of `forward`} over LENGTH tokens.

    A cross layer reads a context with padding. The queries of noncausal_cross are one chunk: where they stand may
    matter. Not for noncausal_self, which does not decode.
    """
    x, given = random_tokens(layer, 1), {}
    if layer.pattern.cross:
        given = {"context": random_tokens(layer, 1), "key_padding_mask": (torch.arange(LENGTH) >= CUT)[None]}
    y, found = layer(x, **given)[0], {}
    if layer.pattern.causal:
        rows, state = [], layer.init_state(1, **given)
        for x_t in x.unbind(1):
            row, state = layer.step(x_t, state)
            rows.append(row)
        found["step"] = max_difference(torch.stack(rows, 1), y)
    parts, state = [], layer.init_state(1, **given)
    for chunk in x.split(CUT if layer.pattern.causal else LENGTH, 1):
        part, state = layer.chunk(chunk, state)
        parts.append(part)
    return found | {"chunk": max_difference(torch.cat(parts, 1), y)}


def random_tokens(layer: Attention, batch: int, length: int = LENGTH) -> Tensor:
    return torch.randn(batch, length, layer.dim, dtype=torch.double)


def change_after_cut(x: Tensor, other: Tensor) -> Tensor:
    return torch.cat([x[:, :CUT], other[:, CUT:]], dim=1)


def max_difference(a: Tensor, b: Tensor) -> float:
    return float((a - b).detach().abs().max())


def state_size(state: Any) -> int:
    """Numbers that a decoding state holds."""
    return sum(leaf.numel() for leaf in tree_leaves(state) if isinstance(leaf, Tensor))


def largest_layer_tensor(layer: Attention, length: int) -> int:
    """Numbers in the largest tensor of a forward and backward pass over `length` tokens."""
    x = random_tokens(layer, 1, length).requires_grad_()
    context = random_tokens(layer, 1, length) if layer.pattern.cross else None
    return largest_tensor(lambda: layer(x, context)[0].sum().backward())


def largest_tensor(call: Callable[[], object]) -> int:
    with LargestTensor() as mode:
        call()
    return mode.numel


class LargestTensor(TorchDispatchMode):
    """Records the numel of the largest tensor that any operation returns."""

    def __init__(self) -> None:
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.numel = max([self.numel, *(leaf.numel() for leaf in tree_leaves(out) if isinstance(leaf, Tensor))])
        return out
