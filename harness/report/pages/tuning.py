"""The section on the learning rates that searches chose."""

from collections.abc import Mapping

from harness.config.table_rows import row_name
from harness.report.pages.caveats import rate_text
from harness.report.pages.notes import signs_line
from harness.report.render.layout import Block, Section
from harness.report.scores.tuning import Selected, Tuning, Unfinished, budget_search, tuned_columns
from harness.report.spec.table import TableSpec

Tunings = Mapping[str, Mapping[str, Tuning]]  # column -> row -> its rate


def sections(selected: Selected, spec: TableSpec) -> list[Section]:
    """One section per protocol with searches. `selected`: as `select` returns it."""
    made = []
    for protocol, columns in selected.items():
        scored = {name: cells for name, cells in columns.items() if spec.columns[name].ranks}
        tunings, unfinished = (tuned_columns(scored, spec.budget, kind) for kind in (Tuning, Unfinished))
        count = sum(map(len, unfinished.values()))
        lines = (f"Searches that are not complete, with their row at the recipe's rate: {count}.",) if count else ()
        blocks = (_block(spec, tunings, lines),) if tunings else ()
        if blocks or lines:
            suffix = f" · protocol {protocol}" if len(selected) > 1 else ""
            made.append(Section(f"Learning rates{suffix}", blocks, () if blocks else lines, is_appendix=True))
    return made


def _block(spec: TableSpec, tunings: Tunings, lines: tuple[str, ...]) -> Block:
    every = [tuning for rows in tunings.values() for tuning in rows.values()]
    tuned = {row for column in tunings.values() for row in column}
    rows = [*(row for row in spec.rows if row in tuned), *sorted(tuned - set(spec.rows))]
    entries = [
        (row_name(row), *(f"{rate_text(of[row].rate)}{of[row].marks}" if row in of else "–" for of in tunings.values()))
        for row in rows
    ]
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
    return Block("Chosen on validation", ("row", *tunings), entries, lines=lines)
