"""One page with every published column that we have a run of: do our rows stand in the paper's order?"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.report.pages.answer import ColumnAnswer, counted_columns
from harness.report.render.markdown import GENERATED, escape, grid
from harness.report.scores.agreement import ColumnAgreement, column_agreement, is_beside_the_paper
from harness.report.scores.paired import holm
from harness.report.stats.ordering import MIN_ROWS
from harness.report.stats.seeds import LEVEL, p_value

NAME = "agreement"
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
- **pairs the paper tells apart**: pairs of published numbers that differ at 5 % by the noise that the table states,
  or by the binomial noise of the test set. That is an upper bound, because the published numbers are of one seed. A
  dash: the noise is not known.
- **order**: *agrees* or *disagrees* if the corrected p is below 0.05, else *not told apart* from a random order.
- **control**: where the control is not clearly behind the reference, our scores rank no rows, whatever τ is.

Measured times and counted parameters are not on this page."""
NONE = "–"
SIGNIFICANT = 1 - LEVEL


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
    def control(self) -> str:
        """`behind`, `not clearly behind: cannot rank rows`, or why that is not known."""
        tests = self.answer.tests
        if tests.resolution is None:
            return f"unknown: {tests.missing}"
        return "behind" if tests.is_clear else "not clearly behind: cannot rank rows"

    @property
    def name(self) -> str:
        return f"{self.table} {self.answer.name}"

    @property
    def entries(self) -> list[str]:
        """As in HEADER."""
        order, interval, separable = self.beside.order, self.beside.interval, self.beside.separable
        tau = NONE if order.tau is None else f"{order.tau:z.2f}"
        ends = NONE if interval is None or order.tau is None else f"{interval[0]:z.2f} to {interval[1]:z.2f}"
        numbers = [str(order.rows), tau, ends, _p_text(order.p), _p_text(self.corrected)]
        apart = NONE if separable is None else f"{separable[0]} of {separable[1]}"
        link = f"[{escape(self.table)}]({self.table}.md)"
        return [link, escape(self.answer.name_and_data), *numbers, apart, self.verdict, escape(self.control)]


def lines_of(tables: Iterable[tuple[str, Sequence[ColumnAnswer]]]) -> list[Line]:
    """The published columns among the answered ones, with p-values corrected for all of them."""
    uncorrected = [
        Line(name, answer, column_agreement(answer.spec, answer.group))
        for name, answers in tables
        for answer in answers
        if is_beside_the_paper(answer.spec, answer.group)
    ]
    tested = [line.beside.order.p for line in uncorrected if line.beside.order.p is not None]
    corrected = iter(holm(tested))
    return [
        Line(line.table, line.answer, line.beside, None if line.beside.order.p is None else next(corrected))
        for line in uncorrected
    ]


def sentences(lines: Sequence[Line]) -> list[str]:
    """How often the order agrees, where it disagrees, what the papers themselves tell apart."""
    tested = [line for line in lines if line.corrected is not None]
    agree, disagree = ([line for line in tested if line.verdict == verdict] for verdict in (AGREES, DISAGREES))
    unclear = len(tested) - len(agree) - len(disagree)
    sentences = [
        f"After correction, the order of the rows agrees with the paper's in {len(agree)} of {_columns(tested)}"
        f"{_names(agree)} and disagrees in {len(disagree)}{_names(disagree)}. In the other {unclear}, no test tells it "
        "from a random order."
    ]
    short = [line for line in tested if _least_p(line) * len(tested) >= SIGNIFICANT]
    if short:
        most = max(line.beside.order.rows for line in short)
        sentences.append(
            f"In {len(short)} of these columns, even the paper's own order would not pass the test: with at most "
            f"{most} shared rows, p cannot be small enough for {_columns(tested)}."
        )
    if nothing := [line for line in tested if line.answer.tests.ranks_nothing and not line.answer.tests.is_clear]:
        decided = [line for line in nothing if line in agree + disagree]
        also = f" That holds for {len(decided)} of those that agree or disagree{_names(decided)}." if decided else ""
        sentences.append(
            f"In {len(nothing)} of these columns the control is not clearly behind the reference: our scores cannot "
            f"rank rows there.{also}"
        )
    if untested := [line for line in lines if line.corrected is None]:
        sentences.append(f"{_columns(untested)} cannot be tested: fewer than {MIN_ROWS} shared rows, or all tied.")
    separable = [line.beside.separable for line in tested if line.beside.separable is not None]
    apart, pairs = sum(apart for apart, _ in separable), sum(pairs for _, pairs in separable)
    sentences.append(
        f"The published numbers come from one seed. Their noise is known in {len(separable)} of {_columns(tested)}"
        + (f", where at most {apart} of {pairs} pairs of rows differ by more than it." if separable else ".")
    )
    return sentences


def _least_p(line: Line) -> float:
    """The p-value of the paper's own order, without ties."""
    return 2 / math.factorial(line.beside.order.rows)


def page(lines: Sequence[Line]) -> str:
    """Markdown."""
    first, *others = sentences(lines)
    text = [
        GENERATED,
        "# Agreement with the papers, column by column",
        "",
        f"- {escape(first)}",
        "",
        *grid(HEADER, [line.entries for line in lines], "llrrrrrrll"),
        "",
        *(f"- {escape(sentence)}" for sentence in others),
        "",
        "## How to read this",
        "",
        INTRODUCTION,
    ]
    return "\n".join(text) + "\n"


def pages(tables: Iterable[tuple[str, Sequence[ColumnAnswer]]], folder: Path) -> dict[Path, str]:
    """{path: Markdown}; none if no published column was run. `tables`: name and answered columns of each table."""
    lines = lines_of(tables)
    return {folder / f"{NAME}.md": page(lines)} if lines else {}


def _p_text(p: float | None) -> str:
    return NONE if p is None else p_value(p)


def _columns(lines: Sequence[Line]) -> str:
    return counted_columns(len(lines))


def _names(lines: Sequence[Line]) -> str:
    """` (lavo/t2 N, latte/t1 PPL)`; empty without lines."""
    return f" ({', '.join(line.name for line in lines)})" if lines else ""
