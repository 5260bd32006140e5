"""Cells of the smoke budget, made shorter."""

from omegaconf import DictConfig


def shorten(cfg: DictConfig) -> None:
    """Two evaluations, although a column may set its own number of updates, and a short text to test on."""
    cfg.train.max_steps = min(cfg.train.max_steps, 2 * cfg.train.eval_every)
    if "test_bytes" in cfg.task:
        cfg.task.test_bytes = min(cfg.task.test_bytes, 800)
