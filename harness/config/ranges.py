"""Ranges of the harness' own keys, and of a backbone's layers. Constructors check what else belongs to them."""

import math
import re
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from harness.errors import UsageError

AT_LEAST_0 = ("seed", "cluster.max_requeues", "cluster.signal_s", "checkpoint.every_s", "train.select.after")
AT_LEAST_1 = (
    *("n_jobs", "checkpoint.every_steps", "cluster.jobs_at_once", "cluster.array_size", "train.max_steps"),
    *("train.batch_size", "train.micro_batch_size", "train.batch_tokens", "train.micro_batch_tokens"),
    *("train.eval_batch_size", "train.eval_every", "train.patience", "trainer.devices", "trainer.num_nodes"),
    *("backbone.layers", "backbone.heads", "resources.nodes", "resources.devices", "resources.cpus"),
    *("resources.minutes", "resources.cells_per_job"),
    *("resources.at_once", "bench.dim", "bench.heads", "bench.batch", "bench.layers", "bench.rounds"),
    *("bench.chunk", "bench.prompt", "bench.top_k"),
)
NAME = re.compile(r"\w[\w.+-]{0,59}(/\w[\w.+-]{0,59})*")  # of a task with its family
LEAST = {**dict.fromkeys(AT_LEAST_0, 0), **dict.fromkeys(AT_LEAST_1, 1)}
POSITIVE = (
    *("train.optimizer.lr", "train.clip_norm", "train.clip_value", "train.clip_each"),
    *("resources.memory_gb", "bench.limit_s", "bench.limit_gb"),
)


def check_ranges(cfg: DictConfig) -> None:
    """Raises UsageError for a number that cannot be meant; no setting of a backbone is below 0.

    Values that are missing or do not resolve are passed by.
    """
    check_names(cfg)
    for key in ("trainer.devices", "trainer.num_nodes"):
        value = value_of(cfg, key)
        if isinstance(value, (bool, float)) or (isinstance(value, str) and value != "auto"):
            raise UsageError(f"{key}={value}: a whole number is expected")
    widths = {key for key in map(str, cfg.backbone) if key.endswith("dim")} - {"ffn_dim"}  # 0: no feed-forward network
    least_of = {f"backbone.{key}": int(key in widths) for key in map(str, cfg.backbone)} | LEAST
    for key in (*least_of, *POSITIVE):
        check_range(cfg, key, least_of.get(key))
    check_shares(cfg)


def check_range(cfg: DictConfig, key: str, least: int | None = None) -> None:
    """Raises UsageError for a number that is not finite, or less than `least`, or than the key's own least."""
    value, least = value_of(cfg, key), LEAST.get(key, least)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return
    if not math.isfinite(value):
        raise UsageError(f"{key}={value}: a finite number is expected")
    if least is not None and value < least:
        raise UsageError(f"{key}={value} is less than {least}")
    if key in POSITIVE and value <= 0:
        raise UsageError(f"{key}={value} is not more than 0")


def check_shares(cfg: DictConfig) -> None:
    """Raises UsageError for a dropout of a model or backbone that is no share."""
    for key in (f"{part}.{name}" for part in ("model", "backbone") for name in cfg[part]):
        value = value_of(cfg, key) if key.endswith("dropout") else None
        if isinstance(value, (int, float)) and not 0 <= value <= 1:
            raise UsageError(f"{key}={value} is not between 0 and 1")


def check_names(cfg: DictConfig) -> None:
    """Raises UsageError for a name that is no part of a path: records and run folders are called by these."""
    for key in ("model.name", "task.name", "protocol.name", "budget.name"):
        value = value_of(cfg, key)
        if (value is not None and not NAME.fullmatch(str(value))) or (key != "task.name" and "/" in str(value)):
            raise UsageError(f"{key}={str(value)[:60]}: a name has letters, digits, and _ . + - between them")


def value_of(cfg: DictConfig, key: str) -> Any:
    try:
        return OmegaConf.select(cfg, key)
    except (OmegaConfBaseException, ValueError):
        return None
