"""The record that a user means by a name: an id, a file, a run directory."""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.records import record


def find(
    name: str | os.PathLike[str], records: Sequence[dict[str, Any]], root: str | os.PathLike[str]
) -> dict[str, Any]:
    """The record that a name means, with its path as `file`. Names of runs and run folders end with the id's digits.

    Raises UsageError.
    """
    path = Path(name)
    if path.suffix == ".json" and path.is_file():
        return record.read(path) | {"file": path}
    digits = (path.resolve() if path.is_dir() else path).name.rpartition("-")[2]
    if not re.fullmatch("[0-9a-f]{6,16}", digits):
        raise UsageError(
            f"{name} is no cell: type the first six or more digits of a cell's id, the path of its record (.json) or "
            "of its run folder, or its line in python run.py do=status"
        )
    found = [entries for entries in records if entries["cell"]["id"].startswith(digits)]
    if not found:
        raise UsageError(f"there is no record of {name} below {root}; python run.py do=status lists what there is")
    if len(found) > 1:
        ids = ", ".join(entries["cell"]["id"] for entries in found[:4])
        raise UsageError(f"{name} fits {len(found)} cells: {ids}{', ...' * (len(found) > 4)}; type more digits")
    return found[0]
