"""Squared and absolute errors of forecasts: of each window, and in the units of the columns."""

from collections.abc import Sequence

import torch
from torch import Tensor

from tasks.metrics import Sums

LARGEST = 1e15  # a record takes no larger number


def window_errors(forecast: Tensor, target: Tensor) -> dict[str, Tensor]:
    """`mse` and `mae`, (B,) float64 each, of each window of forecasts (B, P, C)."""
    error = (forecast.detach().double() - target.double()).flatten(1)
    return {"mse": error.square().mean(1), "mae": error.abs().mean(1)}


class ErrorsInUnits(Sums):
    """`mae_original` and `rmse_original` of column `target`, of standardised forecasts and their `deviation` (C,).

    With `per_column` also of each of the `columns`, `mae_original/<column>`.
    """

    def __init__(self, deviation: Tensor, columns: Sequence[str], target: int, *, per_column: bool) -> None:
        super().__init__(3, len(columns))  # absolute values, squares, and the count
        self.deviation, self.columns, self.target, self.per_column = deviation, columns, target, per_column

    def update(self, forecast: Tensor, target: Tensor) -> None:
        """(B, P, C) each."""
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
