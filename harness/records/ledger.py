"""The ledger: the published numbers, one CSV per table in `results/paper/`, transcribed as printed.

Columns `paper,table,row,column,condition,value,unit,higher_is_better,note`. `value` is the printed string (empty for a
dash; hyper-parameters and formulas are text); `entries` adds `number`, NaN where no number is printed.
`INDEX.csv` says how many entries each table has, `averages.yaml` which of its columns are means of others.
"""

import csv
import io
import os
import re
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from harness.errors import UsageError, did_you_mean, one_line, shown
from tasks.regular_files import read_bytes

COLUMNS = ("paper", "table", "row", "column", "condition", "value", "unit", "higher_is_better", "note")
NAME = re.compile(r"\w[\w.+-]{0,99}")  # of a file in the folder
MAX_BYTES = 2**22
TRUTH = {"true": True, "false": False, "": None}


def entries(name: str, root: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """The entries of one table, as printed. Raises UsageError for a table or a column that is not there."""
    path = Path(root) / f"{name}.csv"
    if not NAME.fullmatch(name) or not os.path.lexists(path):
        names = (table.stem for table in Path(root).glob("*_table*.csv"))
        raise UsageError(f"no published table '{shown(name[:60])}' in {root}: {did_you_mean(name, names)}")
    try:
        reader = csv.DictReader(io.StringIO(read_bytes(path, MAX_BYTES).decode(), newline=""), strict=True)
        fields, rows = tuple(reader.fieldnames or ()), list(reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{path}: no ledger: {getattr(error, 'strerror', None) or one_line(error)}") from error
    if fields != COLUMNS:
        raise UsageError(f"{path}: columns are {','.join(fields)[:200]}, not {','.join(COLUMNS)}")
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
