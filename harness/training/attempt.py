"""One attempt at a cell: build, prepare, fit, select, test; what it found, as the entries of a record."""

import contextlib
import logging
import os
import signal
import time
import warnings
from collections.abc import Sequence
from typing import Any

from omegaconf import DictConfig, OmegaConf

from harness.config.cell import Cell, canonical, changes
from harness.config.compose import ROOT
from harness.config.schema import Rule
from harness.errors import UsageError
from harness.progress import Progress
from harness.records import provenance, record
from harness.records.run_directory import RunDirectory
from harness.training import fsdp
from harness.training.signals import stop_status

DEVICE_SEEDS = 1_000_003  # between the seeds of two devices


class Interrupted(Exception):
    """A signal stopped the run at a step boundary, and all of it was saved."""

    def __init__(self, message: str, number: int, state: str):
        super().__init__(message)
        self.number, self.state = number, state


class Run:
    """One attempt at a cell. `entries` is a record of what is known at any moment, also after a failure.

    `search`: the folders of configuration that the command added to `conf/`.
    """

    def __init__(
        self,
        cell: Cell,
        cfg: DictConfig,
        folder: RunDirectory,
        progress: Progress,
        *,
        resuming: bool,
        search: Sequence[str],
    ):
        self.cell, self.cfg, self.folder, self.progress, self.resuming = cell, cfg, folder, progress, resuming
        self.changed = changes(cell, search)
        self.git = provenance.git(ROOT)  # of the code that is about to run, whatever is edited meanwhile
        self.built: Any = None
        self.course: Any = None
        self.trainer: Any = None
        self.data: Any = None

    def go(self) -> dict[str, Any]:
        """Carry it out. Raises Interrupted, and whatever goes wrong."""
        import lightning.pytorch as pl
        import torch

        from harness.config.build import build
        from harness.training.artifacts import save
        from harness.training.callback import TrainingCallback
        from harness.training.loader import TrainLoader
        from harness.training.module import TaskModule, evaluate

        cfg, folder, train = self.cfg, self.folder, self.cfg.train
        if cfg.resources.cpus:
            torch.set_num_threads(cfg.resources.cpus)
        torch.utils.deterministic.fill_uninitialized_memory = False
        keep_freed_memory()

        pl.seed_everything(cfg.seed, verbose=False)
        self.built = built = build(cfg)
        task = built.task
        folder.beat("preparing data", step=0, steps=train.max_steps, force=True)
        task.prepare(self.progress)
        self.data = task.load()
        self.course = course = TrainingCallback(cfg, folder, self.progress)
        self.trainer = trainer = make_trainer(cfg, folder, course)
        experiment = TaskModule(built.model, task, built.optimizer, built.schedule)
        stream = TrainLoader(
            task.split("train"),
            steps=train.max_steps,
            batch_size=train.batch_size,
            micro=micro_batch_size(train, trainer.world_size),
            seed=cfg.seed,
            rank=trainer.global_rank,
            world=trainer.world_size,
        )
        device = trainer.strategy.root_device
        provenance.reset_peak_memory(device)
        if trainer.global_rank:  # the same weights everywhere, but masks of its own for each device
            torch.manual_seed(cfg.seed + DEVICE_SEEDS * trainer.global_rank)
        trainer.fit(experiment, stream, ckpt_path=str(folder.last) if self.resuming else None, weights_only=True)
        if course.mark.number is not None and trainer.global_step < train.max_steps and not course.out_of_patience:
            raise self._interrupted(course.mark.number)

        experiment.check_finite(trainer)
        best, last = course.state.best, course.state.last
        rule = train.select.rule
        weights = digest(built.model)
        experiment.to(device)
        chosen = last if rule is Rule.last else best
        if rule is not Rule.last:
            fsdp.load_full_state_dict(experiment, torch.load(folder.best, map_location=device, weights_only=True))
        started = time.monotonic()
        if rule is not Rule.best_test:
            # the one time that the test split is looked at
            chosen["test"] = evaluate(trainer, experiment, task.split("test"), train.eval_batch_size)
        course.state.wall_s += time.monotonic() - started
        found = self.entries("done") | {
            "metrics": {"best": best if rule is not Rule.last else chosen, "last": last},
            "weights_sha256": weights,
        }
        # a model that is shared out runs on all devices at once, and a picture is drawn by one
        if trainer.is_global_zero and not fsdp.is_sharded(built.model):
            save(task, built.model, self.cell.record_path(cfg).with_suffix(".png"), self.progress.say)
        return found

    def _interrupted(self, number: int) -> Interrupted:
        step, steps, state = self.trainer.global_step, self.cfg.train.max_steps, stop_status(number)
        if self.trainer.is_global_zero:
            self.folder.beat(state, step=step, steps=steps, force=True)
        name = signal.Signals(number).name
        message = f"stopped by {name} at step {step} of {steps}, saved; the same command (without rerun=all) goes on"
        return Interrupted(message, number, state)

    def _update(self) -> dict[str, int]:
        """How the examples of an update were shared out; their number, and so the learning rate, is the recipe's."""
        world = self.trainer.world_size if self.trainer else 1
        micro = micro_batch_size(self.cfg.train, world)
        return {"examples": self.cfg.train.batch_size, "micro_batch_size": micro, "devices": world}

    def _validated_on_test(self) -> bool:
        from harness.training.module import validates_on_test

        return bool(self.data) and validates_on_test(self.built.task)

    def entries(self, status: str) -> dict[str, Any]:
        """A record of what is known so far, without metrics."""
        import torch

        state = self.course.state if self.course else None
        device = self.trainer.strategy.root_device if self.trainer else torch.device("cpu")
        train_s = state.train_s if state else 0.0
        select = self.cfg.train.select
        task = self.built.task if self.built else None
        baseline = task.baseline() if task and self.data else None
        resolved = OmegaConf.to_container(self.cfg, resolve=True, enum_to_str=True)
        return {
            "schema_version": record.SCHEMA_VERSION,
            "cell": self.cell.names(),
            "config": self.cell.config | {"trainer": canonical(resolved["trainer"])},
            "changed": self.changed,
            "depends_on": [],
            "evaluations": {},
            "artifacts": {},
            "status": status,
            "error": None,
            "metrics": None,
            "metric": {"name": task.metric, "higher_is_better": task.higher_is_better} if task else None,
            "selection": {
                "rule": select.rule.name,
                "after_steps": int(select.after * self.cfg.train.max_steps),
                "leak": select.rule is Rule.best_test or (select.rule is Rule.best_val and self._validated_on_test()),
            },
            "baseline": baseline and {"name": task.baseline_name} | baseline,
            "parameters": self.built.parameters() if self.built else {"total": 0, "attention": 0},
            "steps": self.trainer.global_step if self.trainer else 0,
            "tokens": state.tokens if state else 0,
            "examples": state.examples if state else 0,
            "wall_s": round(state.wall_s, 3) if state else 0.0,
            "examples_per_s": round(state.examples / train_s, 3) if train_s else 0.0,
            "tokens_per_s": round(state.tokens / train_s, 3) if train_s else 0.0,
            "peak_memory_mb": round(provenance.peak_memory_mb(device), 1),
            "hardware": provenance.hardware(device),
            "versions": provenance.versions(),
            "git": self.git,
            "data": vars(self.data) if self.data else {"source": "unknown", "fingerprint": "", "sizes": {}},
            "update": self._update(),
            "resumes": state.resumes if state else 0,
            "weights_sha256": None,
            "tested_weights_sha256": None,
        }


