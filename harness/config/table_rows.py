"""What a row and a column of a published table run: `conf/table/<name>.yaml`, as sweeps and reports read it.

rows:
  Linformer: linformer                                           a model, under the table's protocol
  Luna-256: {model: luna, protocol: luna}                        under another protocol
  Luna-16: {model: luna, protocol: luna, set: {model.slots: 16}} the recipe with a setting of its own
  no attention: {model: no_cross, ours: true}                    a control, which the paper's table lacks
  vanilla: {model: vanilla, ours: true, columns: [ListOps]}      in these columns alone
  Llama: {model: vanilla_rope, set: {+backbone.norm_kind: rmsnorm}}  with a key that the recipe lacks
columns:
  ListOps, packed P: {task: lra/listops, metric: acc, set: {backbone.pooling: packed}}
  recall: {task: probe/recall, metric: acc, protocol: probe}     of a recipe that the rows do not name
every: [causal_self]     further rows: every model that has one of these patterns (`harness.config.every_model`)
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from omegaconf import OmegaConf

Settings = tuple[tuple[str, str], ...]  # (key, value as JSON), sorted by key


@dataclass(frozen=True)
class Row:
    """`set`: {key: value} on top of the recipe, part of what the paper means by the row. `columns` None: all."""

    model: str
    protocol: str
    set: Mapping[str, Any] = field(default_factory=dict)
    ours: bool = False
    columns: Sequence[str] | None = None


def has_cells(table: Mapping[str, Any]) -> bool:
    """Whether a table is one of cells: a `kind` says what else its numbers come from."""
    return "kind" not in table


def row(raw: Any, protocol: str) -> Row:
    """A row as it stands in the yaml. Raises TypeError for keys that a row does not have."""
    return Row(**{"protocol": protocol} | ({"model": raw} if isinstance(raw, str) else dict(raw)))


def row_hours(gpu_hours: float | Mapping[str, float], protocol: str) -> float:
    """GPU-hours of a row of this protocol, of a table that gives one number for all or one for each protocol."""
    return gpu_hours[protocol] if isinstance(gpu_hours, Mapping) else gpu_hours


def settings_key(settings: Mapping[str, Any]) -> Settings:
    """Settings in a form that can be compared, hashed and kept in a frame: sorted pairs of key and value as JSON."""
    by_key = {key.lstrip("+"): value for key, value in settings.items()}  # + adds a key that the recipe lacks
    return tuple((key, json.dumps(plain(value), sort_keys=True)) for key, value in sorted(by_key.items()))


def format_settings(pairs: Iterable[tuple[str, str]]) -> str:
    """`backbone.layers=12, backbone.pooling=packed` for a reader; strings stand without quotes."""
    return ", ".join(f"{key}={shown(value)}" for key, value in pairs)


def shown(value: str) -> str:
    decoded = json.loads(value)
    return decoded if isinstance(decoded, str) else value


def plain(value: Any) -> Any:
    return OmegaConf.to_container(value, resolve=True, enum_to_str=True) if OmegaConf.is_config(value) else value


def runs(places: Iterable[tuple[str, Mapping[str, Any]]]) -> int:
    """How many cells a row has for one seed: columns of one (task, settings) that differ in their metric are one."""
    return len({(task, settings_key(changes)) for task, changes in places})
