"""The section on the learning rates that searches chose, and the scores at the rates of the recipes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from harness.config.table_rows import row_name
from harness.errors import agreeing
from harness.records.collect import Cells
from harness.report.pages.caveats import rate_text
from harness.report.render.layout import Block, Section
from harness.report.render.words import counted
from harness.report.scores.tuning import (
    EDGE,
    OUTDONE,
    Selected,
    Tuning,
    Unfinished,
    budget_search,
    mean_scores,
    tuned_columns,
)
from harness.report.spec.table import TableSpec

Tunings = Mapping[str, Mapping[str, Tuning]]  # column -> row -> its rate
TITLE = "Learning rates"


def sections(selected: Selected, at_recipe: Selected, spec: TableSpec) -> list[Section]:
    """One section per protocol with searches. The first arguments are those that `select` returns."""
    made = []
    for protocol, columns in selected.items():
        scored = {name: cells for name, cells in columns.items() if spec.columns[name].ranks}
        tunings, unfinished = (tuned_columns(scored, spec.budget, kind) for kind in (Tuning, Unfinished))
        lines = tuple(_unfinished_lines(unfinished))
        blocks: tuple[Block, ...] = ()
        if tunings:
            below = (*_lines(spec, tunings), *_outdone_lines(tunings), *lines)
            blocks = (replace(_block(spec, tunings, at_recipe[protocol]), lines=below),)
        if blocks or lines:
            suffix = f" · protocol {protocol}" if len(selected) > 1 else ""
            made.append(Section(TITLE + suffix, blocks, () if blocks else lines, is_appendix=True))
    return made


def _block(spec: TableSpec, tunings: Tunings, at_recipe: Mapping[str, Cells]) -> Block:
    tuned = {row for column in tunings.values() for row in column}
    rows = [*(row for row in spec.rows if row in tuned), *sorted(tuned - set(spec.rows))]
    before = {name: mean_scores(at_recipe[name][at_recipe[name]["budget"] == spec.budget]) for name in tunings}

    def text(row: str, column: str) -> str:
        """`1e-2* (20.7)`; a dash for a row that was not searched."""
        if (tuning := tunings[column].get(row)) is None:
            return "–"
        scores = before[column].get(row)
        score = f" ({spec.resolve(column).unsigned(sum(scores) / len(scores))})" if scores else ""
        return f"{rate_text(tuning.rate)}{tuning.marks}{score}"

    entries = [(row_name(row), *(text(row, name) for name in tunings)) for row in rows]
    return Block("Chosen on validation; in brackets the score at the recipe's rate", ("row", *tunings), entries)


def _lines(spec: TableSpec, tunings: Tunings) -> tuple[str, ...]:
    every = [tuning for rows in tunings.values() for tuning in rows.values()]
    tried = sorted({tuning.choice.tried for tuning in every})
    recipes = sorted({tuning.recipe for tuning in every})
    search = budget_search(spec.budget, spec.columns[next(iter(tunings))].task)
    moved, on_edge = (sum(flags) for flags in zip(*((not t.is_recipe, t.choice.on_edge) for t in every), strict=True))
    edges = f" {EDGE}: at an end of the grid ({on_edge})."
    rates = ", ".join(f"{rate:g}" for rate in sorted(search.rates))
    return (
        f"Tried: {rates} times the recipe's rate ({', '.join(map(rate_text, recipes))}), with "
        f"{_seeds([*search.seeds, *search.ties])}; {' or '.join(map(str, tried))} rates a row.",
        f"In {moved} of {counted(len(every), 'search', 'searches')} a rate other than the recipe's was chosen."
        + edges * bool(on_edge),
    )


def _seeds(seeds: Sequence[int]) -> str:
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"


def _outdone_lines(tunings: Tunings) -> Iterator[str]:
    """The rows whose search did not choose well, as the seeds of the table show."""
    if rows := [f"{row_name(row)} in {name}" for name, rows in tunings.items() for row in rows if rows[row].outdone]:
        yield f"{OUTDONE}: every seed at the recipe's rate is ahead of every seed at the chosen one: {', '.join(rows)}."


def _unfinished_lines(columns: Mapping[str, Mapping[str, Unfinished]]) -> Iterator[str]:
    """How many rows are shown without a chosen rate."""
    if count := sum(map(len, columns.values())):
        searches = counted(count, "search is", "searches are")
        yield f"{searches} not complete: {agreeing(count, 'its row is', 'their rows are')} shown at the recipe's rate."
