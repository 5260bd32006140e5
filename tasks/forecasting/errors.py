"""Mean squared and mean absolute error over all numbers of all windows, exact however a split is cut into batches."""

from collections.abc import Sequence

import torch
from torch import Tensor

from tasks.metrics import Sums

LARGEST = 1e15  # a record takes no larger number


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


class ErrorsInUnits(Sums):
    """`mae_original` and `rmse_original` of column `target`, of standardised forecasts and their `deviation` (C,).

    With `per_column` also of each of the `columns`, `mae_original/<column>`.
    """

    def __init__(self, deviation: Tensor, columns: Sequence[str], target: int, *, per_column: bool) -> None:
        super().__init__(3, len(columns))  # absolute values, squares, and the count
        self.deviation, self.columns, self.target, self.per_column = deviation, columns, target, per_column

    def update(self, forecast: Tensor, target: Tensor, kept: Tensor) -> None:
        """forecast and target (B, P, C), kept (B) as of `ForecastErrors`: all count."""
        error = (forecast.detach().double() - target.double()).flatten(0, 1) * self.deviation.to(target.device)
        self.sums += torch.stack([error.abs().sum(0), error.square().sum(0), torch.full_like(error[0], len(error))])

    def compute(self) -> dict[str, Tensor]:
        absolute, squares, count = self.sums
        errors = {"mae_original": absolute / count, "rmse_original": (squares / count).sqrt()}
        errors = {name: values.clamp(max=LARGEST) for name, values in errors.items()}
        each = {
            f"{name}/{column}": values[i] for name, values in errors.items() for i, column in enumerate(self.columns)
        }
        return {name: values[self.target] for name, values in errors.items()} | (each if self.per_column else {})