def make_trainer(cfg: DictConfig, folder: RunDirectory, *callbacks: Any) -> Any:
    """Lightning's Trainer as `trainer=` and the recipe configure it. Raises UsageError."""
    from harness.config.instantiate import instantiate

    quiet()
    train, trusted = cfg.train, list(cfg.trusted_packages)
    if train.clip_norm and train.clip_value:
        raise UsageError("train.clip_norm and train.clip_value are both set: set one of them to null")
    loggers = [instantiate(config, "logger", trusted, save_dir=str(folder.path)) for config in cfg.logger.values()]
    config = OmegaConf.to_container(cfg.trainer, resolve=True)
    world = world_size(cfg)
    micro = micro_batch_size(train, world)
    if train.batch_size % (micro * world):
        raise UsageError(f"train.batch_size={train.batch_size} is no multiple of {micro} examples on {world} devices")
    return instantiate(
        config,
        "trainer",
        trusted,
        max_steps=train.max_steps,
        precision=train.precision,
        accumulate_grad_batches=train.batch_size // (micro * world),
        gradient_clip_val=train.clip_norm or train.clip_value,
        gradient_clip_algorithm="norm" if train.clip_norm else "value",
        callbacks=list(callbacks),
        plugins=[environment(world)],
        logger=loggers,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
        default_root_dir=str(folder.path),
    )


def world_size(cfg: DictConfig) -> int:
    """Devices that share a cell."""
    devices = cfg.trainer.devices
    return (devices if isinstance(devices, int) else 1) * cfg.trainer.num_nodes


def environment(world: int) -> Any:
    """Lightning's cluster environment. Requeueing belongs to `harness.training.signals` alone."""
    from lightning.fabric.plugins.environments import LightningEnvironment, SLURMEnvironment, TorchElasticEnvironment

    if world == 1:
        return LightningEnvironment()  # one process, whatever job it is part of
    if TorchElasticEnvironment.detect():
        return TorchElasticEnvironment()
    if SLURMEnvironment.detect():
        return SLURMEnvironment(auto_requeue=False)
    return LightningEnvironment()


def micro_batch_size(train: Any, world: int) -> int:
    return train.micro_batch_size or max(1, train.batch_size // world)


def digest(model: Any) -> str:
    """sha256 over the weights by name: two runs are the same to the bit, or they are not."""
    import hashlib

    import torch

    sha = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        sha.update(name.encode() + str(tensor.dtype).encode())
        sha.update(fsdp.full_tensor(tensor).detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return sha.hexdigest()


def keep_freed_memory() -> None:
    """Tell glibc to reuse what a step freed; elsewhere nothing happens.

    By default it hands every large tensor back to the kernel, and the next step pays for its pages again: of a step on
    16 x 512 tokens that was 0.28 of 0.71 seconds. No number changes.
    """
    import ctypes

    trim_threshold, mmap_max = -1, -4  # malloc.h
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(mmap_max, 0)
        libc.mallopt(trim_threshold, 2**31 - 1)


def quiet() -> None:
    """Lightning says much that our own lines say better. It sets its own levels when it is imported."""
    import lightning.pytorch  # noqa: F401

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    logging.getLogger("lightning.fabric").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")
    warnings.filterwarnings("ignore", message=".*does not have many workers.*")
    os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
