"""Lightning's Trainer for one cell: devices, accumulation, precision, loggers, the cluster environment."""

import logging
import math
import os
import warnings
from typing import Any

import lightning.pytorch as pl
from lightning.fabric.plugins.environments import LightningEnvironment, SLURMEnvironment, TorchElasticEnvironment
from omegaconf import DictConfig, OmegaConf

from harness.config.instantiate import instantiate
from harness.errors import UsageError
from harness.records.run_directory import RunDirectory
from harness.training.callback import TrainingCallback
from harness.training.checkpoints.checkpoint import SealedCheckpoints
from harness.training.extras.loggers import make_loggers
from harness.training.extras.profiling import make_profiler


def make_trainer(cfg: DictConfig, run_dir: RunDirectory, callback: TrainingCallback) -> pl.Trainer:
    """The Trainer that `trainer=` and the recipe configure; it writes nothing yet."""

    def say(line: str) -> None:
        callback.progress.say(line)  # it is set when the run begins

    silence_lightning()
    train, trusted = cfg.train, list(cfg.trusted_packages)
    world_size = devices_of(cfg)
    settings = OmegaConf.to_container(cfg.trainer, resolve=True)
    if isinstance(settings.get("profiler"), str):  # else there is none, or one that its _target_ names
        profiler = make_profiler(settings.pop("profiler"), run_dir.path, say)
    else:
        profiler = None
    return instantiate(
        settings,
        "trainer",
        trusted,
        max_steps=train.max_steps,
        precision=train.precision,
        accumulate_grad_batches=micro_batches(train, world_size),
        gradient_clip_val=train.clip_norm or train.clip_value or train.clip_each,
        gradient_clip_algorithm="value" if train.clip_value else "norm",  # of each parameter: TaskModule
        callbacks=[callback],
        plugins=[cluster_environment(world_size), SealedCheckpoints(callback.cell, run_dir)],
        logger=make_loggers(cfg, run_dir.path, say),
        profiler=profiler,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
        default_root_dir=str(run_dir.path),
    )


def devices_of(cfg: DictConfig) -> int:
    """Devices that share one cell, on all nodes."""
    devices = cfg.trainer.devices
    return (devices if isinstance(devices, int) else 1) * cfg.trainer.num_nodes


def micro_batch_size(train: Any, world_size: int) -> int:
    """Examples in one forward pass of one device."""
    return train.micro_batch_size or max(1, train.batch_size // world_size)


def micro_batches(train: Any, world_size: int) -> int:
    """Forward passes of one device in one update. Raises UsageError where they do not fill it."""
    if train.batch_tokens:
        tokens = train.micro_batch_tokens or train.batch_tokens
        return max(1, math.ceil(train.batch_tokens / (tokens * world_size)))
    size = micro_batch_size(train, world_size)
    if train.batch_size % (size * world_size):
        raise UsageError(
            f"train.batch_size={train.batch_size} is not a multiple of {size} examples on {world_size} devices"
        )
    return train.batch_size // (size * world_size)


def cluster_environment(world_size: int) -> Any:
    """Lightning's cluster environment. Requeueing belongs to `harness.training.signals` alone."""
    if world_size == 1:
        return LightningEnvironment()  # one process, whatever job it is part of
    if TorchElasticEnvironment.detect():
        return TorchElasticEnvironment()
    if SLURMEnvironment.detect():
        return SLURMEnvironment(auto_requeue=False)
    return LightningEnvironment()


def silence_lightning() -> None:
    """Hide Lightning's messages, which repeat our progress lines. Importing Lightning resets these levels."""
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    logging.getLogger("lightning.fabric").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")
    warnings.filterwarnings("ignore", message=".*does not have many workers.*")
    os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
