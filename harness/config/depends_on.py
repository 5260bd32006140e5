"""`depends_on`: the cells to be done before another one.

An entry is a string of the overrides in which the first cell differs, or a mapping {cell: "<overrides>", weights:
[prefixes]}: the parameters below these prefixes then start from the chosen weights of the first cell.
"""

import shlex
from dataclasses import dataclass
from typing import Any

from harness.errors import UsageError


@dataclass(frozen=True)
class DependsOn:
    overrides: tuple[str, ...]
    weights: tuple[str, ...] = ()  # prefixes of parameter names


def parse_depends_on(entry: Any) -> DependsOn:
    """Raises UsageError for an entry that is neither form."""
    if isinstance(entry, str):
        return DependsOn(tuple(shlex.split(entry)))
    weights = entry.get("weights") if hasattr(entry, "get") else None
    well_formed = weights and not isinstance(weights, str) and set(entry) == {"cell", "weights"}
    if not well_formed or not isinstance(entry["cell"], str) or not all(isinstance(prefix, str) for prefix in weights):
        raise UsageError(
            f'depends_on: {entry} is neither "<overrides>" nor {{cell: "<overrides>", weights: [prefix, ...]}}'
        )
    return DependsOn(tuple(shlex.split(entry["cell"])), tuple(weights))
