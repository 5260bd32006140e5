"""do=outputs cells=<a>,<b>: what trained cells give for each test example: forecasts, texts, clouds, sounds."""

from collections.abc import Sequence

from omegaconf import DictConfig

from harness.config.overrides import typed_values
from harness.errors import UsageError
from harness.progress import Progress


def run(cfg: DictConfig, overrides: Sequence[str]) -> int:
    if not cfg.cells:
        raise UsageError("do=outputs takes cells=<id>,<id>: six or more digits of each (python run.py do=status)")
    from harness.training.checkpoints.saved_model import load
    from harness.training.extras.outputs import write_outputs

    for name in cfg.cells:
        saved = load(name, cfg, typed_values(overrides))
        with Progress() as progress:
            print(write_outputs(saved, None, cfg, progress))
    return 0
