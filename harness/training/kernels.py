"""What the models of this process compute with: torch's kernels, or those that `resources.kernels` names."""

import os

from omegaconf import DictConfig

from harness.config.schema import Kernels


def choose_kernels(cfg: DictConfig) -> None:
    """Say it to `models.ops.native`, here and in the processes that are started from here."""
    os.environ["LONGHAUL_NATIVE"] = str(int(cfg.resources.kernels is Kernels.native))
