"""The section on the learning rates that searches chose, and the scores at the rates of the recipes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from harness.config.model_names import row_name
from harness.report.pages.caveats import rate_text
from harness.report.render.layout import Block, Section
from harness.report.scores.groups import ProtocolResults
from harness.report.scores.tiers import unstable_rows
from harness.report.scores.tuning import (
    Tuning,
    Unfinished,
    budget_search,
    mean_scores,
    outdone_rows,
    tuned_columns,
    unfinished_columns,
)
from harness.report.spec.table import TableSpec

if TYPE_CHECKING:
    import pandas as pd

Selected = "Mapping[str, Mapping[str, pd.DataFrame]]"
EDGE, UNSTABLE, OUTDONE = "*", "‡", "§"
TITLE = "Learning rates"


def sections(
    selected: Selected, at_recipe: Selected, spec: TableSpec, results: Sequence[ProtocolResults]
) -> list[Section]:
    """One section per protocol with searches. The first arguments are those that `select` returns."""
    made, outdone = [], outdone_rows(selected, at_recipe, spec)
    for protocol, columns in selected.items():
        scored = {name: cells for name, cells in columns.items() if spec.columns[name].metric is not None}
        tunings, unfinished = (kind(scored, spec.budget) for kind in (tuned_columns, unfinished_columns))
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
    groups = [
        group for result in results if result.spec.protocol == protocol for group in (*result.own, *result.others)
    ]
    return {
        group.column: unstable_rows(group.scores, group.comparison.tiers, group.losses, group.resolved.higher_is_better)
        for group in groups
        if group.budget == spec.budget
    }


def _block(
    spec: TableSpec,
    tunings: Mapping[str, Mapping[str, Tuning]],
    at_recipe: "Mapping[str, pd.DataFrame]",
    marks: Sequence[tuple[str, Mapping[str, Sequence[str]]]],
) -> Block:
    """`marks`: a mark and its rows by column."""
    tuned = {row for column in tunings.values() for row in column}
    rows = [*(row for row in spec.rows if row in tuned), *sorted(tuned - set(spec.rows))]
    before = {name: mean_scores(_of_budget(at_recipe[name], spec.budget)) for name in tunings}
    entries = [
        (
            row_name(row),
            *(
                _text(
                    spec,
                    name,
                    tunings[name].get(row),
                    before[name].get(row),
                    "".join(mark for mark, rows in marks if row in rows.get(name, ())),
                )
                for name in tunings
            ),
        )
        for row in rows
    ]
    return Block("Chosen on validation; in brackets the score at the recipe's rate", ("row", *tunings), entries)


def _of_budget(cells: "pd.DataFrame", budget: str) -> "pd.DataFrame":
    return cells[cells["budget"] == budget]


def _text(spec: TableSpec, column: str, tuning: Tuning | None, scores: list[float] | None, marks: str) -> str:
    """`1e-2*‡ (20.7)`; a dash for a row that was not searched."""
    if tuning is None:
        return "–"
    score = f" ({spec.resolve(column).unsigned(sum(scores) / len(scores))})" if scores else ""
    return f"{rate_text(tuning.rate)}{EDGE if tuning.choice.on_edge else ''}{marks}{score}"


def _lines(
    spec: TableSpec, tunings: Mapping[str, Mapping[str, Tuning]], unstable: Mapping[str, Sequence[str]]
) -> tuple[str, ...]:
    every = [tuning for rows in tunings.values() for tuning in rows.values()]
    tried = sorted({tuning.choice.tried for tuning in every})
    recipes = sorted({tuning.recipe for tuning in every})
    search = budget_search(spec.budget, spec.columns[next(iter(tunings))].task)
    moved = sum(not tuning.is_recipe for tuning in every)
    on_edge = sum(tuning.choice.on_edge for tuning in every)
    rates = ", ".join(f"{rate:g}" for rate in sorted(search.rates))
    return (
        f"Every row searches in every column: {rates} times the recipe's rate ({', '.join(map(rate_text, recipes))}), "
        f"each with {_seeds(search.seeds)}, and one rate more where the best is at an end "
        f"({' or '.join(map(str, tried))} rates tried). The best mean on the validation split is chosen; its seeds are "
        "no seeds of the table.",
        f"In {moved} of {len(every)} cases a rate other than the recipe's was chosen."
        + (
            f" {EDGE}: at an end of the grid ({on_edge}), so that a rate further out might be better."
            if on_edge
            else ""
        ),
        _stability(unstable),
    )


def _stability(unstable: Mapping[str, Sequence[str]]) -> str:
    count = sum(map(len, unstable.values()))
    if not count:
        return "No row of a best tier would leave it at its second-best rate, by the validation scores of its trials."
    return (
        f"{UNSTABLE}: {count} {'row' if count == 1 else 'rows'} of a best tier would leave it at the second-best rate: "
        "the interval, worse by what the trials lose on the validation split, no longer holds the best mean of the "
        "other rows."
    )


def _outdone_lines(outdone: Mapping[str, Sequence[str]]) -> Iterator[str]:
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


def _seeds(seeds: tuple[int, ...]) -> str:
    return f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {', '.join(map(str, seeds))}"
