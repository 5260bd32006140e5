"""Selection of rows from a state: the sequences that continue, in order."""

from typing import Any

from torch import Tensor


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
