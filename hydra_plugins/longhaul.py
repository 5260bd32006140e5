"""The Hydra sweepers and launcher of the harness. Hydra loads plugins only from the package `hydra_plugins`.

`conf/hydra/launcher/*.yaml` name a launcher by what runs the cells. Hydra imports this module at every start, so it
imports nothing heavy.
"""

from collections.abc import Sequence
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.hydra_config import HydraConfig
from hydra.plugins.launcher import Launcher
from omegaconf import DictConfig


class Sweeper(BasicSweeper):
    """Hydra's BasicSweeper, except that all commands go to the launcher at once and no file is written."""

    def sweep(self, arguments: list[str]) -> Any:
        from harness.config.overrides import split_sweep

        commands = split_sweep([*self._parse_config(), *arguments], self.hydra_context.config_loader)
        return self.launcher.launch(commands, initial_job_idx=0)


class OptunaSweeper(Sweeper):
    """`trials` of a search whose draws follow from `seed`: harness/commands/tune.py."""

    def __init__(self, trials: int, seed: int):
        super().__init__(max_batch_size=None)
        self.trials, self.seed = trials, seed

    def sweep(self, arguments: list[str]) -> Any:
        from harness.commands.tune import search

        HydraConfig.instance().set_config(self.config)
        if status := search(arguments, self.trials, self.seed, self.launcher.launcher):
            raise SystemExit(status)
        return []


class CellLauncher(Launcher):
    """`launcher`: `here`, or a scheduler. It gets all commands of a sweep at once, so each cell runs once."""

    def __init__(self, launcher: str):
        self.launcher = launcher

    def setup(self, *, hydra_context: Any, task_function: Any, config: DictConfig) -> None:
        self.config = config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[Any]:
        from harness.commands.cli import dispatch_all

        HydraConfig.instance().set_config(self.config)
        if status := dispatch_all(job_overrides, self.launcher):
            raise SystemExit(status)
        return []
