"""The section on the learning rates that searches chose, and the scores at the rates of the recipes."""

from collections.abc import Mapping

from harness.config.model_names import row_name
from harness.records.collect import Cells
from harness.report.pages.caveats import rate_text
from harness.report.pages.notes import signs_line
from harness.report.render.layout import Block, Section
from harness.report.scores.tuning import Selected, Tuning, Unfinished, budget_search, mean_scores, tuned_columns
from harness.report.spec.table import TableSpec

Tunings = Mapping[str, Mapping[str, Tuning]]  # column -> row -> its rate


def sections(selected: Selected, at_recipe: Selected, spec: TableSpec) -> list[Section]:
    """One section per protocol with searches. The first arguments are those that `select` returns."""
    made = []
    for protocol, columns in selected.items():
        scored = {name: cells for name, cells in columns.items() if spec.columns[name].ranks}
        tunings, unfinished = (tuned_columns(scored, spec.budget, kind) for kind in (Tuning, Unfinished))
        count = sum(map(len, unfinished.values()))
        lines = (f"Searches that are not complete, with their row at the recipe's rate: {count}.",) if count else ()
        blocks = (_block(spec, tunings, at_recipe[protocol], lines),) if tunings else ()
        if blocks or lines:
            suffix = f" · protocol {protocol}" if len(selected) > 1 else ""
            made.append(Section(f"Learning rates{suffix}", blocks, () if blocks else lines, is_appendix=True))
    return made


def _block(spec: TableSpec, tunings: Tunings, at_recipe: Mapping[str, Cells], lines: tuple[str, ...]) -> Block:
    every = [tuning for rows in tunings.values() for tuning in rows.values()]
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
    search = budget_search(spec.budget, spec.columns[next(iter(tunings))].task)
    factors = ", ".join(f"{rate:g}" for rate in sorted(search.rates))
    recipes = ", ".join(map(rate_text, sorted({tuning.recipe for tuning in every})))
    moved, seeds = sum(not tuning.is_recipe for tuning in every), ", ".join(map(str, search.seeds + search.ties))
    lines = (
        f"Tried: {factors} times the recipe's rate ({recipes}), seeds {seeds}. Another rate than the recipe's was "
        f"chosen in {moved} of {len(every)} searches.",
        *signs_line(entries),
        *lines,
    )
    title = "Chosen on validation; in brackets the score at the recipe's rate"
    return Block(title, ("row", *tunings), entries, lines=lines)
