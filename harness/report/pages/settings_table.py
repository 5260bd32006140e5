"""A table of hyper-parameters: each printed one beside what our composed recipe has, and whether the two are the same.

A difference either has a footnote that explains it or is marked as unexplained. Nothing is trained or measured.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from harness.config.validation import parse
from harness.errors import UsageError
from harness.records import ledger
from harness.report.pages.settings_values import Ours, Recipes, csv_value, is_number, is_same, meaning
from harness.report.render.layout import TIDY_COLUMNS, Block, Section, Table, TableEntry
from harness.report.spec.parts import NamedBySpec, require_known
from harness.report.spec.settings import SettingsSpec

SAME, EXPLAINED, UNEXPLAINED = "same", "differs", "differs, unexplained"
ABSENT, WORDS = "not here", "in words"
TONES = {SAME: "good", EXPLAINED: "fair", UNEXPLAINED: "bad"}


@dataclass(frozen=True)
class Setting:
    """One printed setting. `ours`: None where we have no such setting, for the reason `why`, which of a design in words
    is what we say of ours."""

    row: str
    column: str
    printed: str
    ours: Ours | None
    verdict: str
    notes: tuple[str, ...]
    why: str = ""
    delta: float | None = None


def load(raw: dict[str, Any], paper_root: str | os.PathLike[str], read: object = None) -> "SettingsTable":
    """The table and what the ledger prints. Every printed entry has a row and a column here. Raises UsageError."""
    spec = parse(SettingsSpec, raw, "")
    entries = ledger.entries(spec.ledger, paper_root)
    require_known("rows", spec.rows, {entry["row"] for entry in entries})
    require_known("columns", spec.columns, {entry["column"] for entry in entries})
    require_known(f"{spec.ledger}.csv: rows", {entry["row"] for entry in entries}, spec.rows)
    require_known(f"{spec.ledger}.csv: columns", {entry["column"] for entry in entries}, spec.columns)
    published = {(entry["row"], entry["column"]): entry["value"] for entry in entries if entry["value"]}
    return SettingsTable(spec.model_copy(update={"published": published}))


@dataclass(frozen=True)
class SettingsTable(NamedBySpec):
    """A `harness.report.pages.kinds.TableWithoutCells`."""

    spec: SettingsSpec

    def settings(self) -> list[Setting]:
        """Row by row, in the order of the columns. Raises UsageError for a source that a recipe does not have."""
        recipes = Recipes()
        return [
            _setting(self.spec, row, column, recipes)
            for row in self.spec.rows
            for column in self.spec.columns
            if (row, column) in self.spec.published
        ]

    def page(self) -> Table:
        spec, found = self.spec, self.settings()
        if all(each.verdict == WORDS for each in found):
            blocks = tuple(_designs(spec, [each for each in found if each.column == name]) for name in spec.columns)
        else:
            blocks = tuple(_block(spec, row, [each for each in found if each.row == row]) for row in spec.rows)
        return Table(
            name=spec.name,
            title=spec.title,
            summary=_summary(found),
            sections=(Section("Printed, and composed at budget=paper", blocks),),
            caption=_caption(found),
            footnotes=tuple((note.id, note.text) for note in spec.footnotes),
            tidy=tuple(_tidy_row(spec, each) for each in found),
            answer=tuple(_answer(found)),
        )


def _setting(spec: SettingsSpec, row: str, column: str, recipes: Recipes) -> Setting:
    printed, source, notes = spec.published[row, column], spec.source(row, column), spec.notes(row, column)
    if source.absent is not None:
        return Setting(row, column, printed, None, ABSENT, notes, source.absent)
    if source.text is not None:
        return Setting(row, column, printed, _ours(spec, row, column, recipes), WORDS, notes, source.text)
    ours = _ours(spec, row, column, recipes)
    paper = meaning(printed, source)
    delta = ours.value - paper if is_number(ours.value) and is_number(paper) else None
    if is_same(paper, ours.value):
        return Setting(row, column, printed, ours, SAME, notes, delta=delta)
    return Setting(row, column, printed, ours, EXPLAINED if notes else UNEXPLAINED, notes, delta=delta)


def _ours(spec: SettingsSpec, row: str, column: str, recipes: Recipes) -> Ours:
    try:
        return recipes.ours(spec.source(row, column), spec.rows[row])
    except UsageError as error:
        raise UsageError(f"conf/table/{spec.name}.yaml: rows.{row}, {column}: {error}") from error


def _designs(spec: SettingsSpec, settings: list[Setting]) -> Block:
    """The classes that build what is printed in words. The words stand below, where they may be as long as they are."""
    rows = tuple((TableEntry(each.row, each.notes), TableEntry(each.ours.text)) for each in settings)
    lines = []
    for each in settings:
        lines += [f"{each.row}, printed: {each.printed}.", f"Ours: {each.why}. python run.py {spec.rows[each.row]}"]
    return Block(settings[0].column, tuple(map(TableEntry, ("model", "our class"))), rows, "ll", lines=tuple(lines))


def _block(spec: SettingsSpec, row: str, settings: list[Setting]) -> Block:
    """The settings of one recipe, a line each."""
    rows = []
    for each in settings:
        ours = TableEntry(each.ours.text) if each.ours else TableEntry("–", tone="muted")
        verdict = TableEntry(each.verdict, tone=TONES.get(each.verdict, "muted"))
        rows.append((TableEntry(each.column), TableEntry(each.printed, each.notes), ours, verdict))
    header = tuple(map(TableEntry, ("setting", "paper", "ours", "")))
    why: dict[str, list[str]] = {}
    for each in settings:
        if each.why:
            why.setdefault(each.why, []).append(each.column)
    lines = [f"Not here: {', '.join(columns)}: {reason}." for reason, columns in why.items()]
    lines.append(f"Our recipe: python run.py {spec.rows[row]}")
    return Block(row, header, tuple(rows), "llll", lines=tuple(lines))


def _summary(found: list[Setting]) -> str:
    """`91, ours beside 88 of them; 29 texts, ours beside 25 of them`"""
    numbers = [each for each in found if is_printed_number(each.printed)]
    texts = [each for each in found if each not in numbers]
    beside = [sum(each.ours is not None for each in part) for part in (numbers, texts)]
    start = f"{len(numbers)}, ours beside {beside[0]} of them" if numbers else "none"
    return f"{start}; {len(texts)} texts, ours beside {beside[1]} of them"


def is_printed_number(printed: str) -> bool:
    """As the ledger counts: `20K` and `(0.9,0.98)` are texts there."""
    value = ledger.number(printed)
    return value == value


def _answer(found: list[Setting]) -> Iterator[str]:
    """How many are the same, then each difference."""
    compared = [each for each in found if each.verdict in TONES]
    by_verdict = {verdict: [each for each in compared if each.verdict == verdict] for verdict in TONES}
    if compared:
        same, explained, unexplained = (len(by_verdict[verdict]) for verdict in TONES)
        yield (
            f"{same} of {len(compared)} printed settings are those of our recipes; {explained} differ and a footnote "
            f"says why; {unexplained} differ unexplained."
        )
    if words := sum(each.verdict == WORDS for each in found):
        yield f"{words} designs are printed in words; a class of ours builds each of them."
    if absent := sum(each.verdict == ABSENT for each in found):
        yield f"Without a counterpart here: {absent}, for reasons that stand below."
    rows = dict.fromkeys(each.row for each in found)
    for verdict, title in ((UNEXPLAINED, "Unexplained"), (EXPLAINED, "Different")):
        for row in rows:
            here = [each for each in by_verdict[verdict] if each.row == row]
            words = (f"{each.column} {each.printed}, ours {each.ours.text}{_ids(each)}" for each in here)
            if here:
                yield f"{title}, {row}: {'; '.join(words)}."


def _ids(setting: Setting) -> str:
    return f" [{', '.join(setting.notes)}]" if setting.notes else ""


def _caption(found: list[Setting]) -> tuple[str, ...]:
    if all(each.verdict == WORDS for each in found):
        return ("Ours is the class that the recipe builds, and what a test of it proves.",)
    return (
        "Ours is read from the composed configuration of the recipe at the paper's budget; nothing was trained for it.",
        "The same: equal in meaning. 20K is 20,000, 2^17 is 131,072, 0.0 for a limit is none; names of optimisers and "
        "schedules stand for the functions that they name; epochs are updates over the updates of an epoch.",
        "A footnote at a printed setting says why ours differs, or what is known of the print.",
    )


def _tidy_row(spec: SettingsSpec, each: Setting) -> dict[str, str]:
    number = each.delta is not None
    return dict.fromkeys(TIDY_COLUMNS, "") | {
        "paper": spec.paper,
        "table": spec.name,
        "row": each.row,
        "column": each.column,
        "budget": "paper",
        "source": "recipe",
        "paper_value": each.printed,
        "ours_mean": csv_value(each.ours) if each.ours else "",
        "delta": f"{each.delta:.12g}" if number else "",
        "verdict": each.verdict,
        "status": each.why or "composed",
        "notes": "; ".join(each.notes),
    }
