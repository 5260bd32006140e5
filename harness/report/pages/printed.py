"""The verdict on a printed text or number, and how many printed entries of each kind have ours beside them."""

import math
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any

from harness.records import ledger
from harness.report.render.layout import Table, TableEntry
from harness.report.spec.parts import Kind


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


TEXT = "text"  # the kind of a printed entry without a number
TONES = {Verdict.SAME: "good", Verdict.EXPLAINED: "fair", Verdict.UNEXPLAINED: "bad"}  # verdicts of a comparison


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_same(left: Any, right: Any) -> bool:
    """Equal, numbers up to rounding; `true` is no number."""
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(is_same, left, right))
    if is_number(left) and is_number(right):
        return math.isclose(left, right, rel_tol=1e-9)
    return type(left) is type(right) and left == right


def count_beside(pages: Iterable[Table], paper_root: str | os.PathLike[str]) -> str:
    """`Published numbers with ours beside them at full size: 0 of 519 trained scores, 173 of 188 measured costs.`

    Full size: the unchanged recipe at the paper's budget on its full data, a composed recipe at that budget, a closed
    form at the printed sizes, or a measurement at the paper's size. A row of the long CSV has the printed value only
    where ours may be compared with it. Numbers count as in the ledger: `20K` is a text there, and a dash is an entry.
    """
    pages = list(pages)
    entries = [entry for name in ledger.tables(paper_root) for entry in ledger.entries(name, paper_root)]
    printed = sum((Counter(page.printed) for page in pages), Counter())
    kind_beside = {
        (row["paper"], row["table"], row["row"], row["column"]): (
            row["kind"] if not math.isnan(ledger.number(row["paper_value"])) else TEXT
        )
        for page in pages
        for row in page.tidy
        if row["paper_value"] and row["ours_mean"]
    }
    beside = Counter(kind_beside.values())
    parts = [f"{beside[kind]:,} of {printed[kind]:,} {kind.plural}" for kind in Kind if printed[kind]]
    numbers = sum(not math.isnan(entry["number"]) for entry in entries)
    rest = numbers - sum(printed.values())
    parts += [f"0 of {rest:,} without a place in a table here"] if rest > 0 else []
    return (
        f"Published numbers with ours beside them at full size: {', '.join(parts) or 'none'}. With printed texts: "
        f"{sum(beside.values()):,} of {len(entries):,} entries."
    )
