"""The conditions of a run beside its configuration and data: code of the training, libraries, processor, devices, and
the settings that the schema marks so (`harness.config.schema.conditions`).

The last bits of a result depend on them. A checkpoint stores them, and a resume compares them with its own; a record
stores the settings, and do=verify sets them again. Settings of the Trainer that belong to the recipe (`RECIPE`) must be
equal at a resume: a run of two recipes would be of neither. So must `resources.compile`. Any other difference is
reported in one line and kept in the record (`changed_at_resume`).
"""

import importlib.metadata
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from omegaconf import DictConfig, OmegaConf

from harness.config.schema import conditions
from harness.errors import UsageError, one_line
from harness.records import provenance
from harness.training import process
from harness.training.batches.loader import update_division

LIBRARIES = ("torch", "numpy", "lightning")
FLA = "flash-linear-attention"  # the package of `resources.kernels=fla`
# attributes of the Trainer that change what is computed; the recipe sets them through `train`
RECIPE = ("gradient_clip_val", "gradient_clip_algorithm", "precision", "limit_train_batches", "overfit_batches")
COMPILE = "resources.compile"  # with dropout it draws other masks
LONGEST = 120  # characters of a value in a message


def settings_of(cfg: DictConfig, threads: int | None) -> dict[str, Any]:
    """{key: value in use} of the settings that are conditions. `threads`: of torch, None on a GPU."""
    settings = {key: OmegaConf.select(cfg, key) for key in conditions()}
    settings["resources.matmul"] = cfg.resources.matmul.name
    division = {"train.micro_batch_size": update_division(cfg)["micro_batch_size"]}
    return settings | division | {"resources.cpus": threads, "resources.kernels": process.kernels_in_use(cfg)}


def conditions_of(
    trainer: pl.Trainer, cfg: DictConfig, threads: int | None, training_code: str | None
) -> dict[str, str]:
    """{condition: value}, all as text. `threads`: as in `settings_of`; `training_code`: the digest of
    `source_code.training_code`.
    """
    device = trainer.strategy.root_device
    here = {
        "training code": str(training_code),
        **{name: importlib.metadata.version(name) for name in LIBRARIES},
        FLA: provenance.version(FLA),
        "CPU": provenance.cpu_name(),
        "CPU capability": provenance.cpu_capability(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "devices": str(trainer.world_size),
        "strategy": type(trainer.strategy).__name__,
        **{key: str(value) for key, value in settings_of(cfg, threads).items()},
    }
    return here | {f"trainer.{name}": str(getattr(trainer, name)) for name in RECIPE}


def differences(then: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """One text per condition that differs; a condition that an older checkpoint lacks is not compared."""
    return [
        f"{one_line(name)} {one_line(then[name])[:LONGEST]}, now {one_line(now[name])[:LONGEST]}"
        for name in then
        if name in now and then[name] != now[name]
    ]


def require_same_recipe(then: Mapping[str, str], now: Mapping[str, str], checkpoint: Path | None) -> None:
    """Raises UsageError for a setting that would change the recipe of a run that has begun, or compile a part of it."""
    recipe = [*(f"trainer.{name}" for name in RECIPE), COMPILE]
    changed = differences({name: then[name] for name in recipe if name in then}, now)
    if changed:
        raise UsageError(f"{checkpoint}: was trained with {'; '.join(changed)}; rerun=all trains from the start")
