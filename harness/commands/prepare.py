"""do=prepare: download or generate the data of tasks, before any job reads them."""

import json
from collections.abc import Sequence
from typing import Any

from omegaconf import DictConfig

from harness.commands.mistakes import require_choice
from harness.config.compose import arguments
from harness.config.sweep import Command, expand_all
from harness.errors import UsageError, one_line
from harness.progress import Progress, announce_torch


def run(cfg: DictConfig, overrides: Sequence[str]) -> int:
    """For scripts, which have one command."""
    return run_all([Command(cfg, tuple(overrides))])


def run_all(commands: Sequence[Command], launcher: str = "") -> int:
    """Prepare each task of these commands once, on this machine, because compute nodes may lack internet."""
    require_choice(commands)
    plan = expand_all(commands)
    tasks = {json.dumps(planned.cell.config["task"], sort_keys=True): planned.cfg for planned in plan.cells}
    for cfg in tasks.values():
        prepare(cfg)
    return 0


def prepare(cfg: DictConfig) -> None:
    """Prepare the data of one task. Raises UsageError for missing or broken data."""
    with Progress() as progress:
        _, data = prepared(cfg, progress)
    sizes = ", ".join(f"{count} {split}" for split, count in data.sizes.items())
    print(f"{cfg.task.name}: {sizes} · source {data.source} · fingerprint {data.fingerprint[:12]}")


def prepared(cfg: DictConfig, progress: Progress) -> tuple[Any, Any]:
    """The task of a configuration with its data, prepared and loaded. Raises UsageError."""
    announce_torch()
    from harness.config.instantiate import instantiate
    from tasks.checks import DataError

    task = instantiate(arguments(cfg.task), "task", list(cfg.trusted_packages))
    try:
        task.prepare(progress)
        return task, task.load()
    except DataError as error:
        raise UsageError(one_line(error)) from error
    except ValueError as error:  # a value that only the data can refuse, such as the size of a trained vocabulary
        raise UsageError(f"task={cfg.task.name}: {one_line(error)}") from error
