"""Metrics that are exact however a split is cut into batches."""

import torch
from torch import Tensor
from torch.nn import functional as F
from torchmetrics import Metric, MetricCollection
from torchmetrics.classification import MulticlassAccuracy


class PercentCorrect(MulticlassAccuracy):
    """100 x correct / total in float64: torchmetrics' fraction is float32, off in the sixth digit of a percentage."""

    def compute(self) -> Tensor:
        return 100 * self.tp.sum().double() / (self.tp + self.fn).sum()


class MeanCrossEntropy(Metric):
    """Cross entropy in nats averaged over examples, summed in float64, for batches of any size."""

    is_differentiable = False
    higher_is_better = False
    full_state_update = False

    def __init__(self) -> None:
        super().__init__()
        self.add_state("total", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("count", torch.zeros((), dtype=torch.long), dist_reduce_fx="sum")

    def update(self, preds: Tensor, target: Tensor) -> None:
        self.total += F.cross_entropy(preds.detach(), target, reduction="none").double().sum()
        self.count += target.numel()

    def compute(self) -> Tensor:
        return self.total / self.count


def accuracy_and_loss(classes: int) -> MetricCollection:
    """`acc` in percent and `loss` in nats, both of logits (B, classes) and labels (B,)."""
    accuracy = PercentCorrect(num_classes=classes, average="micro", validate_args=False)
    return MetricCollection({"acc": accuracy, "loss": MeanCrossEntropy()}, compute_groups=False)
