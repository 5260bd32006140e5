"""Long sequence time-series forecasting (LAVO Table 8; Informer, Zhou et al., 2021): the next values of all columns.

The model forecasts a window's future from its past, in one pass. MSE and MAE are means over all numbers of all
windows, of values standardised by the mean and standard deviation of the training rows only. Our readings:

- Validation and test begin `seq_len` rows before their borders, so that each of their rows is predicted; a split of r
  rows has r - pred_len + 1 windows, the training split r - seq_len - pred_len + 1.
- Every window is scored. `drop_last` is the batch size whose last incomplete batch the published code left out; it adds
  that result as `mse_drop_last` and `mae_drop_last`. The model is selected by the result over all windows.
- `features`: M, all columns from all; S, the target column from itself.
- `original_units` adds `mae_original` and `rmse_original`, of the target in its own unit: errors times its standard
  deviation in the training rows. With `per_column` also those of each column, `mae_original/<column>`.

    B batch, S past length, L label length, P predicted length, C columns, T time features
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchmetrics import MetricCollection

from models.attention.base import Pattern
from tasks.base import Batch, DataInfo, Predictor
from tasks.checks import DataError, Progress, at_least, no_progress, one_of
from tasks.data_task import SLICE, SYNTHETIC, DataTask, Source
from tasks.forecasting import synthetic_series
from tasks.forecasting.datasets import DATASETS, Dataset
from tasks.forecasting.errors import ErrorsInUnits, window_errors
from tasks.forecasting.ridge import RidgeForecast
from tasks.forecasting.series import Series, read
from tasks.forecasting.windows import TIME_FEATURES, Windows, time_features
from tasks.metrics import Ratio

FEATURES = ("M", "S")


@dataclass(kw_only=True, eq=False, repr=False)
class Forecasting(DataTask):
    """`dataset` names a series of `tasks.forecasting.datasets`; `rows` limits it to that number of first rows.

    `path`: a CSV file (or .csv.gz), or the folder it is in. `time`: h, four time features; t, also the minute.
    `trend_days` belongs to the generated series, see `synthetic_series`.
    Raises ValueError, in one line, before any data is touched.
    """

    metric: ClassVar[str] = "mse"
    higher_is_better: ClassVar[bool] = False
    baseline_name: ClassVar[str] = "training_mean"

    dataset: str
    seq_len: int
    label_len: int
    pred_len: int
    source: str = "official"
    pattern: Pattern | str = Pattern.NONCAUSAL_CROSS
    features: str = "S"
    time: str = "h"
    rows: int | None = None
    drop_last: int | None = None
    trend_days: int | None = None
    original_units: bool | None = None
    per_column: bool | None = None

    def __post_init__(self) -> None:
        one_of(FEATURES, features=self.features)
        one_of(TIME_FEATURES, time=self.time)
        at_least(1, seq_len=self.seq_len, pred_len=self.pred_len, rows=self.rows, drop_last=self.drop_last)
        at_least(1, trend_days=self.trend_days)
        at_least(0, label_len=self.label_len)
        if self.label_len > self.seq_len:
            raise ValueError(f"label_len={self.label_len} is longer than seq_len={self.seq_len}")
        if self.per_column and not self.original_units:
            raise ValueError("per_column=true is of errors in original units: task.original_units=true")
        super().__post_init__()
        self._folder = self.data_root / "forecasting"

    @cached_property
    def published(self) -> Dataset:
        one_of(DATASETS, dataset=self.dataset)
        return DATASETS[self.dataset]

    @property
    def name(self) -> str:
        return f"forecasting/{self.dataset}"

    def sources(self) -> dict[str, Source]:
        folder = f"a folder with {self.published.file}"
        return {
            "official": Source(self._read, path=folder, complete=True),
            SLICE: Source(self._read, path=folder, requires_path=True),
            SYNTHETIC: Source(self._generate),
        }

    def prepare(self, progress: Progress) -> None:
        self.check_source()
        if self.source == "official" and self.path is None:
            self.published.download.fetch(self._folder, progress)
        self._source.read(progress)

    def load(self) -> DataInfo:
        self.check_source()
        whole = self._source.read(no_progress)
        complete = whole.content_hash == self.published.content_hash and self.rows is None
        series = whole.first(self.rows)
        self._season, ends = series.season, self.ends(series)
        borders = {"train": slice(0, ends[0])}  # validation and test begin with the past of their first prediction
        for name, (last, end) in zip(("val", "test"), pairwise(ends), strict=True):
            borders[name] = slice(max(0, last - self.seq_len), end)
        fitted = series.values[: borders["train"].stop]
        mean, deviation = fitted.mean(0), fitted.std(0)  # of the population
        if not deviation.all():
            flat = series.columns[int((deviation == 0).argmax())]
            cure = "get another file" if self.rows is None else f"set task.rows to more than {self.rows}"
            raise DataError(f"{self._file() or 'generated series'}: {flat} never changes in the training rows", cure)
        scaled, time = (series.values - mean) / deviation, time_features(series.times, self.time)
        column = slice(None) if self.features == "M" else [series.columns.index(self.published.target)]
        self._mean, self._deviation = (torch.from_numpy(values[column]) for values in (mean, deviation))
        self._first = borders["test"].start + self.seq_len  # the row of the first forecast
        lengths = {"seq_len": self.seq_len, "label_len": self.label_len, "pred_len": self.pred_len}
        self._splits = {
            name: Windows(scaled[rows][:, column], time[rows], drop_last=self.drop_last, **lengths)
            for name, rows in borders.items()
        }
        sizes = {name: len(split) for name, split in self._splits.items()}
        if short := [name for name, size in sizes.items() if not size]:
            problem = (
                f"no window of {self.seq_len} + {self.pred_len} rows in {short[0]} ({len(series.values):,} rows in all)"
            )
            where = self._file() or "the series"
            raise DataError(f"{where}: {problem}", "lower task.seq_len or task.pred_len")
        first = f", first {self.rows:,} rows" if self.rows else ""
        origin = self.origin(complete, self.published.file.removesuffix(".csv") + first)
        return DataInfo(origin, series.content_hash, sizes)

    def check_is_prepared(self) -> None:
        file = self._file()
        if file is not None and not file.exists():
            raise DataError(f"{file}: not there")

    def backbone_kwargs(self) -> dict[str, object]:
        return {
            "pattern": self.pattern,
            "channels": len(self.published.columns) if self.features == "M" else 1,
            "time_features": len(TIME_FEATURES[self.time]),
            "seq_len": self.seq_len,
            "label_len": self.label_len,
            "pred_len": self.pred_len,
        }

    def forecast(self, model: Predictor, batch: Batch) -> Tensor:
        """(B, P, C), standardised."""
        return model(batch["past"], batch["past_time"], batch["future_time"])

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        return F.mse_loss(self.forecast(model, batch).float(), batch["future"])

    def metrics(self) -> MetricCollection:
        metrics = {name: Ratio(name) for name in ("mse", "mae")}
        if self.drop_last is not None:
            metrics |= {f"{name}_drop_last": Ratio(f"{name}_kept", "kept") for name in ("mse", "mae")}
        if self.original_units:
            columns = self.published.columns if self.features == "M" else (self.published.target,)
            target = columns.index(self.published.target)
            metrics["in_units"] = ErrorsInUnits(self._deviation, columns, target, per_column=bool(self.per_column))
        return MetricCollection(metrics, compute_groups=False)

    def score(self, model: Predictor, batch: Batch, metrics: MetricCollection) -> dict[str, Tensor]:
        forecast, kept = self.forecast(model, batch), batch["kept"]
        scores = window_errors(forecast, batch["future"])
        of_kept = {f"{name}_kept": errors * kept for name, errors in scores.items()}
        metrics.update(**scores, **of_kept, kept=kept, forecast=forecast, target=batch["future"])
        return scores

    def baselines(self, seen: int | None = None) -> Mapping[str, Callable[[], Predictor]]:
        """Forecasts without parameters, and ridge regressions. The seasonal one repeats the last day of the past, or
        the last week or year of a slower series. With `original_units` also one map for all columns, `dlinear`."""
        ahead, season = torch.arange(self.pred_len), self._season
        forecasts = {
            "training_mean": lambda past: torch.zeros_like(past[:, :1]),  # of standardised values
            "last_value": lambda past: past[:, -1:],
            "past_mean": lambda past: past.mean(1, keepdim=True),
        }
        if self.seq_len >= season > 1:
            forecasts["seasonal_naive"] = lambda past: past[:, ahead % season - season]

        def predictor(forecast: Callable[[Tensor], Tensor]) -> Predictor:
            return lambda past, past_time, future_time: forecast(past).expand(-1, self.pred_len, -1)

        simple = {name: partial(predictor, forecast) for name, forecast in forecasts.items()}
        sets = (self.split("train"), self.split("val"), TIME_FEATURES[self.time])
        ridge = partial(RidgeForecast.fitted, *sets, seen=seen)
        shared = {"dlinear": partial(ridge, shared=True)} if self.original_units else {}
        return {
            **simple,
            **shared,
            "ridge": ridge,
            "ridge_from_last": partial(ridge, from_last=True),
            "ridge_calendar": partial(ridge, calendar=True),
            "ridge_calendar_from_last": partial(ridge, from_last=True, calendar=True),
        }

    def tokens(self, batch: Batch) -> int:
        return batch["past"].shape[0] * (self.seq_len + self.pred_len)

    def outputs(self, model: nn.Module, indices: Sequence[int]) -> dict[str, Sequence[Any]]:
        """In original units: a row for each window and step, with the row of the file that is forecast, from 0."""
        batch, device = self.split("test").batch(indices), next(model.parameters()).device
        forecast = self.forecast(model, {name: x.to(device) for name, x in batch.items()}).cpu()
        steps, windows = np.tile(np.arange(self.pred_len), len(indices)), np.repeat(np.asarray(indices), self.pred_len)
        columns = self.published.columns if self.features == "M" else (self.published.target,)
        rows = {"example": windows, "step": steps + 1, "row": self._first + windows + steps}
        for kind, values in {"": forecast, " (true)": batch["future"]}.items():
            in_units = (values.double() * self._deviation + self._mean).flatten(0, 1)
            rows |= {name + kind: in_units[:, column].numpy() for column, name in enumerate(columns)}
        return rows

    def artifacts(self, model: nn.Module) -> dict[str, object]:
        """Past, forecast and future of the target, in the first, the middle and the last test window."""

        from tasks.forecasting import forecast_plot

        split, device = self.split("test"), next(model.parameters()).device
        numbers = sorted({0, len(split) // 2, len(split) - 1})
        batch = {name: tensor.to(device) for name, tensor in split.batch(numbers).items()}
        column = -1 if self.features == "S" else self.published.columns.index(self.published.target)
        lines = (
            x[..., column].float().cpu().numpy() for x in (batch["past"], batch["future"], self.forecast(model, batch))
        )
        return {"png": forecast_plot.draw(*lines, numbers=numbers, target=self.published.target)}

    def _file(self) -> Path | None:
        """The CSV file, whether it exists or not; None for a generated series."""
        if self.source == SYNTHETIC:
            return None
        if self.path is None:
            return self._folder / self.published.download.name
        if not self.path.is_dir():
            return self.path
        plain, zipped = (self.path / (self.published.file + end) for end in ("", ".gz"))
        return zipped if zipped.exists() and not plain.exists() else plain

    def _generate(self, progress: Progress) -> Series:
        published = self.published
        rows = self.rows or published.rows
        trend = {"trend_days": self.trend_days} if self.trend_days else {}
        options = {"name": self.dataset, "seed": self.data_seed, **trend}
        return synthetic_series.generate(rows, published.columns, published.minutes, **options)

    def _read(self, progress: Progress) -> Series:
        """All rows of the file. Raises DataError."""
        self.check_is_prepared()
        published, file = self.published, self._file()
        series = read(file, published)
        if self._source.complete and series.content_hash != published.content_hash:
            difference = f"{len(series.values):,} rows, not the {published.rows:,} published ones"
            cure = f"get the published file, or take a part with task.source={SLICE}"
            raise DataError(f"{file}: {difference}", cure)
        return series

    def ends(self, series: Series) -> tuple[int, int, int]:
        """The rows before which the training, the validation and the test split end. Raises DataError."""
        used = min(len(series.values), self.published.split_rows or len(series.values))
        train, _, test = (int(used * share) for share in self.published.shares)
        return train, used - test, used
