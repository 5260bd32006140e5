"""Do our rows stand in the paper's order? Of one column; and a page with every published column that has a run."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.report.pages.answer import ColumnAnswer
from harness.report.render.markdown import document, escape, grid
from harness.report.render.words import counted
from harness.report.scores.groups import Group
from harness.report.scores.paired import holm
from harness.report.spec.table import TableSpec
from harness.report.stats.ordering import MIN_ROWS, Agreement, agreement, bootstrap_interval, count_separable
from harness.report.stats.seeds import LEVEL, p_value

AGREES, DISAGREES, UNCLEAR, FEW, TIES = "agrees", "disagrees", "not told apart", "too few rows", "all tied"
HEADER = (
    *("table", "column", "rows", "Kendall τ", "95 % interval", "p", "p, corrected", "pairs the paper tells apart"),
    *("order", "control"),
)
INTRODUCTION = """\
Every published column with trained runs at a smaller budget than the paper's. Our means and the published numbers
order the rows that both have. Kendall's τ is 1 for the same order, -1 for the reverse, and 0 on average for unrelated
orders.

- **95 % interval**: of τ, if the seeds of each row are drawn again (bootstrap) and the published numbers stay as they
  are. It says how steady our order is. Whether the order agrees is the question of p: few rows are often in a similar
  order by chance.
- **p**: how often a random order of the rows agrees or disagrees at least as much (permutation test). Without ties it
  is at least 0.33 with 3 rows, 0.083 with 4, 0.017 with 5, 0.0028 with 6, and 0.0004 with 7.
