"""Metrics that are exact however a split is cut into batches."""

import torch
from torch import Tensor
from torchmetrics import Metric, MetricCollection


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
