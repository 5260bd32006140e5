"""Mean squared and mean absolute error over all numbers of all windows, exact however a split is cut into batches."""

import torch
from torch import Tensor

from tasks.metrics import Sums


def window_errors(forecast: Tensor, target: Tensor) -> Tensor:
    """Mean squared and mean absolute error (2, B) float64 of each window of forecasts (B, P, C)."""
    error = (forecast.detach().double() - target.double()).flatten(1)
    return torch.stack([error.square().mean(1), error.abs().mean(1)])


class ForecastErrors(Sums):
    """`mse` and `mae` of forecasts (B, P, C).

    With `dropping`, also `mse_drop_last` and `mae_drop_last`, of only those windows that `update` marks as kept.
    """

    def __init__(self, dropping: bool = False) -> None:
        super().__init__(2, 3)  # squares, absolute values, and the count: of all windows, and of those that are kept
        self.dropping = dropping

    def update(self, forecast: Tensor, target: Tensor, kept: Tensor) -> None:
        """forecast and target (B, P, C), kept (B) bool."""
        error = (forecast.detach().double() - target.double()).flatten(1)  # (B, P C)
        sums = torch.stack([error.square().sum(1), error.abs().sum(1), error.new_full(error.shape[:1], error.shape[1])])
        self.sums += torch.stack([sums.sum(1), (sums * kept).sum(1)])

    def compute(self) -> dict[str, Tensor]:
        every, kept = (sums[:2] / sums[2] for sums in self.sums)
        means = {"mse": every[0], "mae": every[1]}
        return means | ({"mse_drop_last": kept[0], "mae_drop_last": kept[1]} if self.dropping else {})
