"""A multivariate series in a CSV file: read, checked row by row, and identified by its content.

One column is the time, the others are numbers. Every error is one line that names the file and the line of the row.

    n rows, C columns
"""

import hashlib
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from tasks import data_sources
from tasks.checks import DataError
from tasks.forecasting.datasets import Dataset

# ETT's; Weather's, month first; of the sets of TSLib; ISO 8601
DATE_FORMATS = (
    *("%Y-%m-%d %H:%M:%S", "%m/%d/%Y %H:%M", "%Y/%m/%d %H:%M"),
    *("%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d", "%Y-%m"),
)
HEADER_LINES = 1
EXACT_DIGITS = 6  # copies of Weather differ from the ninth digit on
LARGEST = 1e100  # of a number: its square is one, too
LARGEST_FILE = 1 << 30  # bytes
LONGEST_NAME = 80  # characters of a column's
CYCLES_S = (86_400, 7 * 86_400, 365.25 * 86_400)  # a day, a week, a year
PUT = "put the whole file there"


@dataclass(frozen=True)
class Series:
    """times (n,) datetime64[s]; values (n, C) float64, finite; columns (C). `digits`: decimals that tell two apart."""

    times: np.ndarray
    values: np.ndarray
    columns: tuple[str, ...]
    digits: int | None = EXACT_DIGITS

    @property
    def content_hash(self) -> str:
        """sha256, hexadecimal, of columns, times and values to `digits`: the same for every copy of the numbers."""
        digest = hashlib.sha256("\0".join(self.columns).encode())
        digest.update(self.times.astype("<i8").tobytes())
        values = self.values if self.digits is None else np.round(self.values, self.digits)
        digest.update((values + 0.0).astype("<f8").tobytes())  # + 0.0: no negative zero
        return digest.hexdigest()

    def first(self, rows: int | None) -> "Series":
        return replace(self, times=self.times[:rows], values=self.values[:rows])

    @property
    def season(self) -> int:
        """Rows of the first of a day, a week and a year that has two or more; 1 without one."""
        steps = np.diff(self.times).astype(int)
        step = max(1.0, float(np.median(steps))) if len(steps) else CYCLES_S[-1]
        return next((rows for cycle in CYCLES_S if (rows := round(cycle / step)) > 1), 1)


def read(file: Path, dataset: Dataset) -> Series:
    """The columns of a data set, from a CSV file, gzipped or not. Raises DataError."""

    def refuse(where: str, problem: str) -> DataError:
        return DataError(f"{file}{where}: {problem}", PUT if dataset.download else "correct it")

    frame = parse(file)
    there = list(frame.columns)
    if absent := [column for column in (dataset.date, *dataset.columns) if column not in there]:
        raise refuse(":1", f"no column {absent[0]}; it has {', '.join(there)[:120] or 'none'}")
    known = {dataset.date, *dataset.columns, *(there if dataset.ignored is None else dataset.ignored)}
    if extra := sorted(set(there) - known):
        raise refuse(":1", f"a column {extra[0]} that {dataset.file} does not have")
    if wrong := [name for name in dataset.columns if not name.isprintable() or len(name) > LONGEST_NAME]:
        raise refuse(":1", f"{wrong[0][:40]!r} is no name of a column, {LONGEST_NAME} letters at most")
    if frame.empty:
        raise refuse(":2", "no row")
    values = np.empty((len(frame), len(dataset.columns)))
    for index, column in enumerate(dataset.columns):
        text = frame[column]
        numbers = pd.to_numeric(text, errors="coerce").to_numpy(float)
        wrong = ~(np.abs(numbers) <= LARGEST)
        if wrong.any():
            row = int(wrong.argmax())
            problem = "is empty" if pd.isna(text.iloc[row]) else f"is {str(text.iloc[row])[:40]!r}, no finite number"
            raise refuse(f":{line(row)}", f"{column} {problem}")
        values[:, index] = numbers
    times = timestamps(frame[dataset.date], refuse)
    if not dataset.irregular:
        check_steps(times, frame[dataset.date], dataset.minutes, refuse)
    return Series(times, values, dataset.columns, EXACT_DIGITS if dataset.content_hash else None)


def parse(file: Path) -> pd.DataFrame:
    """All cells as text. Raises DataError if the file is no table."""
    with data_sources.refusing(f"{file}:1", "set task.path to its folder"), data_sources.opened(file) as stream:
        return tabled(data_sources.content(stream, str(file), LARGEST_FILE), file)


def tabled(data: bytes, file: Path) -> pd.DataFrame:
    form = {"dtype": str, "skip_blank_lines": False, "keep_default_na": False}
    try:
        frame = pd.read_csv(io.BytesIO(data), na_values=[""], **form)
        if not isinstance(frame.index, pd.RangeIndex):
            raise ValueError("its rows are longer than its header")
        return frame
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError, ValueError) as error:
        message = " ".join(str(error).split())[:160]
        raise DataError(f"{file}:1: not a CSV file ({message})", PUT) from error


def header(file: Path) -> list[str]:
    """The names of the columns. Raises DataError."""
    return list(tabled(next(data_sources.lines_of(file), (1, b""))[1], file).columns)


def timestamps(text: pd.Series, refuse: Callable[[str, str], DataError]) -> np.ndarray:
    """(n,) datetime64[s]."""
    form = next((form for form in DATE_FORMATS if pd.notna(as_times(text[:1], form)[0])), DATE_FORMATS[0])
    times = as_times(text, form)
    unread = np.isnat(times)
    if unread.any():
        row = int(unread.argmax())
        raise refuse(f":{line(row)}", f"{text.name} {str(text.iloc[row])[:40]!r} is no time like {form}")
    return times


def check_steps(
    times: np.ndarray, text: pd.Series, minutes: int | None, refuse: Callable[[str, str], DataError]
) -> None:
    """Raises DataError for a row that is not `minutes` after the one above; None: as many as between most rows.

    Rows that are all at the same time of a month may be so many months apart.
    """
    steps, unit = np.diff(times).astype("timedelta64[s]").astype(int) / 60, "minutes"
    months = times.astype("datetime64[M]")
    if minutes is None and len(np.unique(times - months)) == 1:
        steps, unit = np.diff(months).astype(int), "months"
    if minutes is None and len(steps):
        each, counts = np.unique(steps, return_counts=True)
        minutes = each[counts.argmax()]
    wrong = (steps != minutes) | (steps <= 0)
    if wrong.any():
        row = int(wrong.argmax()) + 1
        kind = "twice" if not steps[row - 1] else "before the row above" if steps[row - 1] < 0 else "out of step"
        passed = f"{steps[row - 1]:g} {unit} after the row above instead of {minutes:g}"
        raise refuse(f":{line(row)}", f"{text.name} {text.iloc[row]} is {kind}, {passed}")


def as_times(text: Sequence[str], form: str) -> np.ndarray:
    return pd.to_datetime(text, format=form, errors="coerce").to_numpy().astype("datetime64[s]")


def line(row: int) -> int:
    """Number of the line in the file, from 1, of row `row`, from 0."""
    return row + HEADER_LINES + 1
