"""Forecasting of a user's own series: a CSV file with a column of times and columns of numbers.

Most rows say which step it has, and a gap, a time twice or out of order is named by its line. With `irregular` rows
count one step each, whatever their times, as in Time-Series-Library (Wu et al., 2023), whose Weather has a time twice
and a gap. Its sets are layouts: their columns and rows are checked.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from tasks.checks import DataError, Progress, at_least
from tasks.data.own_files import FILES, chosen_source
from tasks.data.splits import check_fractions
from tasks.data_task import SYNTHETIC, Source
from tasks.forecasting.datasets import Dataset
from tasks.forecasting.forecasting import Forecasting
from tasks.forecasting.series import Series, header

GENERATED, ROWS, MINUTES = ("wind", "price", "load"), 4000, 60  # of a generated series


@dataclass(kw_only=True, eq=False, repr=False)
class OwnSeries(Forecasting):
    """`path`: a .csv (also .gz), whose column `date` has the times. `columns` None: all others; `target` None: the last
    of them. `split_dates`: the first times of validation and of test; without them `fractions` of the rows, or of
    `split_rows`. `layout`: how many `columns` and `rows` the file must have. Raises ValueError.
    """

    dataset: str = "own"
    source: str = FILES
    features: str = "M"
    label_len: int | None = None  # half of the past
    date: str = "date"
    columns: Sequence[str] | None = None
    target: str | None = None
    fractions: Sequence[float] = (0.7, 0.1, 0.2)
    split_rows: int | None = None
    split_dates: Sequence[str] | None = None
    irregular: bool = False
    layout: Mapping[str, int] | None = None
    repeated = ("date", "target")

    def __post_init__(self) -> None:
        check_fractions(self.fractions)
        at_least(1, split_rows=self.split_rows)
        self.label_len = self.seq_len // 2 if self.label_len is None else self.label_len
        columns = [self.date, *(self.columns or ())]
        if len({*columns}) < len(columns) or self.target not in (None, *(self.columns or [self.target])):
            raise ValueError(f"columns={columns[1:]}: twice the same, or date={self.date}, or no target={self.target}")
        try:
            self._dates = np.array(self.split_dates or (), "datetime64[s]")
        except ValueError:
            self._dates = np.empty(1)
        if self.split_dates is not None and (len(self._dates) != 2 or not self._dates[0] < self._dates[1]):
            raise ValueError(f"split_dates={list(self.split_dates)} are not two times in order, such as 2017-03-01")
        self.source = chosen_source(self.source, self.path, SYNTHETIC)
        super().__post_init__()

    def sources(self) -> dict[str, Source]:
        return {
            FILES: Source(self._read, path="a .csv file (also .gz) with a column of times", requires_path=True),
            SYNTHETIC: Source(self._generate),
        }

    @cached_property
    def published(self) -> Dataset:
        """What is to be read. Raises DataError."""
        if self.source == SYNTHETIC:
            there, file, minutes = [*(self.columns or GENERATED)], "generated", MINUTES
        else:
            self.check_source()
            self.check_is_prepared()
            there, file, minutes = header(self.path), self.path.name, None
        columns = tuple(self.columns or (name for name in there if name != self.date))
        target = self.target or (columns or (self.date,))[-1]
        if absent := [name for name in (target, *columns) if name not in there or not columns]:
            raise DataError(
                f"{self.path}:1: no column {absent[0]} beside {self.date}, there is {', '.join(there)[:120]}"
            )
        how = {"shares": tuple(self.fractions), "split_rows": self.split_rows, "ignored": None, "date": self.date}
        return Dataset(file, columns, target, ROWS, minutes=minutes, irregular=self.irregular, **how)

    def _file(self) -> Path | None:
        return self.path

    def _read(self, progress: Progress) -> Series:
        series = super()._read(progress)
        there = {"columns": len(series.columns), "rows": len(series.values)}
        for key in (key for key in there if self.layout and there[key] != self.layout[key]):
            problem = f"{there[key]:,} {key}, not the {self.layout[key]:,} of this set"
            raise DataError(f"{self.path}: {problem}", "task=forecasting/own reads any")
        return series

    def ends(self, series: Series) -> tuple[int, int, int]:
        if self.split_dates is None:
            return super().ends(series)
        count = len(series.values)
        train, val = np.searchsorted(series.times, self._dates).tolist()
        if not 0 < train < val < count:
            between = " to ".join(str(time).replace("T", " ") for time in series.times[[0, -1]])
            problem = f"split_dates={list(self.split_dates)} leave a part of {between} empty"
            raise DataError(f"{self.path}: {problem}", "choose others")
        return train, val, count
