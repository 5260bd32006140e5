"""Data cards: what a task's data are, where they come from, under which licence, and how they are split.

A card is an entry of `tasks/<package>/cards.yaml`, by the name of its task:

    data       what they are, and the source to cite
    origin     addresses, or how they are made
    licence    as stated by the source; `unknown: <where to look>` where none is known
    files      constants of the code that say what is fetched: a Download with its sha256, a data set of the hub with
               its revision, a set of TensorFlow Datasets. The name tasks.lra.text.ARCHIVE stands for its value
    examples   {split: number} as the default configuration of the task splits the published data
    size       of what, and anything else about sizes
    split      the rule
    tokens     what a model reads
    reduced    what `budget=reduced` reads in their place: "<task.source>: ..."

The harness knows no task by name, so a Download is known by its `sha256`, and a data set of the hub as a tuple that
begins with its name and revision. `python -m harness.config.data_cards` writes all cards to docs/data_cards.md.
"""

import functools
import importlib
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from harness.config.places import ROOT

FOLDER = ROOT / "tasks"
PAGE = ROOT / "docs" / "data_cards.md"
REFERENCE = "tasks."  # begins the name of a constant
WIDTH, INDENT = 110, 12  # of what is printed
HEAD = """# Data cards

What the data of each task are, where they come from, under which licence, and how they are split.
`python run.py do=list task=lra/text` prints one card. [data.md](data.md) says how to get the data, and
[decisions.md](decisions.md) what X and D numbers mean. The cards stand in `tasks/*/cards.yaml`, hashes and revisions in
the code that checks them. `python -m harness.config.data_cards` writes this page.
"""


@dataclass(frozen=True, kw_only=True)
class Card:
    """The keys are those of the module's docstring."""

    data: str
    origin: str | list[str]
    licence: str
    size: str
    split: str
    tokens: str
    reduced: str
    examples: Mapping[str, int] | None = None
    files: list[Any] = field(default_factory=list)

    def rows(self) -> Iterator[tuple[str, list[str]]]:
        """(title, lines) of all but `data`. Imports the modules that `files` and `origin` name."""
        yield "licence", [self.licence]
        origins = [self.origin] if isinstance(self.origin, str) else self.origin
        yield "from", [str(value(one)) if one.startswith(REFERENCE) else one for one in origins]
        if self.files:
            yield "files", [line for one in self.files for line in described(one)]
        counts = ", ".join(f"{number:,} {name}" for name, number in (self.examples or {}).items())
        yield "size", [f"{counts}: {self.size}" if counts else self.size]
        yield "split", [self.split]
        yield "tokens", [self.tokens]
        yield "reduced", [self.reduced]


@functools.cache
def cards() -> dict[str, Card]:
    """All cards, by task. Raises ValueError for an entry that is no card."""
    found: dict[str, Card] = {}
    for file in sorted(FOLDER.glob("*/cards.yaml")):
        for task, entry in yaml.safe_load(file.read_text(encoding="utf-8")).items():
            if task in found:
                raise ValueError(f"{file}: {task} has a second card")
            try:
                found[task] = Card(**entry)
            except TypeError as error:
                raise ValueError(f"{file}: {task}: {error}") from error
    return found


def value(reference: str) -> Any:
    """The constant that `tasks.module.NAME` names; after that, keys of dicts and attributes."""
    words = reference.split(".")
    module, rest = importlib.import_module(words[0]), words[1:]
    while rest:
        try:
            module = importlib.import_module(f"{module.__name__}.{rest[0]}")
        except ModuleNotFoundError:
            break
        rest = rest[1:]
    return functools.reduce(lambda one, name: one[name] if isinstance(one, dict) else getattr(one, name), rest, module)


def described(reference: Any) -> Iterator[str]:
    """A line for each file or data set that a constant, or a list of two for name and revision, stands for."""
    yield from lines_of(tuple(map(value, reference)) if isinstance(reference, list) else value(reference))


def lines_of(found: Any) -> Iterator[str]:
    if hasattr(found, "sha256"):
        yield f"{found.url} ({found.size:,} bytes, sha256 {found.sha256})"
    elif isinstance(found, str):
        yield f"TensorFlow Datasets {found}"
    elif isinstance(found, tuple) and len(found) > 1 and all(isinstance(one, str) for one in found[:2]):
        yield f"https://huggingface.co/datasets/{found[0]} (revision {found[1]})"
    else:
        for one in found.values() if isinstance(found, dict) else found:
            yield from lines_of(one)


def printed(task: str) -> str:
    """A card for the terminal. Raises KeyError for a task without one."""
    card = cards()[task]
    text = [card.data]
    for title, lines in card.rows():
        for number, line in enumerate(lines):
            begin = f"  {title if not number else '':<{INDENT - 2}}"
            wrapped = textwrap.wrap(line, WIDTH - INDENT, break_long_words=False, break_on_hyphens=False)
            text += [begin + wrapped[0], *(" " * INDENT + one for one in wrapped[1:])]
    return "\n".join(text)


def page() -> str:
    """docs/data_cards.md."""
    parts = [HEAD]
    for task, card in sorted(cards().items()):
        rows = [f"| {title} | {'<br>'.join(lines)} |" for title, lines in card.rows()]
        parts.append("\n".join([f"## {task}", "", f"{card.data}.", "", "| | |", "| --- | --- |", *rows, ""]))
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(PAGE)
