"""The settings of `trainer.*`: where a cell runs and what is reported. None of them may change a number.

What decides a cell's numbers is part of its identity (`harness.config.cell`). Lightning's Trainer takes further
settings that change them, so a key outside `KEPT` is refused; for some of them the recipe has its own.
"""

from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig

from harness.config.allowed import STRATEGY, TRAINER
from harness.errors import UsageError, did_you_mean

COUNTS = ("devices", "num_nodes")
KEPT = (
    "_target_", "accelerator", "devices", "num_nodes", "strategy", "deterministic", "profiler", "log_every_n_steps",
    "detect_anomaly",
)  # fmt: skip
# what takes the place of Trainer's settings
REPLACED = {
    "train.max_steps": "max_steps min_steps max_epochs min_epochs limit_train_batches",
    "train.micro_batch_size": "accumulate_grad_batches",
    "train.clip_norm or train.clip_value": "gradient_clip_val gradient_clip_algorithm",
    "train.precision": "precision",
    "train.eval_every": "val_check_interval check_val_every_n_epoch",
    "resources.minutes": "max_time",
    "budget=smoke or debug=limit": "fast_dev_run",
    "task.val or task.test": "limit_val_batches limit_test_batches",
    "debug=overfit": "overfit_batches",
    "logger=": "logger",
    "paths.outputs": "default_root_dir",
}
ACCELERATORS = ("auto", "cpu", "gpu", "cuda", "mps")
STRATEGIES = ("auto",)
PROFILERS = ("simple", "advanced", "pytorch")
DETERMINISTIC = (None, True, "warn")


def check_counts(trainer: Mapping[str, Any]) -> None:
    """Raises UsageError for a number of devices or hosts that is missing or no whole number."""
    for key in COUNTS:
        if key not in trainer:
            raise UsageError(f"trainer.{key} has no value: add trainer=auto or trainer.{key}=... to the command")
        value = trainer[key]
        if value not in (None, "auto") and (isinstance(value, bool) or not isinstance(value, int)):
            chosen = "; CUDA_VISIBLE_DEVICES=0,1 in front of python chooses GPUs" if key == "devices" else ""
            raise UsageError(f"trainer.{key}={value}: a whole number is expected{chosen}")


def check_trainer(settings: Mapping[str, Any]) -> None:
    """Raises UsageError for a key that could change a cell's numbers, and for values that the harness does not use."""
    for key in settings:
        if key not in KEPT:
            ours = next((ours for ours, theirs in REPLACED.items() if key in theirs.split()), None)
            hint = f"{ours} takes its place" if ours else f"these are: {', '.join(KEPT[1:])}"
            raise UsageError(f"trainer.{key}: no setting of a cell; {hint}")
    if settings.get("_target_") not in (None, TRAINER):
        raise UsageError(f"trainer._target_={settings['_target_']}: cells run in {TRAINER}")
    if (accelerator := settings.get("accelerator", "auto")) not in ACCELERATORS:
        raise UsageError(f"trainer.accelerator={accelerator}: {did_you_mean(str(accelerator), ACCELERATORS)}")
    strategy = settings.get("strategy", "auto")
    named = strategy.get("_target_") if isinstance(strategy, Mapping) else None
    if strategy not in STRATEGIES and named != STRATEGY:
        raise UsageError(f"trainer.strategy={strategy}: it is auto, which follows resources=, or that of trainer=fsdp")
    if (deterministic := settings.get("deterministic")) not in DETERMINISTIC:
        raise UsageError(f"trainer.deterministic={deterministic}: it is null, true or warn")
    if not isinstance(profiler := settings.get("profiler"), str | None):
        raise UsageError("trainer.profiler: it is a name; docs/commands.md lists them")
    if profiler not in (None, *PROFILERS):
        raise UsageError(f"trainer.profiler={profiler}: {did_you_mean(profiler, PROFILERS)}")


def devices_of(cfg: DictConfig) -> int:
    """Devices of a cell, on all nodes."""
    devices = cfg.trainer.devices
    return (devices if isinstance(devices, int) else 1) * cfg.trainer.num_nodes
