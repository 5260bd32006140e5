"""The name of a run: its path below the run folders and, with `.json`, below the records.

`<task>/<protocol>/<budget>/<model>-s<seed>-<first 8 digits of the cell's id>`, as `harness.config.cell.Cell.path` gives
it.
"""

import re

PATTERN = re.compile(
    r"(?P<task>.+)/(?P<protocol>[^/]+)/(?P<budget>[^/]+)/(?P<model>[^/]+)-s(?P<seed>\d+)-(?P<id>[0-9a-f]{8})"
)


def parts(name: str) -> dict[str, str] | None:
    """{"task": .., "protocol": .., "budget": .., "model": .., "seed": .., "id": ..}; None for another kind of path."""
    found = PATTERN.fullmatch(name)
    return found.groupdict() if found else None
