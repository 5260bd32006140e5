"""Windows of a series by number, and the time of their rows as features.

n rows, C columns, T time features, S past length, L label length, P predicted length, B batch
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch

from tasks.base import Batch, Split

# calendar fields and their largest value; each becomes a number from -0.5 to 0.5 (Informer's "timeF")
HOURLY = ("hour", "day_of_week", "day", "day_of_year")
TIME_FEATURES = {"h": HOURLY, "t": ("minute", *HOURLY)}
LARGEST = {"minute": 59, "hour": 23, "day_of_week": 6, "day": 30, "day_of_year": 365}
FROM_ONE = ("day", "day_of_year")


def time_features(times: np.ndarray, frequency: str) -> np.ndarray:
    """(n,) datetime64 -> (n, T) float32."""
    index = pd.DatetimeIndex(times)
    fields = TIME_FEATURES[frequency]
    numbers = [(getattr(index, name).to_numpy() - (name in FROM_ONE)) / LARGEST[name] - 0.5 for name in fields]
    return np.stack(numbers, 1).astype(np.float32)


class Windows(Split):
    """One split: all windows of values (n, C) and time (n, T), one row apart, n - S - P + 1 of them.

    `batch(indices)` gives past (B, S, C), past_time (B, S, T), future (B, P, C), future_time (B, L + P, T), which
    begins with the last L rows of the past, and kept (B,): False for the last windows, which fill no `drop_last`.
    """

    def __init__(
        self,
        values: np.ndarray,
        time: np.ndarray,
        *,
        seq_len: int,
        label_len: int,
        pred_len: int,
        drop_last: int | None = None,
    ):
        self.values, self.time = (torch.from_numpy(np.ascontiguousarray(x, np.float32)) for x in (values, time))
        self.seq_len, self.label_len, self.pred_len = seq_len, label_len, pred_len
        self.kept = len(self) - len(self) % (drop_last or 1) or len(self)  # all, of less than one batch

    def __len__(self) -> int:
        return max(0, len(self.values) - self.seq_len - self.pred_len + 1)

    def batch(self, indices: Sequence[int]) -> Batch:
        first = torch.as_tensor(self.checked(indices))
        now = first + self.seq_len
        past, label, future = (
            start[:, None] + torch.arange(length)
            for start, length in (
                (first, self.seq_len),
                (now - self.label_len, self.label_len + self.pred_len),
                (now, self.pred_len),
            )
        )
        return {
            "past": self.values[past],
            "past_time": self.time[past],
            "future_time": self.time[label],
            "future": self.values[future],
            "kept": first < self.kept,
        }
