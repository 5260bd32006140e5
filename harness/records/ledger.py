"""The ledger: the published numbers, one CSV per table in `results/paper/`, transcribed as printed.

Columns `paper,table,row,column,condition,value,unit,higher_is_better,note`. `value` is the printed string (empty for a
dash; hyper-parameters and formulas are text); `entries` adds `number`, NaN where no number is printed.
`INDEX.csv` says how many entries each table has, `averages.yaml` which of its columns are means of others.
"""

import csv
import os
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from harness.errors import UsageError, did_you_mean

COLUMNS = ("paper", "table", "row", "column", "condition", "value", "unit", "higher_is_better", "note")
TRUTH = {"true": True, "false": False, "": None}


def tables(root: str | os.PathLike[str]) -> dict[str, int]:
    """Name of every table -> number of its entries, from INDEX.csv."""
    with open(Path(root) / "INDEX.csv", encoding="utf-8", newline="") as file:
        return {row["file"].removesuffix(".csv"): int(row["n_cells"]) for row in csv.DictReader(file)}


def entries(name: str, root: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """The entries of one table, as printed. Raises UsageError for a table or a column that is not there."""
    path = Path(root) / f"{name}.csv"
    if not path.is_file():
        names = (table.stem for table in path.parent.glob("*_table*.csv"))
        raise UsageError(f"no published table '{name}' in {root}: {did_you_mean(name, names)}")
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file, strict=True)
        if tuple(reader.fieldnames or ()) != COLUMNS:
            raise UsageError(f"{path}: columns are {','.join(reader.fieldnames or ())}, not {','.join(COLUMNS)}")
        rows = list(reader)
    for line, entry in enumerate(rows, 2):
        if None in entry or None in entry.values():
            raise UsageError(f"{path}: row {line} does not have {len(COLUMNS)} fields")
        if entry["higher_is_better"] not in TRUTH:
            raise UsageError(
                f"{path}: row {line}: higher_is_better is '{entry['higher_is_better']}', not true or false"
            )
        entry["higher_is_better"] = TRUTH[entry["higher_is_better"]]
        entry["number"] = number(entry["value"])
    return rows


def number(text: str) -> float:
    """The printed number, NaN for text or a dash."""
    try:
        return float(Decimal(text))
    except InvalidOperation:
        return float("nan")


def decimals(text: str) -> int:
    """Digits after the point, as printed."""
    return len(text.partition(".")[2])
