"""Rows of the published tables by a name that can be typed: `luna_16` is the row Luna-16, a model with a setting."""

import functools
import re
from collections.abc import Mapping
from typing import Any

import yaml

from harness.config.compose import file_of, options
from harness.config.table_rows import row
from harness.errors import UsageError


def typed_name(label: str) -> str:
    """`Luna-16` -> `luna_16`"""
    return re.sub(r"[^a-z0-9]+", "_", label.lower()).strip("_")


@functools.cache
def row_named(name: str) -> tuple[str, Mapping[str, Any]] | None:
    """Model and settings of the row of a published table whose label is this name; None if there is none.

    Raises UsageError where tables mean different things by it.
    """
    found: dict[tuple[str, str], tuple[str, Mapping[str, Any], str]] = {}
    label = re.compile(rf"^ +{'[^a-z0-9]+'.join(map(re.escape, name.split('_')))}[^a-z0-9]*:", re.IGNORECASE | re.M)
    for table in (each for each, _ in options("table")):
        try:
            text = file_of("table", table).read_text(encoding="utf-8")
        except FileNotFoundError:
            continue  # `all` is no file
        if label.search(text) is None:
            continue
        raw = yaml.safe_load(text)
        if raw.get("kind", "measured") != "measured":
            continue
        for key, value in (raw.get("rows") or {}).items():
            if typed_name(key) == name:
                model, own = _model_settings(value)
                found[model, repr(sorted(own.items()))] = (model, own, table)
    if not found:
        return None
    model, own, _ = max(found.values(), key=lambda each: len(each[1]))
    # a table whose recipe has the setting already does not name it
    if any(other != model or not less.items() <= own.items() for other, less, _ in found.values()):
        tables = ", ".join(table for _, _, table in found.values())
        raise UsageError(f"model={name}: rows of {tables} differ; type the model and its settings")
    return model, own


def _model_settings(value: Any) -> tuple[str, dict[str, Any]]:
    """What a row says of its model; its backbone and its runs are its table's."""
    if isinstance(value, Mapping):
        value = {key: each for key, each in value.items() if key != "runs"}
    one = row(value, "")
    return one.model, {key: each for key, each in one.set.items() if key.startswith("model.")}
