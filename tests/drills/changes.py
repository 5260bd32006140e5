"""Resumes under change: the same numbers, or a record that names what changed, or a refusal."""

import importlib.metadata
import os
from collections.abc import Callable
from typing import Any

import torch

from harness.config import source_code
from harness.errors import UsageError
from harness.records import provenance, record
from harness.training.module import TaskModule
from tests.drills.runs import Drills


def other_cpu() -> None:
    torch.backends.cpu.get_cpu_capability = lambda: "DEFAULT"


def other_processor() -> None:
    provenance.cpu_name = lambda: "Another CPU"


def other_variable() -> None:
    os.environ["MKL_CBWR"] = "COMPATIBLE"


def other_torch() -> None:
    real, step = importlib.metadata.version, torch.optim.AdamW.step

    def late(optimizer: Any, closure: Any = None) -> Any:
        loss = step(optimizer, closure)
        with torch.no_grad():
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    parameter.mul_(1 - 1e-6)
        return loss

    importlib.metadata.version = lambda name: "9.9.9" if name == "torch" else real(name)
    torch.optim.AdamW.step = late


def other_loss() -> None:
    """Code of the training was edited."""
    step = TaskModule.training_step
    TaskModule.training_step = lambda module, batch, index: step(module, batch, index) * 1.0001
    source_code.training_code = lambda: "f" * 16


def other_model() -> None:
    source_code.code_of = lambda cfg: "f" * 16


def nothing() -> None:
    pass


CHANGES: tuple[tuple[Callable[[], None], tuple[str, ...]], ...] = (
    *((nothing, words) for words in ((), ("resources.cpus=2",), ("checkpoint.every_steps=5",), ("n_jobs=1",))),
    *((nothing, (f"+trainer.{setting}",)) for setting in ("gradient_clip_val=0.0001", "precision=bf16-mixed")),
    *((nothing, (f"+trainer.{setting}",)) for setting in ("limit_train_batches=1", "overfit_batches=1")),
    *((nothing, (f"train.micro_batch_size={count}",)) for count in (4, 16)),
    *((change, ()) for change in (other_cpu, other_processor, other_variable, other_torch, other_loss, other_model)),
)


def changes(drills: Drills) -> tuple[str, str]:
    """Killed on the way, and resumed by a command, a machine or code that differs."""
    drills.run(kill_at=drills.dice.randint(drills.operations // 2, drills.operations - 5))
    begun = drills.run_folder.joinpath("checkpoints", "last.ckpt").is_file() and not drills.record_path.exists()
    change, words = drills.dice.choice(CHANGES)
    name = f"{change.__name__} {' '.join(words)}".strip()
    try:
        ended = drills.run(*words, before=change)
    except UsageError as error:  # the command does not compose
        return "exact", f"{name}: {error}"
    if ended.state == "stuck":
        return "STUCK", f"{name}: {ended.detail}"
    if ended.state == "refused":
        outcome, detail = drills.verdict()
        return outcome, f"{name}: {ended.detail}; then {detail}"
    if ended.state not in ("done", "skipped"):
        return "LOST", f"{name}: {ended.state}: {ended.detail}"
    said = record.read(drills.record_path)["changed_at_resume"]
    if drills.numbers() == drills.expected or said or not begun:
        return "exact", f"{name}: {said or 'the same numbers'}"
    return "WRONG", f"{name}: other numbers, and the record names no change"
