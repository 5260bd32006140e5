"""What a row and a column of a published table run: `conf/table/<name>.yaml`, as sweeps and reports read it.

rows:
  Linformer: linformer                                           a model, under the table's protocol
  Luna-16: {model: luna_16, protocol: luna}                      under another one
  LLP, 12 layers: {model: llp, set: {backbone.layers: 12}}       the recipe with something set
  no attention: {model: no_cross, ours: true}                    a control of ours, which the paper's table lacks
columns:
  ListOps, packed P: {task: lra/listops, metric: acc, set: {backbone.pooling: packed}}
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Row:
    """`set`: {key: value} on top of the recipe, part of what the paper means by the row."""

    model: str
    protocol: str
    set: Mapping[str, Any] = field(default_factory=dict)
    ours: bool = False


def row(raw: Any, protocol: str) -> Row:
    """A row as it stands in the yaml. Raises TypeError for keys that a row does not have."""
    return Row(**{"protocol": protocol} | ({"model": raw} if isinstance(raw, str) else dict(raw)))


def said(changes: Mapping[str, Any]) -> str:
    """`backbone.layers=12, backbone.pooling=packed`: settings in the order in which two of them can be compared."""
    return ", ".join(f"{key}={value}" for key, value in sorted(changes.items()))


def runs(places: Iterable[tuple[str, Mapping[str, Any]]]) -> int:
    """How many cells a row has for one seed: columns of one (task, settings) that differ in their metric are one."""
    return len({(task, said(changes)) for task, changes in places})
