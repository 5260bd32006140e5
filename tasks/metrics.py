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


class Sums(Metric):
    """`sums` over examples, float64 of a shape, of which a subclass's `compute` makes metrics."""

    is_differentiable = False
    higher_is_better = None  # of several metrics
    full_state_update = False

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.add_state("sums", torch.zeros(shape, dtype=torch.float64), dist_reduce_fx="sum")


class Ratio(Sums):
    """The sum of `amount` over the sum of `count`, times `factor`. Without `count` it is the mean over examples."""

    def __init__(self, amount: str, count: str | None = None, factor: float = 1.0) -> None:
        super().__init__(2)
        self.amount, self.count, self.factor = amount, count, factor

    def update(self, **values: Tensor) -> None:
        """Values (B,) by name, those of other ratios among them."""
        amount = values[self.amount]
        count = torch.ones_like(amount) if self.count is None else values[self.count]
        self.sums += torch.stack([amount.double().sum(), count.double().sum()])

    def compute(self) -> Tensor:
        amount, count = self.sums
        return self.factor * amount / count


def means(*names: str) -> MetricCollection:
    """The means of these scores; `update` takes them all, (B,) each by name."""
    return MetricCollection({name: Ratio(name) for name in names}, compute_groups=False)


class MeanCrossEntropy(Sums):
    """Cross entropy in nats averaged over examples, for batches of any size."""

    def __init__(self) -> None:
        super().__init__(2)

    def update(self, preds: Tensor, target: Tensor) -> None:
        total = F.cross_entropy(preds.detach(), target, reduction="none").double().sum()
        self.sums += torch.stack([total, total.new_tensor(target.numel())])

    def compute(self) -> Tensor:
        return self.sums[0] / self.sums[1]


def accuracy_and_loss(classes: int) -> MetricCollection:
    """`acc` in percent and `loss` in nats, both of logits (B, classes) and labels (B,)."""
    accuracy = PercentCorrect(num_classes=classes, average="micro", validate_args=False)
    return MetricCollection({"acc": accuracy, "loss": MeanCrossEntropy()}, compute_groups=False)
