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
every: [causal_self]     further rows: every model that has one of these patterns (`harness.config.sweep`)
"""

import functools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml
from omegaconf import OmegaConf

from harness.config.compose import file_of, options
from harness.errors import UsageError

YamlLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast, where yaml was built with it
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


def typed_name(label: str) -> str:
    """`Luna-16` -> `luna_16`"""
    return re.sub(r"[^a-z0-9]+", "_", label.lower()).strip("_")


@functools.cache
def row_named(name: str) -> tuple[str, Mapping[str, Any]] | None:
    """Model and settings of the row of a published table by the name that can be typed for it; None if there is none.

    Raises UsageError where tables mean different things by it.
    """
    meanings = [
        (*model_settings(value), table)
        for table, rows in published_rows()
        for label, value in rows.items()
        if typed_name(label) == name
    ]
    if not meanings:
        return None
    model, settings, _ = max(meanings, key=lambda meaning: len(meaning[1]))
    # a table whose recipe has the setting already does not name it
    if any(other != model or not fewer.items() <= settings.items() for other, fewer, _ in meanings):
        tables = ", ".join(dict.fromkeys(table for _, _, table in meanings))
        raise UsageError(f"model={name}: rows of {tables} differ; type the model and its settings")
    return model, settings


def published_rows() -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(table, its rows) of each table of cells or of measurements."""
    for table, _ in options("table"):
        if table != "all":  # which is no file
            raw = yaml.load(file_of("table", table).read_text(encoding="utf-8"), Loader=YamlLoader)
            if raw.get("kind", "measured") == "measured":
                yield table, raw.get("rows") or {}


def model_settings(value: Any) -> tuple[str, dict[str, Any]]:
    """What a row says of its model; its backbone and its runs are its table's."""
    if isinstance(value, Mapping):
        value = {key: entry for key, entry in value.items() if key != "runs"}
    named = row(value, "")
    return named.model, {key: setting for key, setting in named.set.items() if key.startswith("model.")}
