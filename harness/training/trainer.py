"""Lightning's Trainer for one cell: devices, accumulation, precision, loggers, the cluster environment."""

import logging
import os
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.fabric.plugins.environments import LightningEnvironment, SLURMEnvironment, TorchElasticEnvironment
from lightning.pytorch.profilers import AdvancedProfiler, Profiler, PyTorchProfiler, SimpleProfiler
from omegaconf import DictConfig

from harness.config.allowed import check_trainer, devices_of
from harness.config.instantiate import instantiate
from harness.config.plain import resolved_or_refused
from harness.config.schema import Matmul
from harness.progress import Progress
from harness.records.run_directory import RunDirectory
from harness.training import process
from harness.training.batches.loader import micro_batches
from harness.training.callback import TrainingCallback
from harness.training.checkpoints.checkpoint import SealedCheckpoints
from harness.training.extras.loggers import make_loggers

TF32 = (8, 0)  # compute capability
PROFILERS: dict[str, Callable[..., Profiler]] = {
    "simple": SimpleProfiler,
    "advanced": partial(AdvancedProfiler, line_count_restriction=20),
    # Lightning's own schedule restarts every five steps and writes a file of megabytes each time
    "pytorch": partial(PyTorchProfiler, schedule=torch.profiler.schedule(wait=1, warmup=1, active=3, repeat=1)),
}
SLOW_FLOAT32 = (
    "float32 without TF32: several times slower than resources.matmul=high (the same cell, other last digits) or "
    "train.precision=bf16-mixed (another cell)"
)


def make_trainer(cfg: DictConfig, run_dir: RunDirectory, callback: TrainingCallback) -> pl.Trainer:
    """The Trainer of `trainer=` and the recipe; it writes nothing yet."""

    def say(line: str) -> None:
        callback.progress.say(line)  # `progress` is replaced when the run begins

    silence_lightning()
    train, trusted = cfg.train, list(cfg.trusted_packages)
    world_size = devices_of(cfg)
    settings = resolved_or_refused(cfg.trainer, "trainer")
    check_trainer(settings)
    process.require_machine(str(settings.get("accelerator")), cfg.resources.cpus)
    if world_size > 1 and not process.group():
        os.environ[process.PARENT] = str(os.getpid())
    profiler = settings.pop("profiler", None)
    set_deterministic(settings.pop("deterministic", None), compiled=cfg.resources.compile)
    torch.set_float32_matmul_precision(cfg.resources.matmul.name)
    return instantiate(
        settings,
        "trainer",
        trusted,
        max_steps=train.max_steps,
        precision=train.precision,
        accumulate_grad_batches=micro_batches(train, world_size),
        gradient_clip_val=train.clip_norm or train.clip_value or train.clip_each,
        gradient_clip_algorithm="value" if train.clip_value else "norm",  # clip_each: see TaskModule
        callbacks=[callback],
        plugins=[cluster_environment(), SealedCheckpoints(callback.cell, run_dir)],
        logger=make_loggers(cfg, run_dir.path, say),
        profiler=profiler and PROFILERS[profiler](dirpath=run_dir.path, filename="profile"),
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
        default_root_dir=str(run_dir.path),
    )


def set_deterministic(mode: bool | str | None, *, compiled: bool) -> None:
    """What Lightning sets for `trainer.deterministic`, for all of torch; an earlier cell may have set something else.

    Lightning's call would import torch's compiler, whose own setting matters to compiled cells alone.
    """
    torch.backends.cudnn.benchmark = False
    if compiled:
        torch.use_deterministic_algorithms(bool(mode), warn_only=mode == "warn")
    else:
        torch.set_deterministic_debug_mode("warn" if mode == "warn" else "error" if mode else "default")
    if mode:
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"


def say_if_slow(cfg: DictConfig, device: torch.device, progress: Progress) -> None:
    """One line if a GPU that has TF32 multiplies float32 without it."""
    is_highest = cfg.train.precision == "32-true" and cfg.resources.matmul is Matmul.highest
    if device.type == "cuda" and is_highest and torch.cuda.get_device_capability(device) >= TF32:
        progress.say(SLOW_FLOAT32)


def cluster_environment() -> Any:
    """Lightning's cluster environment; it never requeues a job, which `harness.training.process` does."""
    if process.group() == process.TORCHRUN:
        return TorchElasticEnvironment()
    if process.group() == process.SRUN:
        return SLURMEnvironment(auto_requeue=False)
    return LightningEnvironment()  # alone, whatever job it runs in, or with processes that Lightning starts


def silence_lightning() -> None:
    """Hide Lightning's messages, which repeat our progress lines. Importing Lightning resets these levels."""
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    logging.getLogger("lightning.fabric").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")
    warnings.filterwarnings("ignore", message=".*does not have many workers.*")
    os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
