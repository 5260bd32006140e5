"""The form of a table that plans read: its rows, columns and seeds. `harness.report.spec` checks what a page shows."""

from typing import Any

from omegaconf import DictConfig
from pydantic import ConfigDict, Field

from harness.config.plain import resolved_or_refused
from harness.config.schema import LARGEST_SEED
from harness.config.validation import StrictModel, TupleOf, parse
from harness.errors import UsageError

MOST_PAIRS = 2_000  # of a row and a column, each of which is composed
MOST_CELLS = 10_000


class PlannedRow(StrictModel):
    """The form of `harness.config.table_rows.Row`."""

    model: str
    protocol: str | None = None
    set: dict[str, Any] = Field(default_factory=dict)
    paper_set: dict[str, Any] = Field(default_factory=dict)
    ours: bool = False
    columns: TupleOf[str] | None = None
    same_as: str = ""


class PlannedColumn(StrictModel):
    model_config = ConfigDict(extra="ignore")

    task: str | None = None
    protocol: str | None = None
    set: dict[str, Any] = Field(default_factory=dict)


class PlannedTable(StrictModel):
    model_config = ConfigDict(extra="ignore")

    protocol: str
    seeds: TupleOf[int]
    rows: dict[str, str | PlannedRow]
    columns: dict[str, PlannedColumn]
    every: TupleOf[str] | None = None
    without: dict[str, str] | None = None
    gpu_hours: float | dict[str, float] | None = None


def check_table(table: Any, where: str) -> None:
    """Raises UsageError for a table whose cells cannot be planned, and for one with more cells than the bounds."""
    if not isinstance(table, DictConfig):
        raise UsageError(f"{where}: a mapping is expected, not {str(table)[:60]}")
    planned = parse(PlannedTable, resolved_or_refused(table, where), where)
    pairs = len(planned.rows) * len(planned.columns)
    if pairs > MOST_PAIRS or pairs * len(planned.seeds) > MOST_CELLS:
        most = f"{MOST_PAIRS:,} pairs of a row and a column, or {MOST_CELLS:,} cells"
        raise UsageError(f"{where}: more than {most}")
    if wrong := [seed for seed in planned.seeds if not 0 <= seed <= LARGEST_SEED]:
        raise UsageError(f"{where}: seeds: {str(wrong[0])[:60]} is not between 0 and {LARGEST_SEED:,}")
