"""What all states of decoding have in common: rows to select, numbers to count, and a model that does not train."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

# the dimension along which a cache has room for more tokens than the `seen` ones
TOKENS = {"k": 2, "v": 2, "log_gates": 2, "inputs": 3, "taps": 3}


def take_rows(state: Any, rows: Tensor) -> Any:
    """The rows (R,), long, of a state: sequences may be dropped, reordered or repeated.

    `state` belongs to an attention or a backbone, or is part of such a state (`State` in models/attention/base.py). The
    result is a copy: both may be written to. Raises TypeError for any other object than tensors, ints, None and
    containers of these.
    """
    if isinstance(state, Tensor):
        if len(state) > 1 and state.stride(0) == 0:  # one row for all: no copy
            return state[:1].expand(len(rows), *state.shape[1:])
        return state.index_select(0, rows)
    if isinstance(state, dict):
        return {name: take_rows(part, rows) for name, part in state.items()}
    if isinstance(state, list | tuple):
        parts = [take_rows(part, rows) for part in state]
        return type(state)(*parts) if hasattr(state, "_fields") else type(state)(parts)
    if state is None or isinstance(state, int):
        return state
    raise TypeError(f"a state is made of tensors, ints and None, not of {type(state).__name__}")


def numbers_kept(state: Any) -> int:
    """How many numbers of a state hold something that was read; room in its caches for more tokens does not count."""
    if isinstance(state, list | tuple):
        return sum(map(numbers_kept, state))
    if not isinstance(state, dict):
        return state.numel() if isinstance(state, Tensor) else 0
    seen, total = state.get("seen"), 0
    for name, part in state.items():
        if isinstance(part, Tensor) and isinstance(seen, int) and name in TOKENS:
            part = part.narrow(TOKENS[name], 0, min(seen, part.shape[TOKENS[name]]))
        total += numbers_kept(part)
    return total


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Context without gradients and dropout; it restores the model's mode."""
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(training)
