"""A task, a model and a recipe as a LightningModule."""

from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor, nn

from harness.config.build import Built, parameter_groups
from harness.training import fsdp
from harness.training.compiled import CompiledLoss
from tasks.base import Batch, Task


class NonFiniteError(FloatingPointError):
    """A loss or a score is NaN or infinite."""


class TaskModule(pl.LightningModule):
    """`built` is what the configuration builds, and `train` its part of this name.

    `compiled`: `resources.compile`. Only training passes are compiled.
    """

    def __init__(self, built: Built, train: Any, *, compiled: bool = False):
        super().__init__()
        self.model, self.task, self.train_config = built.model, built.task, train
        self._optimizer, self._schedule = built.optimizer, built.schedule
        self._compiled_loss = CompiledLoss(built.task, built.model) if compiled else None
        self.loader: Any = None  # of the training data, set before the fit
        self._sharded = False
        # kept on the device and read rarely: reading makes the CPU wait for the GPU
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
        compiled = self._compiled_loss
        loss = self.task.loss(self.model, batch) if compiled is None else compiled(batch)
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
        """Lightning bounds the norm of all gradients together; `train.clip_each` bounds that of each parameter."""
        if not self.train_config.clip_each:
            super().configure_gradient_clipping(optimizer, gradient_clip_val, gradient_clip_algorithm)
            return
        for parameter in self.model.parameters():
            nn.utils.clip_grad_norm_(parameter, gradient_clip_val)

    def check_finite(self, trainer: pl.Trainer) -> None:
        """Raises NonFiniteError on all devices if one of them had a loss that is not finite."""
        if not trainer.strategy.reduce_boolean_decision(bool(self.finite), all=True):
            raise NonFiniteError(f"the training loss is not finite (seen at step {trainer.global_step})")


def validates_on_test(task: Task) -> bool:
    """Whether the loaded task validates on its test split. Selecting by such a validation is a leak."""
    return task.split("val") is task.split("test")
