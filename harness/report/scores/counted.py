"""Counted parameters of the rows of a table, for the model of a row's recipe at the paper's budget.

The model is built without memory and not trained, so the counts are there before any row was run.
"""

import functools
from collections.abc import Sequence

from harness.config.compose import compose, search_path
from harness.errors import UsageError
from harness.report.scores.scores import Score
from harness.report.spec.parts import UNITS
from harness.report.spec.table import TableSpec

FIELD = "parameters"  # the field of columns that can be counted
COUNTED = "Counted: the model of the row's recipe at the paper's budget, which was not trained."


def count(spec: TableSpec, column: str, rows: Sequence[str]) -> tuple[list[Score], tuple[str, ...]]:
    """The scores of `rows`, which have no run, in a column of parameters of one protocol's table, and notes on them.

    A row whose model cannot be built here has no score, and a note says why.
    """
    scores, notes, unit = [], [], UNITS.get(spec.unit_of(column), 1)
    for row in (row for row in rows if spec.has(row, column)):
        try:
            total = _total(spec.rows[row].model, spec.paper_recipe(row, column), tuple(search_path()))
            scores.append(Score(row, "", {0: total / unit}, {}, parameters=total, counted=True))
        except UsageError as error:
            notes.append(f"{row}: not counted: {error}.")
    return scores, (*([COUNTED] if scores else ()), *notes)


@functools.cache
def _total(model: str, recipe: tuple[str, ...], search: tuple[str, ...]) -> int:
    """Counted once per process and recipe; `search`: the folders from which the recipe is composed.

    Raises UsageError for a model that is not there or cannot be built.
    """
    from harness.config.build import on_meta  # torch takes seconds to import

    return on_meta(compose((f"model={model}", *recipe), search, shared=recipe)).parameters()["total"]
