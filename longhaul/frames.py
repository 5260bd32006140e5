"""The frame of `longhaul.records`, and what names a cell in Python."""

import os
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd

from harness.config.compose import names_in
from harness.config.table_rows import format_settings
from harness.errors import UsageError, did_you_mean
from harness.records.collect import COLUMNS

# column of a frame -> what each of its values is (a missing one may be NaN), and its name in a message
KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    **dict.fromkeys(("id", "model", "task", "protocol", "budget", "status"), ((str,), "text")),
    **dict.fromkeys(("config", "evaluations", "tested"), ((Mapping,), "mappings")),
    **dict.fromkeys(("seed", "score"), ((Real, type(None)), "numbers")),
    "baselines": ((Mapping, type(None), float), "mappings"),
    **dict.fromkeys(("changed", "artifacts"), ((tuple,), "tuples")),
    "predictions": ((os.PathLike, type(None), float), "paths"),
}
MOST_LISTED, FEW = 100, 3  # names that a message lists; of more, these
NAMED = ("model", "task", "protocol", "budget")  # columns whose values are options of these groups, too


class RecordFrame(pd.DataFrame):
    """Records, one per row. `to_csv` and the view of a notebook leave out the columns that hold mappings."""

    @property
    def _constructor(self) -> type["RecordFrame"]:
        return RecordFrame

    def flat(self) -> pd.DataFrame:
        """The columns that hold one value; `changed` as text."""
        nested = [name for name in self if any(isinstance(value, Mapping) for value in self[name])]
        frame = pd.DataFrame(self).drop(columns=nested)
        if "changed" in frame:
            frame["changed"] = [format_settings(pairs) for pairs in frame["changed"]]
        return frame

    def to_csv(self, *arguments: Any, **options: Any) -> Any:
        return self.flat().to_csv(*arguments, **options)

    def _repr_html_(self) -> str | None:
        return self.flat()._repr_html_()


def cell_name(cell: Any) -> str | os.PathLike[str]:
    """The name of a cell: itself, or the id in a row of `records()`. Raises UsageError for anything else."""
    if isinstance(cell, (str, os.PathLike)):
        return cell
    if isinstance(cell, pd.DataFrame) and len(cell) == 1:
        cell = cell.iloc[0]
    if isinstance(cell, (pd.Series, Mapping)) and isinstance(cell.get("id"), str):
        return cell["id"]
    shown = f"{len(cell)} rows" if isinstance(cell, pd.DataFrame) else type(cell).__name__
    raise UsageError(f"a cell is an id, a path or a row of longhaul.records(), not {shown}")


def record_frame(cells: Any) -> pd.DataFrame:
    """A frame of `records()` or `run()`, also several joined by `pandas.concat`, with a new index.

    Raises UsageError for anything else, for a column that it lacks or that holds another kind, and for a cell twice.
    """
    needed = "a frame of longhaul.records() or longhaul.run() is expected"
    if not isinstance(cells, pd.DataFrame):
        raise UsageError(f"records: {needed}, not a {type(cells).__name__}")
    if missing := [name for name in COLUMNS if name not in cells]:
        few = ", ".join(missing[:FEW]) + (", ..." if len(missing) > FEW else "")
        raise UsageError(f"records lacks the columns {few}: {needed}, with all its columns")
    for name, (kinds, shown) in KINDS.items():
        if not all(isinstance(value, kinds) for value in cells[name]):
            raise UsageError(f"records: the column {name} holds other values than {shown}: {needed}")
    if not all(isinstance(score, Real | None) for scores in cells["tested"] for score in scores.values()):
        raise UsageError(f"records: the column tested holds other values than numbers: {needed}")
    if (twice := cells["id"].duplicated()).any():
        raise UsageError(f"records has the cell {cells['id'][twice].iloc[0]} twice: .drop_duplicates('id') keeps one")
    return cells.reset_index(drop=True)


def selected(cells: pd.DataFrame, where: Mapping[str, Any]) -> pd.DataFrame:
    """The rows with these values. Raises UsageError for an unknown column, and for a value that no record can have."""
    for column, value in where.items():
        if column not in cells:
            raise UsageError(f"records have no column '{column}': {did_you_mean(column, cells.columns)}")
        values = list(value) if isinstance(value, (list, tuple, set)) else [value]
        check_values(column, values, cells[column])
        cells = cells[cells[column].isin(values)]
    return cells.reset_index(drop=True)


def check_values(column: str, values: Sequence[Any], present: pd.Series) -> None:
    """Raises UsageError for a value that the column cannot hold, and for a name that neither records nor conf/ have."""
    if not values:
        raise UsageError(f"{column}=[]: no value; leave {column} out, or name one or more")
    kinds = {type(value) for value in present.dropna().tolist()}
    names = set(present.dropna()) if kinds <= {str} else set()
    names |= set(names_in(column)) if column in NAMED else set()
    for value in values:
        if kinds and not holds(kinds, value, has_missing=bool(present.isna().any())):
            shown = " or ".join(sorted(kind.__name__ for kind in kinds))
            raise UsageError(f"{column}={value!r}: the column holds {shown}")
        if names and value is not None and value not in names:
            few = sorted(names)[:FEW]
            listed = None if len(names) <= MOST_LISTED else [*few, f"and {len(names) - FEW:,} more"]
            raise UsageError(f"no record has {column}={value!r}: {did_you_mean(str(value), names, listed)}")


def holds(kinds: set[type], value: Any, *, has_missing: bool) -> bool:
    """Whether a column with values of these types may hold the value; None stands for a missing one."""
    if value is None:
        return has_missing
    if isinstance(value, (int, float, np.number)) and not isinstance(value, bool):
        return float in kinds or (int in kinds and value == int(value))
    return type(value) in kinds and not isinstance(value, Mapping)
