"""A task, a model and a recipe as Lightning sees them; and one pass over a split."""

import math
from collections.abc import Callable
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor, nn

from harness.config.build import parameter_groups
from harness.training import fsdp
from harness.training.loader import sequential_batches
from tasks.base import Batch, Split, Task


def validates_on_test(task: Task) -> bool:
    """Whether a task, once loaded, has its test split for validation, too: then any choice by it is a leak."""
    return task.split("val") is task.split("test")


class NonFiniteError(FloatingPointError):
    """A loss or a score is no number any more."""


class TaskModule(pl.LightningModule):
    """`optimizer(parameter_groups)` and `schedule(optimizer)` come from the recipe."""

    def __init__(
        self, model: nn.Module, task: Task, optimizer: Callable[[Any], Any], schedule: Callable[[Any], Any] | None
    ):
        super().__init__()
        self.model, self.task = model, task
        self._optimizer, self._schedule = optimizer, schedule
        self._shared_out = False
        # on the device, looked at only now and then: reading it makes a GPU wait
        self.register_buffer("finite", torch.ones((), dtype=torch.bool), persistent=False)
        self.register_buffer("loss", torch.zeros(()), persistent=False)  # of the update under way, a mean

    def configure_model(self) -> None:
        if self.device_mesh is not None and not self._shared_out:  # Lightning may call it twice
            self._shared_out = True
            fsdp.shard(self.model, self.device_mesh)

    def training_step(self, batch: Batch, index: int) -> Tensor:
        loss = self.task.loss(self.model, batch)
        self.finite &= torch.isfinite(loss.detach())
        seen = index % self.trainer.accumulate_grad_batches  # micro-batches of this update so far
        self.loss = (self.loss * seen + loss.detach()) / (seen + 1) if seen else loss.detach()
        return loss

    def check_finite(self, trainer: pl.Trainer) -> None:
        """Raises NonFiniteError on all devices if one of them has seen a loss that is no number."""
        if not trainer.strategy.reduce_boolean_decision(bool(self.finite), all=True):
            raise NonFiniteError(f"the training loss is not finite (seen at step {trainer.global_step})")

    def configure_optimizers(self) -> Any:
        optimizer = self._optimizer(parameter_groups(self.model))
        if self._schedule is None:
            return optimizer
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": self._schedule(optimizer), "interval": "step"}}


def idle_at_last(split: Split, batch_size: int, trainer: pl.Trainer) -> bool:
    """Whether the others have a batch left when this device has none, in the last round of `sequential_batches`."""
    return 0 < len(split) % (batch_size * trainer.world_size) <= batch_size * trainer.global_rank


def evaluate(trainer: pl.Trainer, experiment: TaskModule, split: Split, batch_size: int) -> dict[str, Any]:
    """Metrics of the current weights on a whole split, with `n`, the number of examples scored.

    Every example is scored exactly once, on however many devices; raises RuntimeError if the count says otherwise, and
    NonFiniteError for a score that is no number.
    """
    training = experiment.model.training
    experiment.model.eval()
    metrics = experiment.task.metrics().to(experiment.device)
    scored = 0
    with torch.no_grad(), trainer.precision_plugin.val_step_context():
        for batch in sequential_batches(split, batch_size, trainer.global_rank, trainer.world_size):
            batch = {name: tensor.to(experiment.device) for name, tensor in batch.items()}
            scored += len(next(iter(experiment.task.score(experiment.model, batch, metrics).values())))
        if fsdp.is_sharded(experiment.model) and idle_at_last(split, batch_size, trainer):
            batch = split.batch(range(min(batch_size, len(split))))
            batch = {name: tensor.to(experiment.device) for name, tensor in batch.items()}
            experiment.task.score(experiment.model, batch, experiment.task.metrics().to(experiment.device))
    experiment.model.train(training)
    scored = int(trainer.strategy.reduce(torch.tensor(scored, device=experiment.device), reduce_op="sum"))
    if scored != len(split):
        raise RuntimeError(f"{scored} examples were scored of {len(split)}")
    found = {name: float(value) for name, value in metrics.compute().items()}
    if broken := [name for name, value in found.items() if not math.isfinite(value)]:
        raise NonFiniteError(f"{broken[0]} of an evaluation is not finite (step {trainer.global_step})")
    return found | {"n": scored}
