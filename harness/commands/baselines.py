"""do=baselines: fit the simple predictors of tasks and score them on the examples that cells are tested on.

A cell does the same when it ends. This verb adds what is missing, for example after a task got a new predictor: with
`rerun=all` it measures again what is there.
"""

import json
from collections.abc import Sequence

from omegaconf import DictConfig

from harness.commands.mistakes import require_choice
from harness.commands.prepare import prepared
from harness.config.schema import Rerun
from harness.config.sweep import Command, expand_all
from harness.progress import Progress
from harness.records import baselines


def run_all(commands: Sequence[Command], launcher: str = "") -> int:
    """Measure the predictors of these commands' cells, once for all cells that share data and updates."""
    require_choice(commands)
    cells = {}
    for planned in expand_all(commands).cells:
        config = planned.cell.config
        cells.setdefault(json.dumps([config["task"], baselines.seen_by(config["train"])], sort_keys=True), planned)
    kept = [
        measure(planned.cfg, planned.cell.config, f"{number} of {len(cells)}")
        for number, planned in enumerate(cells.values(), 1)
    ]
    return int(not all(kept))


def measure(cfg: DictConfig, config: dict, position: str) -> bool:
    """Whether there is a file then. Raises UsageError for data that are missing or broken."""
    with Progress() as progress:
        task, data = prepared(cfg, progress)
        from harness.training.baselines import ensure  # imports torch

        path = baselines.path_of(cfg.paths.records, cfg.task.name, baselines.key_of(config, data.fingerprint))
        if cfg.rerun is Rerun.all:
            path.unlink(missing_ok=True)
        progress.say(f"{position}: {cfg.task.name}")
        measured = ensure(cfg.paths.records, config, data, task, cfg.train.eval_batch_size, progress.say)
    kept = path.is_file()
    print(f"{path}: {'measured' if measured else 'there already' if kept else 'not measured'}")
    return kept
