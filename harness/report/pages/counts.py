"""What all records together say of themselves: columns that can rank, tuned rows, resolved pairs and cost."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from harness.config.table_rows import settings_key
from harness.records.collect import Cells
from harness.report.pages.answer import ColumnAnswer
from harness.report.render.words import cost
from harness.report.scores.comparison import ENOUGH
from harness.report.scores.tuning import Tuning, tuned
from harness.report.stats.grouping import grouped

ENOUGH_RATES = 3  # learning rates that make a search
UNRANKED = ("paper", "smoke")  # budgets whose rows keep the recipe's rate
ROW = ["task", "protocol", "budget", "model", "changed", "source"]  # cells of one row, apart from their seeds


def lines(answers: Sequence[ColumnAnswer], cells: Cells) -> list[str]:
    """The lines of the block. `answers`: the columns of all tables; `cells`: the frame of all records.

    A column that several tables show counts once.
    """
    return [*_columns(list(distinct(answers))), *_pairs(answers), *_tuned_rows(cells), *_cost(cells)]


def totals(answers: Sequence[ColumnAnswer]) -> str:
    """All columns of several tables together."""
    if not answers:
        return "no column has a run yet: python run.py table=all budget=reduced"
    enough = sum(answer.tests.is_clear for answer in answers)
    return f"columns with R ≥ {ENOUGH:g}: {share(enough, len(answers))}; pairs resolved: {_resolved(answers)}"


def distinct(answers: Iterable[ColumnAnswer]) -> Iterator[ColumnAnswer]:
    """The columns at smaller budgets than the paper's, each once: equal task, recipe, metric, settings and data."""
    seen: set[tuple[Any, ...]] = set()
    for answer in answers:
        key = (answer.group.budget, answer.group.data, _measured(answer))
        if answer.group.budget not in UNRANKED and key not in seen:
            seen.add(key)
            yield answer


def _measured(answer: ColumnAnswer) -> tuple[Any, ...]:
    """What a column measures; an average is that of its table."""
    column = answer.spec.columns.get(answer.group.column)
    if column is None:
        return answer.spec.name, answer.group.column
    protocol = column.protocol or answer.spec.protocol
    return column.task, protocol, column.metric, column.evaluation, settings_key(column.set)


def _columns(answers: Sequence[ColumnAnswer]) -> Iterator[str]:
    if answers:
        tests, columns = [answer.tests for answer in answers], len(answers)
        apart, clear, ranking = (sum(getattr(test, key) for test in tests) for key in ("is_apart", "is_clear", "ranks"))
        yield (
            f"columns below the paper's budget with reference and control apart: {share(apart, columns)}; with "
            f"R ≥ {ENOUGH:g} as well: {share(clear, columns)}; with searched learning rates as well, so that they rank "
            f"rows: {share(ranking, columns)}"
        )


def _pairs(answers: Sequence[ColumnAnswer]) -> Iterator[str]:
    """The resolved pairs, over all columns, of each table that has a row for every model of a pattern (`every`)."""
    tables = grouped((answer.spec.name, answer) for answer in answers if answer.spec.every)
    if tables:
        shares = (f"{name} {_resolved(columns)}" for name, columns in tables.items())
        yield f"pairs resolved in the tables of all models: {', '.join(shares)}"


def _resolved(answers: Sequence[ColumnAnswer]) -> str:
    """The pairs that tests resolve, of those with the best row or the reference."""
    return share(*(sum(getattr(answer.tests, key) for answer in answers) for key in ("resolved", "possible")))


def _tuned_rows(cells: Cells) -> Iterator[str]:
    """Of each family of tasks: the rows whose rate a search chose among enough rates."""
    kept = tuned(cells[~cells["budget"].isin(UNRANKED)])
    rows = [(task.split("/")[0], part["tuning"]) for (task, *_), part in kept.groupby(ROW, sort=True)]
    searched = grouped(
        (family, any(isinstance(t, Tuning) and t.choice.tried >= ENOUGH_RATES for t in tunings))
        for family, tunings in rows
    )
    if searched:
        families = (f"{family} {sum(flags):,} of {len(flags):,}" for family, flags in searched.items())
        yield f"rows tuned over at least {ENOUGH_RATES} learning rates, by family of tasks: {', '.join(families)}"


def _cost(cells: Cells) -> Iterator[str]:
    """Each cell once, with the trials of searches."""
    if hours := cost(*(float(cells[key].astype(float).sum()) for key in ("core_hours", "gpu_hours"))):
        yield f"cost of {len(cells):,} records: {hours}"


def share(part: int, whole: int) -> str:
    """`63 of 118 (53 %)`"""
    return f"{part:,} of {whole:,} ({100 * part / max(whole, 1):.0f} %)"
