"""Cells of the smoke budget, made shorter."""

from omegaconf import DictConfig


def shorten(cfg: DictConfig) -> None:
    """Two updates before each of two evaluations, whatever a column sets, and a short text to test on."""
    cfg.train.eval_every = min(cfg.train.eval_every, 2)
    cfg.train.max_steps = min(cfg.train.max_steps, 2 * cfg.train.eval_every)
    if "test_bytes" in cfg.task:
        cfg.task.test_bytes = min(cfg.task.test_bytes, 800)
