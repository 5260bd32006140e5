"""Rows of a state: the sequences that go on, in their order."""

from typing import Any

from torch import Tensor


def take_rows(state: Any, rows: Tensor) -> Any:
    """The rows (R,), long, of a state: a sequence may be left out, moved, or taken many times.

    `state` is that of an attention or of a backbone, or a part of one (`State` in models/attention/base.py). What comes
    back is a copy: both may be written to. Raises TypeError for what is neither tensor, counter, None nor made of them.
    """
    if isinstance(state, Tensor):
        if len(state) > 1 and state.stride(0) == 0:  # one row for all: nothing is to be copied
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
