"""Checks of the ledger: complete, without duplicates, and its printed averages recomputed in exact decimals."""

import csv
import os
from decimal import Decimal
from pathlib import Path
from typing import Any

import yaml

from harness.errors import UsageError
from harness.records.ledger import decimals, entries

KEY = ("row", "column", "condition")


def tables(root: str | os.PathLike[str]) -> dict[str, int]:
    """Name of every table -> number of its entries, from INDEX.csv."""
    with open(Path(root) / "INDEX.csv", encoding="utf-8", newline="") as file:
        return {row["file"].removesuffix(".csv"): int(row["n_cells"]) for row in csv.DictReader(file)}


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
            rows = entries(name, root)
        except (UsageError, csv.Error) as error:
            problems.append(str(error))
            continue
        problems += [f"{name}: {problem}" for problem in _problems(name, rows, index[name])]
        exceptions = declared["exceptions"].get(name, [])
        for average, parts in declared["averages"].get(name, {}).items():
            problems += [f"{name}: {problem}" for problem in _averages(rows, average, parts, exceptions)]
    return problems


def _problems(name: str, rows: list[dict[str, Any]], count: int) -> list[str]:
    problems = [] if len(rows) == count else [f"{len(rows)} entries, INDEX.csv says {count}"]
    paper, _, table = name.partition("_table")
    seen = set()
    for entry in rows:
        key = tuple(entry[part] for part in KEY)
        if key in seen:
            problems.append(f"twice: {key}")
        seen.add(key)
        if (entry["paper"], int(entry["table"])) != (paper, int(table)):
            problems.append(f"{key}: says it is of {entry['paper']} table {entry['table']}")
        if not entry["row"] or not entry["column"]:
            problems.append(f"{key}: no row or no column")
    return problems


def _averages(rows: list[dict[str, Any]], average: str, parts: list[str], exceptions: list[list[Any]]) -> list[str]:
    """Each entry of the column `average` against the mean of its `parts`, in exact decimals."""
    value = {tuple(entry[part] for part in KEY): entry["value"] for entry in rows}
    means = {(row, column, condition): Decimal(str(mean)) for row, column, condition, mean in exceptions}
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
        if expected := means.get((row, column, condition)):
            if abs(mean - expected) > Decimal("0.0001"):
                problems.append(f"{row}: {average} recomputes to {mean}, averages.yaml says {expected}")
            if abs(mean - Decimal(printed)) <= rounding:
                problems.append(f"{row}: {average} is an exception, but {printed} is the mean")
        elif abs(mean - Decimal(printed)) > rounding:
            problems.append(f"{row}: {average} printed {printed}, recomputes to {mean}")
    return problems
