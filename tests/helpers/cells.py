"""Cells of the smoke budget, made shorter, and how they are asked for."""

from collections.abc import Sequence

from omegaconf import DictConfig

from harness.config.cell import cell_of
from harness.config.compose import copied, option_config
from harness.training.run_cell import CellRequest

EXAMPLES = 40  # validation and test each: a whole batch and a part of one
TRAINED = 128  # from which every simple predictor can be fitted
SAVED_OFTEN = (  # a cell to be disturbed
    *("model=latte", "task=lra/listops", "budget=smoke", "trainer=cpu", "resources.cpus=1", "train.max_steps=24"),
    *("train.eval_every=6", "checkpoint.every_steps=4"),
)


def shorten(cfg: DictConfig) -> None:
    """Two updates before each of two evaluations, whatever a column sets, few examples and a short text to test on."""
    cfg.train.eval_every = min(cfg.train.eval_every, 2)
    cfg.train.max_steps = min(cfg.train.max_steps, 2 * cfg.train.eval_every)
    if all(isinstance(cfg.task.get(name), int) for name in ("val", "test")):
        cfg.train.eval_batch_size = min(cfg.train.eval_batch_size, 32)
        cfg.task.val, cfg.task.test = (min(cfg.task[name], EXAMPLES) for name in ("val", "test"))
        if isinstance(cfg.task.get("train"), int):
            cfg.task.train = min(cfg.task.train, max(TRAINED, cfg.train.batch_size))
    if "test_bytes" in cfg.task:
        # windows of further lengths are read one at a time
        cfg.task.test_bytes = min(cfg.task.test_bytes, 200 if cfg.task.get("lengths") else 800)


def with_model(cfg: DictConfig, name: str) -> DictConfig:
    """The configuration with another model of `conf/model/`. A new composition would take a hundred times as long."""
    cfg = copied(cfg)
    cfg.model = option_config("model", name)
    return cfg


def request_of(cfg: DictConfig, overrides: Sequence[str] = (), **settings) -> CellRequest:
    cell = cell_of(cfg, [dependency.id for dependency in settings.get("depends_on", ())])
    return CellRequest(cell, cfg, overrides, **settings)
