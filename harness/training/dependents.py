"""Cells that start from other cells are checked before those run: so that a typo cannot waste a pre-training run."""

import json
from collections.abc import Iterator, Sequence

from harness.errors import UsageError
from harness.progress import Progress, announce_torch
from harness.training.run_cell import CellRequest, CellResult, explained, is_done


def refused_dependents(requests: Sequence[CellRequest]) -> dict[str, CellResult]:
    """{id: result} of the cells that could not begin after the cells that they depend on, which are not done yet.

    Each is built without memory, and its data are prepared and read, once for all its seeds.
    """
    refused: dict[str, CellResult] = {}
    problems: dict[str, str | None] = {}
    for request in waiting(requests):
        cell = request.cell
        key = json.dumps({name: value for name, value in cell.config.items() if name not in ("seed", "dependencies")})
        if key not in problems:
            announce_torch()
            problems[key] = problem_of(request)
        if problem := problems[key]:
            refused[cell.id] = CellResult(str(cell), "refused", 2, problem)
    return refused


def waiting(requests: Sequence[CellRequest]) -> Iterator[CellRequest]:
    """The cells to run with a dependency that is not done."""
    for request in requests:
        if all(is_done(dependency.record) for dependency in request.depends_on):
            continue
        if not is_done(str(request.cell.record_path(request.cfg))):
            yield request


def problem_of(request: CellRequest) -> str | None:
    """Why the cell cannot run, whatever its dependencies give; None if nothing is in its way."""
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
