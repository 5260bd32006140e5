"""The frame of `longhaul.records`, and what names a cell in Python."""

import os
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from harness.config.compose import options
from harness.config.table_rows import format_settings
from harness.errors import UsageError, did_you_mean

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


def selected(cells: pd.DataFrame, where: Mapping[str, Any]) -> pd.DataFrame:
    """The rows with these values. Raises UsageError for an unknown column, and for a value that no record can have."""
    for column, value in where.items():
        if column not in cells:
            raise UsageError(f"records have no column '{column}': {did_you_mean(column, cells.columns)}")
        values = list(value) if isinstance(value, (list, tuple, set)) else [value]
        check_values(column, values, cells[column])
        cells = cells[cells[column].isin(values)]
    return cells.reset_index(drop=True)


def check_values(column: str, values: Iterable[Any], present: pd.Series) -> None:
    is_text = all(isinstance(value, str) for value in present.dropna())
    names = set(present.dropna()) if is_text else set()
    names |= {name for name, _ in options(column)} if column in NAMED else set()
    for value in values:
        if isinstance(value, str) and names and value not in names:
            raise UsageError(f"no record has {column}='{value}': {did_you_mean(value, names)}")
        if isinstance(value, str) and not is_text:
            kind = type(present.dropna().iloc[0]).__name__
            raise UsageError(f"{column}='{value}' is a text, the column holds {kind}")
