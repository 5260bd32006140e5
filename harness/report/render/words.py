"""Lists, counts and ranges in sentences."""

from collections.abc import Iterable, Sequence
from typing import Any

from harness.errors import agreeing


def listed(names: Sequence[str], most: int | None = None) -> str:
    """`A, B and C`; of more names than `most` the first ones, and how many more."""
    if most is not None and len(names) > most:
        return f"{', '.join(names[: most - 1])} and {len(names) - most + 1} more"
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def joined(names: Iterable[str]) -> str:
    """`A, B`; with semicolons if a name has a comma."""
    names = list(names)
    return ("; " if any("," in name for name in names) else ", ").join(names)


def counted(number: int, one: str, many: str = "") -> str:
    """`1 row`, `3 rows`. `many`: the plural, by default with an s."""
    return f"{number} {agreeing(number, one, many or f'{one}s')}"


def span(ordered: Iterable[Any]) -> str:
    """`2`, `2 to 5`: the first and the last of these; empty for none."""
    texts = [str(item) for item in ordered]
    return " to ".join(dict.fromkeys((*texts[:1], *texts[-1:])))


def capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]
