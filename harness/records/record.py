"""The record: the JSON file that one cell leaves behind, and the only source of every table and figure.

One file per cell and no database, so a thousand jobs can write at once. A file is whole or it is not there: it is
written beside its place, flushed, then renamed. It is checked when written and again when read.

Units: seconds; memory in MiB (`peak_memory_mb`) and GiB (`memory_gb`); scores in the metric's own unit,
which is the one that papers print (accuracy in percent); times in ISO 8601. Numbers are finite: what is not known is
null, and only an unfinished cell (`status` other than `done`) may not know. `changed` holds, for every key that a user
set against the recipe, the recipe's value and the one used.
"""

import contextlib
import json
import math
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from harness.errors import UsageError, did_you_mean
from harness.records.atomic import write_atomic

SCHEMA_VERSION = 1


class RecordError(UsageError):
    """A record that does not hold to the schema. One line: file, key, what is wrong."""


@dataclass(frozen=True)
class Null:
    """Null is a value."""

    node: Any


@dataclass(frozen=True)
class Partial:
    """Null is a value as long as the cell is not done."""

    node: Any


@dataclass(frozen=True)
class Absent:
    """The key may be left out."""

    node: Any


@dataclass(frozen=True)
class Each:
    """A mapping with keys of its own choice; those in `named` must be there."""

    node: Any
    named: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Text:
    """A string that `holds` accepts; `what` says in words what it should be."""

    what: str
    holds: Callable[[str], bool]


def one_of(*words: str) -> Text:
    return Text(" | ".join(words), lambda text: text in words)


def matching(what: str, pattern: str) -> Text:
    return Text(what, lambda text: re.fullmatch(pattern, text) is not None)


def is_time(text: str) -> bool:
    with contextlib.suppress(ValueError):
        return bool(datetime.fromisoformat(text))
    return False


class AnyJson:
    """Whatever JSON can hold."""


TIME = Text("an ISO 8601 time", is_time)
HEX = matching("hexadecimal digits", r"[0-9a-f]+")
STATUS = one_of("done", "failed", "oom", "nan", "timeout", "preempted")
SCORES = Each(Partial(float), named={"n": int})  # n: examples scored
POINT = {"step": int, "val": SCORES, "test": Absent(SCORES)}

SCHEMA: dict[str, Any] = {
    "schema_version": int,
    "cell": {
        "id": HEX,
        "model": str,
        "task": str,
        "protocol": str,
        "budget": one_of("paper", "reduced", "smoke"),
        "seed": int,
    },
    "config": Each(AnyJson()),
    "changed": Each(AnyJson()),  # {key: [by the recipe, used]}: empty if the cell is what its names say
    "status": STATUS,
    "error": Null({"type": str, "message": str, "traceback": str}),
    "metrics": Partial({"best": Partial(POINT), "last": Partial(POINT)}),
    "metric": Partial({"name": str, "higher_is_better": bool}),
    "selection": {"rule": one_of("best_val", "last", "best_test"), "after_steps": int, "leak": bool},
    "baseline": Null({"name": str, "val": float, "test": float}),
    "evaluations": Absent(Each(AnyJson())),
    "artifacts": Absent(Each(str)),
    "tested_weights_sha256": Absent(Null(HEX)),
    "parameters": Partial({"total": int, "attention": int}),
    "steps": Partial(int),
    "tokens": Partial(int),
    "examples": Partial(int),
    "wall_s": Partial(float),
    "examples_per_s": Partial(float),
    "tokens_per_s": Partial(float),
    "peak_memory_mb": Partial(float),
    "hardware": {"device": str, "cpu": str, "cores": int, "memory_gb": float, "gpu": Null(str), "threads": int},
    "versions": Each(str, named={"python": str, "torch": str, "lightning": str, "longhaul": str}),
    "git": {"sha": Null(str), "dirty": bool},
    "data": {
        "source": matching("full | slice:<name> | synthetic | unknown", r"full|slice:.+|synthetic|unknown"),
        "fingerprint": str,
        "sizes": Each(int),
    },
    "update": Absent({"examples": int, "micro_batch_size": int, "devices": int}),
    "resumes": int,
    "weights_sha256": Null(HEX),
    "started": TIME,
    "finished": TIME,
}
# a JSON reader of another language may turn 3.0 into 3
ACCEPTED = {float: (float, int), int: (int,), str: (str,), bool: (bool,)}


