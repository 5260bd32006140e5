"""The section on the learning rates that searches chose, and the scores at the rates of the recipes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from harness.config.model_names import row_name
from harness.records.collect import Cells
from harness.report.pages.caveats import rate_text
from harness.report.render.layout import Block, Section
from harness.report.render.words import counted
from harness.report.scores.groups import ProtocolResults
from harness.report.scores.tiers import unstable_rows
from harness.report.scores.tuning import (
    Selected,
    Tuning,
    Unfinished,
    budget_search,
    mean_scores,
    outdone_rows,
    tuned_columns,
)
from harness.report.spec.table import TableSpec

Tunings = Mapping[str, Mapping[str, Tuning]]  # column -> row -> its rate
Rows = Mapping[str, Sequence[str]]  # by column
EDGE, UNSTABLE, OUTDONE = "*", "‡", "§"
TITLE = "Learning rates"


def sections(
    selected: Selected, at_recipe: Selected, spec: TableSpec, results: Sequence[ProtocolResults]
) -> list[Section]:
    """One section per protocol with searches. The first arguments are those that `select` returns."""
    made, outdone = [], outdone_rows(selected, at_recipe, spec)
    for protocol, columns in selected.items():
        scored = {name: cells for name, cells in columns.items() if spec.columns[name].ranks}
        tunings, unfinished = (tuned_columns(scored, spec.budget, kind) for kind in (Tuning, Unfinished))
        unstable = _unstable(spec, protocol, results)
        marks = [(UNSTABLE, unstable), (OUTDONE, outdone)]
        lines = tuple(_unfinished_lines(unfinished))
        blocks: tuple[Block, ...] = ()
        if tunings:
            below = *_lines(spec, tunings, unstable), *_outdone_lines({name: outdone.get(name, ()) for name in tunings})
            blocks = (replace(_block(spec, tunings, at_recipe[protocol], marks), lines=(*below, *lines)),)
        if blocks or lines:
            suffix = f" · protocol {protocol}" if len(selected) > 1 else ""
            made.append(Section(TITLE + suffix, blocks, () if blocks else lines, is_appendix=True))
    return made


def _unstable(spec: TableSpec, protocol: str, results: Sequence[ProtocolResults]) -> dict[str, list[str]]:
    """{column: the rows of its best tier that would leave it at their second-best rate} at the table's budget."""
    return {
        group.column: unstable_rows(group.scores, group.comparison.tiers, group.losses, group.resolved.higher_is_better)
        for result in results
        for group in result.measured
        if (result.spec.protocol, group.budget) == (protocol, spec.budget)
    }


def _block(
    spec: TableSpec, tunings: Tunings, at_recipe: Mapping[str, Cells], marks: Sequence[tuple[str, Rows]]
) -> Block:
    """`marks`: a mark and its rows by column."""
    tuned = {row for column in tunings.values() for row in column}
    rows = [*(row for row in spec.rows if row in tuned), *sorted(tuned - set(spec.rows))]
    before = {name: mean_scores(at_recipe[name][at_recipe[name]["budget"] == spec.budget]) for name in tunings}

    def text(row: str, column: str) -> str:
        """`1e-2*‡ (20.7)`; a dash for a row that was not searched."""
        if (tuning := tunings[column].get(row)) is None:
            return "–"
        scores = before[column].get(row)
        score = f" ({spec.resolve(column).unsigned(sum(scores) / len(scores))})" if scores else ""
        shown = [EDGE] * tuning.choice.on_edge + [mark for mark, rows in marks if row in rows.get(column, ())]
        return f"{rate_text(tuning.rate)}{''.join(shown)}{score}"

    entries = [(row_name(row), *(text(row, name) for name in tunings)) for row in rows]
    return Block("Chosen on validation; in brackets the score at the recipe's rate", ("row", *tunings), entries)


def _lines(spec: TableSpec, tunings: Tunings, unstable: Rows) -> tuple[str, ...]:
    every = [tuning for rows in tunings.values() for tuning in rows.values()]
    tried = sorted({tuning.choice.tried for tuning in every})
    recipes = sorted({tuning.recipe for tuning in every})
    search = budget_search(spec.budget, spec.columns[next(iter(tunings))].task)
    moved = sum(not tuning.is_recipe for tuning in every)
    on_edge, count = sum(tuning.choice.on_edge for tuning in every), sum(map(len, unstable.values()))
    edges = f" {EDGE}: at an end of the grid ({on_edge}), so that a rate further out might be better." * bool(on_edge)
    rates = ", ".join(f"{rate:g}" for rate in sorted(search.rates))
    seeds = f"seed{'s' if len(search.seeds) > 1 else ''} {', '.join(map(str, search.seeds))}"
    return (
        f"A search tries {rates} times the recipe's rate ({', '.join(map(rate_text, recipes))}) with {seeds}, and one "
        f"rate more where the best is at an end ({' or '.join(map(str, tried))} rates tried). The best mean on the "
        "validation split is chosen; its seeds are no seeds of the table. –: no search.",
        f"In {moved} of {counted(len(every), 'search', 'searches')} a rate other than the recipe's was chosen.{edges}",
        f"{UNSTABLE}: {counted(count, 'row')} of a best tier would leave it at the second-best rate: the interval, "
        "worse by what the trials lose on the validation split, no longer holds the best mean of the other rows."
        if count
        else "No row of a best tier would leave it at its second-best rate, by the validation scores of its trials.",
    )


def _outdone_lines(outdone: Rows) -> Iterator[str]:
    """The rows whose search did not choose well, as the seeds of the table show."""
    if rows := [f"{row_name(row)} in {name}" for name, rows in outdone.items() for row in rows]:
        yield (
            f"{OUTDONE}: every seed at the recipe's rate is ahead of every seed at the chosen one, so that another "
            f"seed of the search might choose another rate: {', '.join(rows)}."
        )


def _unfinished_lines(columns: Mapping[str, Mapping[str, Unfinished]]) -> Iterator[str]:
    """The rows without a chosen rate, and the rates that they lack."""
    parts = [
        f"{row_name(row)} in {name} lacks {', '.join(map(rate_text, search.missing))}"
        for name, rows in columns.items()
        for row, search in rows.items()
    ]
    if parts:
        yield f"Searches that are not complete, whose rows are shown at the recipe's rate: {'; '.join(parts)}."
