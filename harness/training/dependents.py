"""Cells that cannot run are refused before others do: so that a typo cannot waste a pre-training run."""

import json
from collections.abc import Sequence

from harness.config.declared import explained, missing_file, missing_file_message
from harness.errors import UsageError
from harness.progress import Progress, announce_torch
from harness.records.record import is_done
from harness.training.process import group
from harness.training.run_cell import CellRequest, CellResult


def refused_at_once(requests: Sequence[CellRequest]) -> dict[str, CellResult]:
    """{id: result} of the cells whose files are missing, and of those that could not begin after other cells.

    The latter wait for cells that are not done yet. They are built without memory, and their data are prepared and
    read, once for all seeds.
    """
    refused: dict[str, CellResult] = {}
    problems: dict[str, str | None] = {}  # of a file or a configuration
    for request in requests:
        cell, cfg = request.cell, request.cfg
        missing, waits = missing_file(cfg), not all(is_done(first.record) for first in request.depends_on)
        if not (missing or waits) or is_done(cell.record_path(cfg)):
            continue
        same = {name: value for name, value in cell.config.items() if name not in ("seed", "dependencies")}
        key = str(missing or json.dumps(same))
        if key not in problems:
            problems[key] = missing_file_message(missing, cfg) if missing else problem_of(request)
        if problem := problems[key]:
            refused[cell.id] = CellResult(str(cell), "refused", 2, problem)
    return refused


def problem_of(request: CellRequest) -> str | None:
    """Why the cell cannot run, whatever its dependencies give; None if nothing is in its way."""
    if group():  # one of several processes
        return None
    announce_torch()
    from harness.config.build import build_or_refuse
    from harness.training.checkpoints.dependency import require_prefixes
    from tasks.checks import DataError

    try:
        built = build_or_refuse(request.cfg)
        for dependency in request.depends_on:
            require_prefixes(built.model.state_dict(), dependency.weights)
        with Progress() as progress:
            built.task.prepare(progress)
            built.task.load()
    except (UsageError, DataError) as error:
        return explained(error, request.cfg)
    return None