def validate(record: Any) -> None:
    """Check a record against the schema and its own parts against each other. Raises RecordError."""
    if not isinstance(record, dict):
        raise RecordError(f"a record is a mapping, not {_kind(record)}")
    version = record.get("schema_version")
    if isinstance(version, int) and version != SCHEMA_VERSION:
        raise RecordError(f"schema_version: {version}; this Longhaul reads {SCHEMA_VERSION}")
    done = record.get("status") == "done"
    _check(SCHEMA, record, "", done)
    if done != (record["error"] is None):
        raise RecordError(f"error: {'not null' if done else 'null'}, with status {record['status']}")
    rule, leak = record["selection"]["rule"], record["selection"]["leak"]
    if rule == "best_test" and not leak:
        raise RecordError("selection.leak: false, but best_test selects on the test split")
    if not done:
        return
    if record["data"]["source"] == "unknown":
        raise RecordError("data.source: unknown, with status done")
    name = record["metric"]["name"]
    for point in ("best", "last"):
        if record["metrics"][point]["val"].get(name) is None:
            raise RecordError(f"metrics.{point}.val.{name}: missing, but metric.name is {name}")


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The record in a file. Raises RecordError, naming file and key, if it is none."""
    path = Path(path)
    try:
        record = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse)
    except (OSError, UnicodeDecodeError) as error:
        raise RecordError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    except json.JSONDecodeError as error:
        raise RecordError(f"{path}: line {error.lineno}: no JSON: {error.msg}; remove it and run its cell") from error
    except RecordError as error:
        raise RecordError(f"{path}: {error}") from error
    try:
        validate(record)
    except RecordError as error:
        raise RecordError(f"{path}: {error}") from error
    return record


def write(record: dict[str, Any], path: str | os.PathLike[str]) -> None:
    """Check a record and put it in its place; an older one there is replaced. Raises RecordError or OSError."""
    try:
        validate(record)
    except RecordError as error:
        raise RecordError(f"{path}: not written: {error}") from error
    write_atomic(path, json.dumps(record, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n")


def _check(node: Any, value: Any, key: str, done: bool) -> None:
    match node:
        case Null() | Partial() if value is None:
            if isinstance(node, Partial) and done:
                raise RecordError(f"{key}: null, with status done")
        case Null() | Partial() | Absent():
            _check(node.node, value, key, done)
        case Each():
            _mapping(value, key, node.named.keys())
            for name, inner in value.items():
                _check(node.named.get(name, node.node), inner, f"{key}.{name}", done)
        case dict():
            required = {name for name, inner in node.items() if not isinstance(inner, Absent)}
            _mapping(value, key, required, node.keys())
            for name, inner in value.items():
                _check(node[name], inner, f"{key}.{name}" if key else name, done)
        case Text():
            if not isinstance(value, str) or not node.holds(value):
                raise RecordError(f"{key}: {value!r} is not {node.what}")
        case AnyJson():
            _check_json(value, key)
        case type():
            # bool is an int to Python, not to a reader
            if not isinstance(value, ACCEPTED[node]) or (isinstance(value, bool) and node is not bool):
                raise RecordError(f"{key}: {node.__name__} expected, not {_kind(value)}")
            if isinstance(value, float) and not math.isfinite(value):
                raise RecordError(f"{key}: {value} is not a finite number")


def _mapping(value: Any, key: str, required: Any, known: Any = None) -> None:
    where = key or "record"
    if not isinstance(value, dict):
        raise RecordError(f"{where}: a mapping expected, not {_kind(value)}")
    if wrong := [name for name in value if not isinstance(name, str)]:
        raise RecordError(f"{where}: key {wrong[0]!r} is not a string")
    prefix = f"{key}." if key else ""
    if known is not None and (unknown := sorted(value.keys() - known)):
        raise RecordError(f"{prefix}{unknown[0]}: unknown key; {did_you_mean(unknown[0], known)}")
    if missing := sorted(required - value.keys()):
        raise RecordError(f"{prefix}{missing[0]}: missing")


def _check_json(value: Any, key: str) -> None:
    if isinstance(value, dict):
        _mapping(value, key, frozenset())
        for name, inner in value.items():
            _check_json(inner, f"{key}.{name}")
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            _check_json(inner, f"{key}[{place}]")
    elif isinstance(value, float):
        _check(float, value, key, False)
    elif value is not None and not isinstance(value, (str, int)):
        raise RecordError(f"{key}: JSON cannot hold {_kind(value)}")


def _kind(value: Any) -> str:
    return "null" if value is None else type(value).__name__


def _refuse(constant: str) -> None:
    raise RecordError(f"{constant} is not a finite number")