- **p, corrected**: for all columns of this page that have a p (Holm's method).
- **pairs the paper tells apart**: pairs of published numbers that differ at 5 % by the binomial noise of the test set.
  That is an upper bound, because the published numbers are of one seed. A dash: the noise is not known.
- **order**: *agrees* or *disagrees* if the corrected p is below 0.05, else *not told apart* from a random order.
- **control**: where the control is not clearly behind the reference, our scores rank no rows, whatever τ is.

Measured times and counted parameters are not on this page."""
NONE = "–"
SIGNIFICANT = 1 - LEVEL


@dataclass(frozen=True)
class ColumnAgreement:
    """`interval`: where tau lies in 95 % of the draws if our seeds are drawn again; None without one.

    `separable`: how many pairs of the shared published numbers differ by more than their noise, and how many pairs
    there are. None if the noise is not known.
    """

    order: Agreement
    interval: tuple[float, float] | None
    separable: tuple[int, int] | None


def column_agreement(spec: TableSpec, group: Group) -> ColumnAgreement:
    """The scores of a group beside the published numbers of its column.

    Left out are scores of changed settings, and rows that repeat the computation of another row.
    """
    scores = [score for score in group.scores if score.is_plain]
    plain = {score.row: score for score in scores if score.row in spec.rows and not spec.same_as(score.row)}
    ours = {row: list(score.by_seed.values()) for row, score in plain.items()}
    theirs = {row: number.number for (row, column), number in spec.published.items() if column == group.column}
    order = agreement({row: score.estimate.mean for row, score in plain.items()}, theirs)
    errors = {row: spec.published_error(row, group.column) for row in sorted(set(theirs) & set(ours))}
    is_noise_known = order.tau is not None and None not in errors.values()
    separable = count_separable([(theirs[row], error) for row, error in errors.items()]) if is_noise_known else None
    return ColumnAgreement(order, bootstrap_interval(ours, theirs), separable)


def is_beside_the_paper(spec: TableSpec, group: Group) -> bool:
    """Whether a group has trained runs of a published column at a smaller budget than the paper's."""
    is_published = any(column == group.column for _, column in spec.published)
    return is_published and bool(group.comparison.rows) and not group.comparable and group.budget != "paper"


@dataclass(frozen=True)
class Line:
    """One column of one table. `corrected`: its p, corrected for all columns; None without a p."""

    table: str
    answer: ColumnAnswer
    beside: ColumnAgreement
    corrected: float | None = None

    @property
    def verdict(self) -> str:
        if self.corrected is None:
            return FEW if self.beside.order.rows < MIN_ROWS else TIES
        if self.corrected >= SIGNIFICANT:
            return UNCLEAR
        return AGREES if self.beside.order.tau > 0 else DISAGREES

    @property
    def entries(self) -> list[str]:
        """As in HEADER."""
        order, interval, separable = self.beside.order, self.beside.interval, self.beside.separable
        tau = NONE if order.tau is None else f"{order.tau:z.2f}"
        ends = NONE if interval is None or order.tau is None else f"{interval[0]:z.2f} to {interval[1]:z.2f}"
        numbers = [str(order.rows), tau, ends, *(NONE if p is None else p_value(p) for p in (order.p, self.corrected))]
        apart = NONE if separable is None else f"{separable[0]} of {separable[1]}"
        link = f"[{escape(self.table)}]({self.table}.md)"
        tests = self.answer.tests
        control = "behind" if tests.is_clear else "not clearly behind: cannot rank rows"
        control = f"unknown: {escape(tests.missing)}" if tests.resolution is None else control
        return [link, escape(self.answer.name_and_data), *numbers, apart, self.verdict, control]


def lines_of(tables: Iterable[tuple[str, Sequence[ColumnAnswer]]]) -> list[Line]:
    """The published columns among the answered ones, with p-values corrected for all of them."""
    uncorrected = [
        Line(name, answer, column_agreement(answer.spec, answer.group))
        for name, answers in tables
        for answer in answers
        if is_beside_the_paper(answer.spec, answer.group)
    ]
    corrected = iter(holm([line.beside.order.p for line in uncorrected if line.beside.order.p is not None]))
    return [line if line.beside.order.p is None else replace(line, corrected=next(corrected)) for line in uncorrected]


def sentences(lines: Sequence[Line]) -> list[str]:
    """How often the order agrees, where it disagrees, what the papers themselves tell apart."""
    tested = [line for line in lines if line.corrected is not None]
    of_tested = counted(len(tested), "column")
    agree, disagree = ([line for line in tested if line.verdict == verdict] for verdict in (AGREES, DISAGREES))
    unclear = len(tested) - len(agree) - len(disagree)
    sentences = [
        f"After correction, the order of the rows agrees with the paper's in {len(agree)} of {of_tested}"
        f"{_names(agree)} and disagrees in {len(disagree)}{_names(disagree)}. In the other {unclear}, no test tells it "
        "from a random order."
    ]
    # the smallest p is that of the paper's own order, without ties
    if short := [line for line in tested if 2 / math.factorial(line.beside.order.rows) * len(tested) >= SIGNIFICANT]:
        most = max(line.beside.order.rows for line in short)
        sentences.append(
            f"In {len(short)} of these columns, even the paper's own order would not pass the test: with at most "
            f"{most} shared rows, p cannot be small enough for {of_tested}."
        )
    if nothing := [line for line in tested if line.answer.tests.ranks_nothing and not line.answer.tests.is_clear]:
        decided = [line for line in nothing if line in agree + disagree]
        also = f" That holds for {len(decided)} of those that agree or disagree{_names(decided)}." if decided else ""
        sentences.append(
            f"In {len(nothing)} of these columns the control is not clearly behind the reference: our scores cannot "
            f"rank rows there.{also}"
        )
    if untested := len(lines) - len(tested):
        columns = counted(untested, "column")
        sentences.append(f"{columns} cannot be tested: fewer than {MIN_ROWS} shared rows, or all tied.")
    separable = [line.beside.separable for line in tested if line.beside.separable is not None]
    apart, pairs = sum(apart for apart, _ in separable), sum(pairs for _, pairs in separable)
    sentences.append(
        f"The published numbers come from one seed. Their noise is known in {len(separable)} of {of_tested}"
        + (f", where at most {apart} of {pairs} pairs of rows differ by more than it." if separable else ".")
    )
    return sentences


def pages(tables: Iterable[tuple[str, Sequence[ColumnAnswer]]], folder: Path) -> dict[Path, str]:
    """{path: Markdown}; none if no published column was run. `tables`: name and answered columns of each table."""
    if not (lines := lines_of(tables)):
        return {}
    first, *others = sentences(lines)
    text = [
        f"- {escape(first)}",
        "",
        *grid(HEADER, [line.entries for line in lines], "llrrrrrrll"),
        "",
        *(f"- {escape(sentence)}" for sentence in others),
    ]
    return {folder / "agreement.md": document("Agreement with the papers, column by column", text, INTRODUCTION)}


def _names(lines: Sequence[Line]) -> str:
    """` (lavo/t2 N, latte/t1 PPL)`; empty without lines."""
    return f" ({', '.join(f'{line.table} {line.answer.name}' for line in lines)})" if lines else ""
