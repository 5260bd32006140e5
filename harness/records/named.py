"""The names of runs, and the record that a user means by an id, a file or a run directory.

The name of a run is its path below the run folders and, with `.json`, below the records:
`<task>/<protocol>/<budget>/<model>-s<seed>-<first 8 digits of the cell's id>`, as `harness.config.cell.Cell.path` gives
it.
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.records import record
from harness.records.to_try import to_try

EXPORTED = "record.json"  # in the folder of an exported model
RUN = re.compile(
    r"(?P<task>.+)/(?P<protocol>[^/]+)/(?P<budget>[^/]+)/(?P<model>[^/]+)-s(?P<seed>\d+)-(?P<id>[0-9a-f]{8})"
)


def run_parts(name: str) -> dict[str, str] | None:
    """{"task": .., "protocol": .., "budget": .., "model": .., "seed": .., "id": ..}; None for another kind of path."""
    match = RUN.fullmatch(name)
    return match.groupdict() if match else None


def find(
    name: str | os.PathLike[str], records: Sequence[dict[str, Any]], root: str | os.PathLike[str]
) -> dict[str, Any]:
    """The record that a name means, with its path as `file`. The name of a run ends with digits of the cell's id.

    The folder of an exported model, and the name of weights to try, mean the record in it. Raises UsageError.
    """
    path = to_try(name) or Path(name)
    if (path / EXPORTED).is_file():
        exported = record.read(path / EXPORTED)
        same = (entries for entries in records if entries["cell"]["id"] == exported["cell"]["id"])
        return next(same, exported | {"file": path / EXPORTED})  # with the scores of its examples, if they are here
    if path.suffix == ".json" and path.is_file():
        return record.read(path) | {"file": path}
    digits = (path.resolve() if path.is_dir() else path).name.rpartition("-")[2]
    if not re.fullmatch("[0-9a-f]{6,16}", digits):
        raise UsageError(
            f"{name} is no cell: type the first six or more digits of a cell's id, the path of its record (.json) or "
            "of its run folder, or its line in python run.py do=status"
        )
    matches = [entries for entries in records if entries["cell"]["id"].startswith(digits)]
    if not matches:
        raise UsageError(f"there is no record of {name} below {root}; python run.py do=status lists all")
    if len(matches) > 1:
        ids = [entries["cell"]["id"] for entries in matches[:4]]
        if len(matches) > 4:
            ids.append("...")
        raise UsageError(f"{name} fits {len(matches)} cells: {', '.join(ids)}; type more digits")
    return matches[0]
