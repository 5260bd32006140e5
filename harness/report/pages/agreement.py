"""`agreement.md`: do our rows stand in the paper's order? Every published column that has a run."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.report.pages.answer import ColumnAnswer
from harness.report.render.markdown import document, escape, grid
from harness.report.scores.groups import Group
from harness.report.scores.paired import holm
from harness.report.spec.table import TableSpec
from harness.report.stats.ordering import MIN_ROWS, Agreement, agreement, bootstrap_interval
from harness.report.stats.seeds import LEVEL, p_value

AGREES, DISAGREES, UNCLEAR, FEW, TIES = "agrees", "disagrees", "not told apart", "too few rows", "all tied"
HEADER = ("table", "column", "rows", "Kendall τ", "95 % interval", "p", "p, corrected", "order", "control")
INTRODUCTION = """\
Every published column with trained runs at a smaller budget than the paper's. Our means and the published numbers
order the rows that both have. Kendall's τ is 1 for the same order, -1 for the reverse, and 0 on average for unrelated
orders.

- **95 % interval**: of τ, if the seeds of each row are drawn again (bootstrap) and the published numbers, which are of
  one seed, stay as they are. It says how steady our order is. Whether the order agrees is the question of p: few rows
  are often in a similar order by chance.
- **p**: how often a random order of the rows agrees or disagrees at least as much (permutation test). Without ties it
  is at least 0.33 with 3 rows, 0.083 with 4, 0.017 with 5, 0.0028 with 6, and 0.0004 with 7. With at most 5 shared
  rows, even the paper's own order would not pass a correction for three columns.
- **p, corrected**: for all columns of this page that have a p (Holm's method).
- **order**: *agrees* or *disagrees* if the corrected p is below 0.05, else *not told apart* from a random order.
- **control**: where the control is not clearly behind the reference, our scores rank no rows, whatever τ is."""
NONE = "–"


@dataclass(frozen=True)
class Line:
    """A published column of a table beside ours. `interval`: where tau lies in 95 % of the draws if our seeds are drawn
    again; None without one. `corrected`: its p, corrected for all columns; None without a p."""

    table: str
    answer: ColumnAnswer
    order: Agreement
    interval: tuple[float, float] | None = None
    corrected: float | None = None

    @property
    def verdict(self) -> str:
        if self.corrected is None:
            return FEW if self.order.rows < MIN_ROWS else TIES
        if self.corrected >= 1 - LEVEL:
            return UNCLEAR
        return AGREES if self.order.tau > 0 else DISAGREES

    @property
    def entries(self) -> list[str]:
        """As in HEADER."""
        order, tests = self.order, self.answer.tests
        tau = NONE if order.tau is None else f"{order.tau:z.2f}"
        ends = NONE if self.interval is None or order.tau is None else " to ".join(f"{e:z.2f}" for e in self.interval)
        numbers = [str(order.rows), tau, ends, *(NONE if p is None else p_value(p) for p in (order.p, self.corrected))]
        control = "behind" if tests.is_clear else "not clearly behind"
        control = f"unknown: {escape(tests.missing)}" if tests.resolution is None else control
        link = f"[{escape(self.table)}]({self.table}.md)"
        return [link, escape(self.answer.name_and_data), *numbers, self.verdict, control]


def column_agreement(table: str, answer: ColumnAnswer) -> Line:
    """Left out are scores of changed settings, and rows that repeat the computation of another row."""
    spec, group = answer.spec, answer.group
    scores = [score for score in group.scores if score.is_plain]
    plain = {score.row: score for score in scores if score.row in spec.rows and not spec.same_as(score.row)}
    ours = {row: list(score.by_seed.values()) for row, score in plain.items()}
    theirs = {row: number.number for (row, column), number in spec.published.items() if column == group.column}
    order = agreement({row: score.estimate.mean for row, score in plain.items()}, theirs)
    return Line(table, answer, order, bootstrap_interval(ours, theirs))


def is_beside_the_paper(spec: TableSpec, group: Group) -> bool:
    """Whether a group has trained runs of a published column at a smaller budget than the paper's."""
    is_published = any(column == group.column for _, column in spec.published)
    return is_published and bool(group.comparison.rows) and not group.comparable and group.budget != "paper"


def lines_of(tables: Iterable[tuple[str, Sequence[ColumnAnswer]]]) -> list[Line]:
    """The published columns among the answered ones, with p-values corrected for all of them."""
    uncorrected = [
        column_agreement(name, answer)
        for name, answers in tables
        for answer in answers
        if is_beside_the_paper(answer.spec, answer.group)
    ]
    corrected = iter(holm([line.order.p for line in uncorrected if line.order.p is not None]))
    return [line if line.order.p is None else replace(line, corrected=next(corrected)) for line in uncorrected]


def pages(tables: Iterable[tuple[str, Sequence[ColumnAnswer]]], folder: Path) -> dict[Path, str]:
    """{path: Markdown}; none if no published column was run. `tables`: name and answered columns of each table."""
    if not (lines := lines_of(tables)):
        return {}
    counts = Counter(line.verdict for line in lines)
    said = ", ".join(f"{name}: {counts[name]}" for name in (AGREES, DISAGREES, UNCLEAR, FEW, TIES))
    text = [
        f"- Columns by the order of their rows: {said}.",
        "",
        *grid(HEADER, [line.entries for line in lines], "llrrrrrll"),
    ]
    return {folder / "agreement.md": document("Agreement with the papers, column by column", text, INTRODUCTION)}
