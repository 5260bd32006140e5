"""The ledger: the published numbers, one CSV per table in `results/paper/`, transcribed as printed.

Columns `paper,table,row,column,condition,value,unit,higher_is_better,note`. `value` is the printed string (empty for a
dash; hyper-parameters and formulas are text); the loaded frame adds `number`, NaN where no number is printed.
`INDEX.csv` says how many entries each table has, `averages.yaml` which of its columns are means of others.
"""

import csv
import os
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from harness.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("paper", "table", "row", "column", "condition", "value", "unit", "higher_is_better", "note")
TRUTH = {"true": True, "false": False, "": None}
KEY = ("row", "column", "condition")


def tables(root: str | os.PathLike[str]) -> dict[str, int]:
    """Name of every table -> number of its entries, from INDEX.csv."""
    with open(Path(root) / "INDEX.csv", encoding="utf-8", newline="") as file:
        return {row["file"].removesuffix(".csv"): int(row["n_cells"]) for row in csv.DictReader(file)}


def entries(name: str, root: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """The entries of one table, as printed. Raises UsageError for a table or a column that is not there."""
    path = Path(root) / f"{name}.csv"
    if not path.is_file():
        known = (other.stem for other in path.parent.glob("*_table*.csv"))
        raise UsageError(f"no published table '{name}' in {root}: {did_you_mean(name, known)}")
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file, strict=True)
        if tuple(reader.fieldnames or ()) != COLUMNS:
            raise UsageError(f"{path}: columns are {','.join(reader.fieldnames or ())}, not {','.join(COLUMNS)}")
        found = list(reader)
    for line, entry in enumerate(found, 2):
        if None in entry or None in entry.values():
            raise UsageError(f"{path}: row {line} does not have {len(COLUMNS)} fields")
        if entry["higher_is_better"] not in TRUTH:
            raise UsageError(
                f"{path}: row {line}: higher_is_better is '{entry['higher_is_better']}', not true or false"
            )
        entry["higher_is_better"] = TRUTH[entry["higher_is_better"]]
        entry["number"] = number(entry["value"])
    return found


def load(name: str, root: str | os.PathLike[str]) -> "pd.DataFrame":
    """One table as a frame, `value` as printed and `number`. Raises UsageError as `entries` does."""
    import pandas as pd

    return pd.DataFrame(entries(name, root), columns=[*COLUMNS, "number"])


def number(text: str) -> float:
    """The printed number, NaN for text or a dash."""
    try:
        return float(Decimal(text))
    except InvalidOperation:
        return float("nan")


def decimals(text: str) -> int:
    """Digits after the point, as printed."""
    return len(text.partition(".")[2])


def validate(root: str | os.PathLike[str]) -> list[str]:
    """Problems of the ledger, one line each."""
    index = tables(root)
    files = {path.stem for path in Path(root).glob("*.csv")} - {"INDEX"}
    problems = [f"{name}: in INDEX.csv, no file" for name in sorted(index.keys() - files)]
    problems += [f"{name}: not in INDEX.csv" for name in sorted(files - index.keys())]
    with open(Path(root) / "averages.yaml", encoding="utf-8") as file:
        declared = yaml.safe_load(file)
    for name in sorted(index.keys() & files):
        try:
            found = entries(name, root)
        except (UsageError, csv.Error) as error:
            problems.append(str(error))
            continue
        problems += [f"{name}: {problem}" for problem in _problems(name, found, index[name])]
        exceptions = declared["exceptions"].get(name, [])
        for average, parts in declared["averages"].get(name, {}).items():
            problems += [f"{name}: {problem}" for problem in _averages(found, average, parts, exceptions)]
    return problems


def _problems(name: str, found: list[dict[str, Any]], count: int) -> list[str]:
    problems = [] if len(found) == count else [f"{len(found)} entries, INDEX.csv says {count}"]
    paper, _, table = name.partition("_table")
    seen = set()
    for entry in found:
        key = tuple(entry[part] for part in KEY)
        if key in seen:
            problems.append(f"twice: {key}")
        seen.add(key)
        if (entry["paper"], int(entry["table"])) != (paper, int(table)):
            problems.append(f"{key}: says it is of {entry['paper']} table {entry['table']}")
        if not entry["row"] or not entry["column"]:
            problems.append(f"{key}: no row or no column")
    return problems


def _averages(found: list[dict[str, Any]], average: str, parts: list[str], exceptions: list[list[Any]]) -> list[str]:
    """Each entry of the column `average` against the mean of its `parts`, in exact decimals."""
    value = {tuple(entry[part] for part in KEY): entry["value"] for entry in found}
    known = {(row, column, condition): Decimal(str(mean)) for row, column, condition, mean in exceptions}
    problems = []
    for (row, column, condition), printed in value.items():
        if column != average:
            continue
        missing = [part for part in parts if not value.get((row, part, condition))]
        if missing:
            problems.append(f"{row}: {average} printed, but {missing[0]} is not")
            continue
        mean = sum(Decimal(value[row, part, condition]) for part in parts) / len(parts)
        rounding = Decimal(1).scaleb(-decimals(printed)) / 2
        if expected := known.get((row, column, condition)):
            if abs(mean - expected) > Decimal("0.0001"):
                problems.append(f"{row}: {average} recomputes to {mean}, averages.yaml says {expected}")
            if abs(mean - Decimal(printed)) <= rounding:
                problems.append(f"{row}: {average} is an exception, but {printed} is the mean")
        elif abs(mean - Decimal(printed)) > rounding:
            problems.append(f"{row}: {average} printed {printed}, recomputes to {mean}")
    return problems
