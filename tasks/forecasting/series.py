"""A multivariate series in a CSV file: read, checked row by row, and identified by its content.

One column is `date`, the others are numbers. Every error is one line that names the file and the
line number of the row.

    n rows, C columns
"""

import csv
import hashlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from tasks import data_sources
from tasks.checks import DataError
from tasks.forecasting.datasets import Dataset

DATE = "date"
DATE_FORMATS = ("%Y-%m-%d %H:%M:%S", "%m/%d/%Y %H:%M")  # ETT's; Weather's, month first
HEADER_LINES = 1
EXACT_DIGITS = 6  # copies of Weather differ from the ninth digit on


@dataclass(frozen=True)
class Series:
    """times (n,) datetime64[s], one step apart; values (n, C) float64, finite; columns (C)."""

    times: np.ndarray
    values: np.ndarray
    columns: tuple[str, ...]

    @property
    def content_hash(self) -> str:
        """sha256, hexadecimal, of columns, times and values to six decimals: the same for every copy of the numbers."""
        digest = hashlib.sha256("\0".join(self.columns).encode())
        digest.update(self.times.astype("<i8").tobytes())
        digest.update((np.round(self.values, EXACT_DIGITS) + 0.0).astype("<f8").tobytes())  # + 0.0: no negative zero
        return digest.hexdigest()

    def first(self, rows: int | None) -> "Series":
        return Series(self.times[:rows], self.values[:rows], self.columns)


def read(file: Path, dataset: Dataset) -> Series:
    """The columns of a data set, from a CSV file, gzipped or not. Raises DataError."""

    def refuse(where: str, problem: str) -> DataError:
        return DataError(f"{file}{where}: {problem}", "put the published file there")

    frame = parse(file)
    absent = [column for column in (DATE, *dataset.columns) if column not in frame.columns]
    if absent:
        raise refuse(":1", f"no column {absent[0]}; it has {', '.join(frame.columns)[:120] or 'none'}")
    extra = sorted(set(frame.columns) - {DATE, *dataset.columns, *dataset.ignored})
    if extra:
        raise refuse(":1", f"a column {extra[0]} that {dataset.file} does not have")
    if frame.empty:
        raise refuse(":2", "no row")
    values = np.empty((len(frame), len(dataset.columns)))
    for index, column in enumerate(dataset.columns):
        text = frame[column]
        numbers = pd.to_numeric(text, errors="coerce").to_numpy(float)
        wrong = ~np.isfinite(numbers)
        if wrong.any():
            row = int(wrong.argmax())
            problem = "is empty" if pd.isna(text.iloc[row]) else f"is {str(text.iloc[row])[:40]!r}, no finite number"
            raise refuse(f":{line(row)}", f"{column} {problem}")
        values[:, index] = numbers
    return Series(timestamps(frame[DATE], dataset.minutes, refuse), values, dataset.columns)


def parse(file: Path) -> pd.DataFrame:
    """All cells as text. Raises DataError if the file is no table."""
    try:
        with data_sources.opened(file) as stream:
            data = data_sources.content(stream, str(file))
    except OSError as error:
        raise DataError(f"{file}:1: {error.strerror or error}", "set task.path to its folder") from error
    form = {"dtype": str, "quoting": csv.QUOTE_NONE, "skip_blank_lines": False, "keep_default_na": False}
    try:
        frame = pd.read_csv(io.BytesIO(data), na_values=[""], **form)
        if not isinstance(frame.index, pd.RangeIndex):
            raise ValueError("its rows are longer than its header")
        return frame
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError, ValueError) as error:
        message = " ".join(str(error).split())[:160]
        raise DataError(f"{file}:1: not a CSV file ({message})", "put the published file there") from error


def timestamps(text: pd.Series, minutes: int, refuse) -> np.ndarray:
    """(n,) datetime64[s], each `minutes` after the previous one."""
    form = next((form for form in DATE_FORMATS if pd.notna(as_times(text[:1], form)[0])), DATE_FORMATS[0])
    times = as_times(text, form)
    unread = np.isnat(times)
    if unread.any():
        row = int(unread.argmax())
        raise refuse(f":{line(row)}", f"{DATE} {str(text.iloc[row])[:40]!r} is no time like {form}")
    steps = np.diff(times).astype("timedelta64[s]").astype(int)
    wrong = steps != minutes * 60
    if wrong.any():
        row = int(wrong.argmax()) + 1
        kind = "twice" if not steps[row - 1] else "before the row above" if steps[row - 1] < 0 else "out of step"
        passed = f"{steps[row - 1] / 60:g} minutes after the row above instead of {minutes}"
        raise refuse(f":{line(row)}", f"{DATE} {text.iloc[row]} is {kind}, {passed}")
    return times


def as_times(text: Sequence[str], form: str) -> np.ndarray:
    return pd.to_datetime(text, format=form, errors="coerce").to_numpy().astype("datetime64[s]")


def line(row: int) -> int:
    """Number of the line in the file, from 1, of row `row`, from 0."""
    return row + HEADER_LINES + 1
