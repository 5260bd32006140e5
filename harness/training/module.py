"""A task, a model and a recipe as a LightningModule."""

from collections.abc import Callable
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor, nn

from harness.config.build import parameter_groups
from harness.training import fsdp
from tasks.base import Batch, Task


class NonFiniteError(FloatingPointError):
    """A loss or a score is NaN or infinite."""


class TaskModule(pl.LightningModule):
    """`optimizer(parameter_groups)` and `schedule(optimizer)` come from the recipe, and so does `clips_each`.

    With `clips_each` the Trainer's bound of the gradient's norm holds for each parameter alone, not for all together.
    """

    def __init__(
        self,
        model: nn.Module,
        task: Task,
        optimizer: Callable[[Any], Any],
        schedule: Callable[[Any], Any] | None,
        *,
        clips_each: bool = False,
    ):
        super().__init__()
        self.model, self.task, self.clips_each = model, task, clips_each
        self._optimizer, self._schedule = optimizer, schedule
        self.loader: Any = None  # of the training data, set before the fit
        self._sharded = False
        # kept on the device and read only now and then: reading makes a GPU wait
        self.register_buffer("finite", torch.ones((), dtype=torch.bool), persistent=False)
        self.register_buffer("loss", torch.zeros(()), persistent=False)  # mean over the current update

    def configure_model(self) -> None:
        if self.device_mesh is not None and not self._sharded:  # Lightning may call it twice
            self._sharded = True
            fsdp.shard(self.model, self.device_mesh)

    def configure_optimizers(self) -> Any:
        optimizer = self._optimizer(parameter_groups(self.model))
        if self._schedule is None:
            return optimizer
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": self._schedule(optimizer), "interval": "step"}}

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        loss = self.task.loss(self.model, batch)
        if self.loader.loss_scale != 1.0:
            loss = loss * self.loader.loss_scale
        self.finite &= torch.isfinite(loss.detach())
        seen = batch_idx % self.trainer.accumulate_grad_batches  # micro-batches of this update before this one
        self.loss = (self.loss * seen + loss.detach()) / (seen + 1) if seen else loss.detach()
        return loss

    def configure_gradient_clipping(
        self,
        optimizer: Any,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        if not self.clips_each:
            super().configure_gradient_clipping(optimizer, gradient_clip_val, gradient_clip_algorithm)
            return
        for parameter in self.model.parameters():
            nn.utils.clip_grad_norm_(parameter, gradient_clip_val)

    def check_finite(self, trainer: pl.Trainer) -> None:
        """Raises NonFiniteError on all devices if one of them had a loss that is not finite."""
        if not trainer.strategy.reduce_boolean_decision(bool(self.finite), all=True):
            raise NonFiniteError(f"the training loss is not finite (seen at step {trainer.global_step})")


def validates_on_test(task: Task) -> bool:
    """Whether the loaded task uses its test split for validation; any selection by it is then a leak."""
    return task.split("val") is task.split("test")
