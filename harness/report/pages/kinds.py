"""Tables whose numbers come from no cell: `conf/table/<name>.yaml` with a `kind`.

settings: printed hyper-parameters beside those of our composed recipes (`harness.report.pages.settings_table`)
formulas: printed formulas beside those of our code (`harness.report.pages.formula_tables`)
counts:   what printed formulas give at one choice of sizes, beside what ours give (the same module)
measured: printed time and memory beside what do=bench measured (`harness.report.pages.measured_table`)
"""

import os
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from harness.errors import UsageError, did_you_mean
from harness.report.pages import formula_tables, measured_table, settings_table
from harness.report.pages.measured_table import MeasuredTable
from harness.report.render.layout import Table

LOADERS = {
    "settings": settings_table.load,
    "formulas": formula_tables.load_formulas,
    "counts": formula_tables.load_counts,
    "measured": measured_table.load_measured,
}


class TableWithoutCells(Protocol):
    """What a loader gives: a table that is read from its yaml, the ledger and the folder `conf/` alone."""

    name: str
    title: str

    def page(self) -> Table: ...


def page_of(table: TableWithoutCells, measurements: Mapping[str, Mapping[str, Any]] | None) -> Table:
    """`measurements`: those of do=bench by their names, which some tables show."""
    return table.page(measurements) if isinstance(table, MeasuredTable) else table.page()


def load(raw: dict[str, Any], paper_root: str | os.PathLike[str], read: Callable[[str], dict[str, Any]]) -> Any:
    """A `TableWithoutCells` from the keys of its yaml. `read`: the keys of another table's.

    Raises UsageError for what does not fit.
    """
    kind = raw["kind"]
    if not isinstance(kind, str) or kind not in LOADERS:
        raise UsageError(f"kind: there is no '{kind}': {did_you_mean(str(kind), LOADERS)}")
    return LOADERS[kind](raw, paper_root, read)
