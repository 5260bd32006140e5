"""Linear forecasts by ridge regression: the window's past, and the calendar, to all steps of the future at once.

One regression per column, from its own past alone, as in DLinear (Zeng et al., 2023). `from_last` subtracts the last
value from the past and adds it to the forecast, as in NLinear. `calendar` adds one indicator for each hour and each day
of the week of the first step to forecast. `shared`: one regression for all columns, the linear map of a past that
DLinear is (its parts, trend and rest, are linear in the past). The penalty is the best of `PENALTIES` on validation
windows, of each column.

    B batch, S past length, P predicted length, L label length, C columns, T time features, F features
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from tasks.base import Batch
from tasks.forecasting.windows import LARGEST, Windows

PENALTIES = (1e0, 1e1, 1e2, 1e3, 1e4, 1e5)
MOST_FITTED = 4096  # windows: at the published lengths, those of 12 columns are fitted within a minute
MOST_COLUMNS = 12  # of more columns fewer windows
CYCLES = ("hour", "day_of_week")


@dataclass(frozen=True)
class RidgeForecast:
    """A predictor: (past (B, S, C), past_time, future_time (B, L + P, T)) -> (B, P, C).

    `fields` names the time features; `weights` (C, F, P) and `bias` (C, P) are float64. `saw`: what it was fitted to.
    """

    fields: Sequence[str]
    from_last: bool
    calendar: bool
    weights: Tensor
    bias: Tensor
    penalties: tuple[float, ...]  # (C,)
    saw: str

    @classmethod
    def fitted(
        cls,
        train: Windows,
        val: Windows,
        fields: Sequence[str],
        *,
        from_last: bool = False,
        calendar: bool = False,
        shared: bool = False,
        seen: int | None = None,
    ) -> "RidgeForecast":
        """To `seen` training windows at most (None: all), and to no more than MOST_FITTED, drawn without replacement.

        Raises ImportError without scikit-learn.
        """
        from sklearn.linear_model import Ridge

        columns = train.values.shape[1]
        most = max(1, MOST_FITTED * MOST_COLUMNS // max(MOST_COLUMNS, columns))
        numbers = drawn(len(train), min(most, seen or len(train)))
        sets = []
        for windows, chosen in ((train, numbers), (val, drawn(len(val), most))):
            batch = windows.batch(chosen)
            level = batch["past"][:, -1:] * from_last
            x = features(batch, fields, from_last=from_last, calendar=calendar)
            y = (batch["future"] - level).double()
            if shared:
                x, y = x.flatten(0, 1)[:, None], y.mT.flatten(0, 1)[..., None]
            sets.append((x.numpy(), y.numpy()))
        (x, y), (val_x, val_y) = sets
        best = []
        for column in range(y.shape[-1]):
            fits = [Ridge(alpha=penalty).fit(x[:, column], y[..., column]) for penalty in PENALTIES]
            errors = [np.square(fit.predict(val_x[:, column]) - val_y[..., column]).mean() for fit in fits]
            best.append(fits[int(np.argmin(errors))])
        steps = y.shape[1]
        weights = np.stack([fit.coef_.reshape(steps, -1).T for fit in best])  # of one step, scikit-learn has no P
        bias = np.stack([np.reshape(fit.intercept_, steps) for fit in best])
        return cls(
            tuple(fields),
            from_last,
            calendar,
            torch.from_numpy(weights).expand(columns, -1, -1),
            torch.from_numpy(bias).expand(columns, -1),
            tuple(fit.alpha for fit in best),
            f"{len(numbers):,} windows",
        )

    def __call__(self, past: Tensor, past_time: Tensor, future_time: Tensor) -> Tensor:
        batch = {"past": past, "future_time": future_time, "future": past.new_empty(len(past), self.bias.shape[1], 0)}
        x = features(batch, self.fields, from_last=self.from_last, calendar=self.calendar)
        weights, bias = self.weights.to(past.device), self.bias.to(past.device)
        forecast = torch.einsum("bcf,cfp->bpc", x, weights) + bias.T
        return (forecast + past[:, -1:] * self.from_last).to(past.dtype)


def drawn(count: int, most: int) -> np.ndarray:
    """Numbers of at most this many of `count` windows, ascending, the same at each call."""
    return np.sort(np.random.default_rng(0).choice(count, min(most, count), replace=False))


def features(batch: Batch, fields: Sequence[str], *, from_last: bool, calendar: bool) -> Tensor:
    """(B, C, F) float64 of each column: its past, and indicators of the first step's hour and day of the week."""
    past = batch["past"].double()
    columns = [(past - past[:, -1:] * from_last).mT]  # (B, C, S)
    if calendar:
        first = batch["future_time"][:, -batch["future"].shape[1]].double()  # (B, T)
        for name in CYCLES:
            number = ((first[:, fields.index(name)] + 0.5) * LARGEST[name]).round().long()
            cycle = F.one_hot(number, LARGEST[name] + 1).double()
            columns.append(cycle[:, None].expand(-1, past.shape[2], -1))
    return torch.cat(columns, 2)
