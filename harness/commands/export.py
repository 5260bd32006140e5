"""do=export cells=<a>,<b>: the weights of trained cells as safetensors, with configuration, record and card."""

from collections.abc import Sequence

from omegaconf import DictConfig

from harness.config.overrides import typed_values
from harness.errors import UsageError


def run(cfg: DictConfig, overrides: Sequence[str]) -> int:
    if not cfg.cells:
        raise UsageError("do=export takes cells=<id>,<id>: six or more digits of each (python run.py do=status)")
    from harness.training.checkpoints.saved_model import export, load

    for cell in cfg.cells:
        print(export(load(cell, cfg, typed_values(overrides)), None, cfg))
    return 0
