"""Hostile tables and figures: every key of the schema of every kind, with values that no author means."""

import copy
import random
from collections.abc import Iterator, Sequence
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel

from harness.report.spec_files import FIGURES, TABLES

Key = tuple[str | int, ...]
NESTED: dict[str, Any] = {"a": {"b": {"c": [[[{"d": 1}]]]}}}
ABSENT = object()
VALUES: dict[str, Any] = {
    "null": None, "true": True, "zero": 0, "one": 1, "negative": -1, "huge": 10**30, "large": 90_000_000,
    "fraction": 0.5, "nan": float("nan"), "infinite": float("inf"), "text": "evil", "empty text": "",
    "long text": "x" * 100_000, "parent": "../../../etc/passwd", "absolute": "/etc/passwd", "control": "a\x1b[2J\nb",
    "formula": "1e999-1e999", "deep formula": "-" * 250 + "1", "power": "((9**16)**16)**16",
    "interpolation": "${oc.env:HOME}",
    "list": ["evil", 7], "numbers": [0, -1, 90_000_000], "long list": ["a"] * 9_000, "nested": NESTED, "empty": {},
    "empty list": [], "name": {"evil": "vanilla"}, "keys": {f"a{number}": {} for number in range(3_000)},
    "absent": ABSENT,
}  # fmt: skip
# small yamls of each kind, whose keys are changed
TABLES_OF_KIND = {
    "cells": "lavo/t11", "settings": "latte/t6", "formulas": "llp/t8", "counts": "llp/t6", "measured": "lavo/t10"
}  # fmt: skip
FIGURES_OF_KIND = {
    "lines": "lavo/f4", "measured": "latte/f8", "pending": "latte/f10", "picture": "lavo/f3"
}  # fmt: skip


def mutations(group: str, kind: str, raw: dict[str, Any]) -> Iterator[tuple[Key, str, dict[str, Any]]]:
    """(key, name of the value, content) of each key that the file or its schema has, with each value."""
    schema = (TABLES if group == "table" else FIGURES)[kind]
    for key in dict.fromkeys((*keys_of_schema(schema, raw), *keys_of_file(raw))):
        for name, value in VALUES.items():
            if (changed := with_value(raw, key, value)) is not None:
                yield key, name, changed


def keys_of_schema(schema: type[BaseModel], raw: Any, path: Key = ()) -> Iterator[Key]:
    """The path of each field of a schema: of a mapping's values in the first entry that the file has."""
    for name, field in schema.model_fields.items():
        key = field.alias or name
        yield (*path, key)
        value = raw.get(key) if isinstance(raw, dict) else None
        inner = [model for model in models_in(field.annotation) if model is not schema]
        if isinstance(value, dict) and value and inner and not is_model(field.annotation):
            first = next(iter(value))
            yield from keys_of_schema(inner[0], value[first], (*path, key, first))
        elif isinstance(value, list) and value and inner:
            yield from keys_of_schema(inner[0], value[0], (*path, key, 0))
        elif inner and not isinstance(value, str):
            yield from keys_of_schema(inner[0], value, (*path, key))


def is_model(annotation: Any) -> bool:
    if get_origin(annotation) in (Annotated, Union, UnionType):
        return any(map(is_model, get_args(annotation)))
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def models_in(annotation: Any) -> list[type[BaseModel]]:
    """The schemas that an annotation names at any depth."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    parts = getattr(annotation, "__args__", ())
    return [model for part in parts for model in models_in(part)]


def keys_of_file(raw: Any, path: Key = ()) -> Iterator[Key]:
    if path:
        yield path
    items = raw.items() if isinstance(raw, dict) else enumerate(raw[:1]) if isinstance(raw, list) else ()
    for key, value in items:
        yield from keys_of_file(value, (*path, key))


def with_value(raw: dict[str, Any], key: Key, value: Any) -> dict[str, Any] | None:
    """A copy with another value, or without the key if the value is ABSENT; None where the file has no such place."""
    changed = node = copy.deepcopy(raw)
    for step in key[:-1]:
        if isinstance(node, list) != isinstance(step, int):
            return None
        if isinstance(node, dict) and not isinstance(node.get(step), dict | list):
            node[step] = {"model": node[step]} if isinstance(node.get(step), str) else {}
        node = node[step]
    if isinstance(node, list) != isinstance(key[-1], int) or (value is ABSENT and key[-1] not in node):
        return None
    if value is ABSENT:
        del node[key[-1]]
    else:
        node[key[-1]] = value
    return changed


def drawn(items: Sequence[Any], number: int, seed: int) -> list[Any]:
    """Some of the items, in a random order that the seed gives."""
    return random.Random(seed).sample(list(items), min(number, len(items)))
