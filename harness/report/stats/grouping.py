"""Values by key."""

from collections.abc import Iterable
from typing import Any


def grouped(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, list[Any]]:
    """{key: its values}, both in the order of the pairs (key, value)."""
    groups: dict[Any, list[Any]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups
