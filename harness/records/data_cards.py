"""Data cards: the content, origin, licence and splits of each task's data.

`tasks/<package>/cards.yaml` maps the name of a task to its card:

    name       of the published data, in titles
    data       the content, and the source to cite
    origin     addresses, or how the data are made
    licence    as the source states it; `unknown: <where to look>` if it states none
    files      names of the constants that define the downloads, such as tasks.lra.text.ARCHIVE. Such a constant is a
               Download with its sha256, a data set of the Hugging Face hub with its revision, or a TensorFlow data set
    examples   {split: number} as the task's default configuration splits the published data
    size       the unit that `examples` counts, and other sizes
    split      the rule
    tokens     the model's inputs
    reduced    the data that `budget=reduced` reads instead: "<task.source>: ..."
    parts      {source in a record: how titles name these data}, where they are a part of the published data
    stand_ins  the same where they are other data. A value that is the name of a task stands for the part in its card
    complete   {source or fingerprint: name} of data that are all of the published data, or equal to them. The source
               `full` needs no entry
    checked    how the generator was compared with the published one, where the published data are generated
    evaluations  {corpus: name, parts, stand_ins} of evaluations on other corpora, named <corpus>_...
    rate_chosen_on  the model whose pilot runs chose the learning rate of `budget=reduced`, where docs/reduced.md
               has such runs

The harness has no list of tasks. It recognises a Download by its `sha256`, and a data set of the hub by a tuple that
begins with its name and revision. `python -m harness.records.data_cards` writes all cards to docs/data_cards.md.
"""

import functools
import importlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.config import yaml_files
from harness.config.places import ROOT

FOLDER = ROOT / "tasks"
PAGE = ROOT / "docs" / "data_cards.md"
REFERENCE = "tasks."  # begins the name of a constant
FULL = "full"  # source of the published data
HEAD = """# Data cards

The content, origin, licence and splits of each task's data. `python run.py do=list task=lra/text` prints one card.
[Tasks and data](tasks.md#sources-of-data) explains how to get the data,
and [decisions.md](decisions.md) the numbers D-n and X-n.

## Stand-ins

Titles and notes of a table name data that are not the published data as here.

| task | source | data |
| --- | --- | --- |
"""
FOOT = """\
The cards are in `tasks/*/cards.yaml`; hashes and revisions are in the code that checks them.
`python -m harness.records.data_cards` writes this page.
"""


@dataclass(frozen=True)
class DataName:
    """`name`: of the data that were read. `replaced`: names of the published data that they stand in for."""

    name: str
    replaced: tuple[str, ...] = ()

    def __str__(self) -> str:
        """`PG-19 bytes (in place of OpenWebText)`"""
        if not self.replaced:
            return self.name
        published = " and ".join(filter(None, [", ".join(self.replaced[:-1]), self.replaced[-1]]))
        return f"{self.name} (in place of {published})"


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """The names of data by their source; the module's docstring explains the keys."""

    name: str
    parts: Mapping[str, str] = field(default_factory=dict)
    stand_ins: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Card(Corpus):
    """The module's docstring explains the keys."""

    data: str
    origin: str | list[str]
    licence: str
    size: str
    split: str
    tokens: str
    reduced: str
    examples: Mapping[str, int] | None = None
    files: list[Any] = field(default_factory=list)
    evaluations: Mapping[str, Corpus] = field(default_factory=dict)
    complete: Mapping[str, str] = field(default_factory=dict)
    checked: str = ""
    rate_chosen_on: str = ""

    def rows(self) -> Iterator[tuple[str, list[str]]]:
        """(title, lines) of each key except `data`. Imports the modules that `files` and `origin` name."""
        yield "licence", [self.licence]
        origins = [self.origin] if isinstance(self.origin, str) else self.origin
        yield "from", [str(value(line)) if line.startswith(REFERENCE) else line for line in origins]
        if self.files:
            yield "files", [line for reference in self.files for line in described(reference)]
        counts = ", ".join(f"{number:,} {name}" for name, number in (self.examples or {}).items())
        yield "size", [f"{counts}: {self.size}" if counts else self.size]
        yield "split", [self.split]
        yield "tokens", [self.tokens]
        yield "reduced", [self.reduced]
        if self.checked:
            yield "generator", [self.checked]
        if self.rate_chosen_on:
            yield "rate", [f"of budget=reduced, chosen on {self.rate_chosen_on}"]

    def text(self) -> str:
        """The card in Markdown, without the name of its task."""
        parts = [f"{self.data}.", ""]
        for title, lines in self.rows():
            parts += [f"- **{title}**: {lines[0]}"] if len(lines) == 1 else [f"- **{title}**:"]
            parts += [f"    - {line}" for line in lines if len(lines) > 1]
        return "\n".join(parts)


@functools.cache
def cards() -> dict[str, Card]:
    """All cards, by task. Raises ValueError for an entry that is no card."""
    by_task: dict[str, Card] = {}
    for file in sorted(FOLDER.glob("*/cards.yaml")):
        for task, entry in yaml_files.read(file).items():
            if task in by_task:
                raise ValueError(f"{file}: {task} has a second card")
            try:
                corpora = {name: Corpus(**corpus) for name, corpus in entry.pop("evaluations", {}).items()}
                by_task[task] = Card(**entry, evaluations=corpora)
            except (TypeError, AttributeError) as error:
                raise ValueError(f"{file}: {task}: {error}") from error
    return by_task


def data_name(task: str, source: str, evaluation: str = "") -> DataName | None:
    """How titles name the data of a source: `slice:pg19_slice` of `lm/openwebtext` is PG-19 bytes.

    None for the published data, for a source that the card does not list, and for a task without a card.
    """
    if (card := cards().get(task)) is None:
        return None
    return _named(card.evaluations.get(evaluation.rpartition("_")[0], card), source)


def complete_name(task: str, source: str, fingerprint: str) -> str | None:
    """How pages name data that may be compared with a paper's: the published data, or what the card of the task calls
    complete. None for all other data."""
    complete = cards()[task].complete if task in cards() else {}
    return complete.get(fingerprint) or complete.get(source) or ("the published files" if source == FULL else None)


def _named(corpus: Corpus, source: str) -> DataName | None:
    if source in corpus.parts:
        return DataName(corpus.parts[source])
    if (stand_in := corpus.stand_ins.get(source)) is None:
        return None
    other = cards().get(stand_in)
    return DataName(other.parts[source] if other else stand_in, (corpus.name,))


def merged(names: Iterable[DataName]) -> list[DataName]:
    """One name for the same data in place of several: `generated series (in place of ETTh1 and ETTh2)`."""
    replaced: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        replaced.setdefault(name.name, []).extend(name.replaced)
    return [DataName(name, tuple(dict.fromkeys(others))) for name, others in replaced.items()]


def stand_ins() -> Iterator[tuple[str, str, DataName]]:
    """(task, or task and corpus; source; name) of all data that stand in for published data."""
    for task, card in sorted(cards().items()):
        corpora = {task: card} | {f"{task}, {name}": corpus for name, corpus in card.evaluations.items()}
        for title, corpus in corpora.items():
            for source in corpus.stand_ins:
                yield title, source, _named(corpus, source)


def value(reference: str) -> Any:
    """The constant `tasks.module.NAME`. Further words are keys of dicts or attributes: `tasks.module.NAME.key`."""
    words = reference.split(".")
    module, rest = importlib.import_module(words[0]), words[1:]
    while rest:
        try:
            module = importlib.import_module(f"{module.__name__}.{rest[0]}")
        except ModuleNotFoundError:
            break
        rest = rest[1:]
    return functools.reduce(
        lambda node, name: node[name] if isinstance(node, dict) else getattr(node, name), rest, module
    )


def described(reference: Any) -> Iterator[str]:
    """One line per file or data set of a constant, or of a list with the constants of a name and a revision."""
    yield from lines_of(tuple(map(value, reference)) if isinstance(reference, list) else value(reference))


def lines_of(source: Any) -> Iterator[str]:
    if hasattr(source, "sha256"):
        yield f"{source.url} ({source.size:,} bytes, sha256 {source.sha256})"
    elif isinstance(source, str):
        yield f"TensorFlow Datasets {source}"
    elif isinstance(source, tuple) and len(source) > 1 and all(isinstance(part, str) for part in source[:2]):
        yield f"https://huggingface.co/datasets/{source[0]} (revision {source[1]})"
    else:
        for part in source.values() if isinstance(source, dict) else source:
            yield from lines_of(part)


def page() -> str:
    """docs/data_cards.md."""
    parts = [HEAD.rstrip("\n"), *(f"| {task} | {source} | {name} |" for task, source, name in stand_ins()), ""]
    for task, card in sorted(cards().items()):
        parts += [f"## {task}", "", card.text(), ""]
    return "\n".join([*parts, FOOT])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(PAGE)
