"""Which kernels the models of this process compute with on a CPU: torch's, or with `resources.native` compiled ones."""

import os

from omegaconf import DictConfig


def choose_kernels(cfg: DictConfig) -> None:
    """Say it to `models.ops.native`, here and in the processes that are started from here."""
    os.environ["LONGHAUL_NATIVE"] = str(int(cfg.resources.native))
