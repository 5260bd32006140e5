"""Printed settings, formulas and counts beside ours: the verdict on each, and the page of all of one table; and
how many printed numbers of each kind have ours beside them."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from harness.records import ledger
from harness.report.render.layout import Block, Section, Table, TableEntry, table_of, tidy_row
from harness.report.spec.parts import Kind, SpecWithFootnotes


class Verdict(StrEnum):
    """The verdict on our value beside a printed text or number. A footnote explains a difference."""

    SAME = "same"
    EXPLAINED = "differs"
    UNEXPLAINED = "differs, unexplained"
    ABSENT = "not here"
    IN_WORDS = "in words"

    @classmethod
    def of(cls, same: bool, notes: Sequence[str]) -> "Verdict":
        if same:
            return cls.SAME
        return cls.EXPLAINED if notes else cls.UNEXPLAINED

    @property
    def entry(self) -> TableEntry:
        return TableEntry(self.value, tone=TONES.get(self, "muted"))


TONES = {Verdict.SAME: "good", Verdict.EXPLAINED: "fair", Verdict.UNEXPLAINED: "bad"}  # verdicts of a comparison


@dataclass(frozen=True)
class Ours:
    """`value`: None where a setting is switched off. `text`: the value as the page shows it."""

    value: Any
    text: str

    @property
    def csv(self) -> str:
        """A number without separators, any other value as on the page."""
        is_float = is_number(self.value) and not isinstance(self.value, int)
        return f"{self.value:.12g}" if is_float else str(self.value) if is_number(self.value) else self.text


@dataclass(frozen=True)
class Printed:
    """One printed entry. `ours`: None without a counterpart here, for the reason `why`. For a design in words, `why`
    describes ours."""

    row: str
    column: str
    text: str
    ours: Ours | None
    verdict: Verdict
    notes: tuple[str, ...]
    why: str = ""
    delta: float | None = None


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_same(left: Any, right: Any) -> bool:
    """Equal, numbers up to rounding; `true` is no number."""
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(is_same, left, right))
    if is_number(left) and is_number(right):
        return math.isclose(left, right, rel_tol=1e-9)
    return type(left) is type(right) and left == right


def page_of(
    spec: SpecWithFootnotes,
    kind: Kind,
    title: str,
    blocks: Sequence[Block],
    entries: Sequence[Printed],
    caption: Sequence[str],
    *,
    source: str = "formula",
    status: str = "computed",
) -> Table:
    """The page of printed entries of one kind. `source`, `status`: of ours in the long CSV."""
    numbers = [entry for entry in entries if not math.isnan(ledger.number(entry.text))]
    texts = [entry for entry in entries if entry not in numbers]
    beside = [sum(entry.ours is not None for entry in part) for part in (numbers, texts)]
    summary = [f"{kind.plural}: {len(numbers)}, ours beside {beside[0]}" if numbers else "none"]
    summary += [f"{len(texts)} texts, ours beside {beside[1]}"] if texts else []
    tidy = [
        tidy_row(
            spec,
            entry.row,
            entry.column,
            kind=kind,
            budget="paper",
            source=source,
            paper_value=entry.text,
            ours_mean=entry.ours.csv if entry.ours else "",
            delta="" if entry.delta is None else f"{entry.delta:.12g}",
            verdict=entry.verdict,
            status=entry.why or status,
            notes=entry.notes,
        )
        for entry in entries
    ]
    return table_of(
        spec,
        sections=(Section(title, tuple(blocks)),),
        tidy=tidy,
        summary="; ".join(summary),
        printed={kind: len(numbers)},
        answer=list(_answer(kind, entries)),
        caption=tuple(caption),
    )


def _answer(kind: Kind, entries: Sequence[Printed]) -> Iterator[str]:
    """The number of entries of each verdict, then each difference."""
    counts = Counter(entry.verdict for entry in entries)
    shown = ", ".join(f"{verdict}: {counts[verdict]}" for verdict in Verdict if counts[verdict])
    yield f"Printed {kind.plural} beside ours: {shown}."
    for verdict, title in ((Verdict.UNEXPLAINED, "Unexplained"), (Verdict.EXPLAINED, "Different")):
        for row in dict.fromkeys(entry.row for entry in entries):
            if words := [
                f"{entry.column} {entry.text}, ours {entry.ours.text}"
                + (f" [{', '.join(entry.notes)}]" if entry.notes else "")
                for entry in entries
                if (entry.verdict, entry.row) == (verdict, row)
            ]:
                yield f"{title}, {row}: {'; '.join(words)}."


def count_beside(pages: Sequence[Table]) -> str:
    """`Published numbers with ours beside them at full size: 0 of 519 trained scores, 173 of 188 measured costs.`

    Full size: the unchanged recipe at the paper's budget on its full data, a composed recipe at that budget, a closed
    form at the printed sizes, or a measurement at the paper's size. A row of the long CSV has the printed value only
    where ours may be compared with it.
    """
    printed = sum((Counter(page.printed) for page in pages), Counter())
    beside = {
        (row["paper"], row["table"], row["row"], row["column"]): row["kind"]
        for page in pages
        for row in page.tidy
        if row["ours_mean"] and not math.isnan(ledger.number(row["paper_value"] or "nan"))
    }
    counts = Counter(beside.values())
    parts = [f"{counts[kind]:,} of {printed[kind]:,} {kind.plural}" for kind in Kind if printed[kind]]
    return f"Published numbers with ours beside them at full size: {', '.join(parts) or 'none'}."
