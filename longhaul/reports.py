"""Tables and figures as data: returns what `do=report` writes to files. Nothing is written, nothing is trained."""

import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.config.schema import Paths
from longhaul.words import folder_of, path_of, usage_errors

if TYPE_CHECKING:
    import pandas as pd

    from harness.report.pages.answer import ColumnAnswer

NUMBERS = (
    *("ours_mean", "ours_ci", "ours_ci_low", "ours_ci_high", "n", "ours_min", "ours_max", "chance"),
    *("difference", "difference_ci"),
)
POINT = ("model", "what", "length", "status", "ms", "memory_mb")


@dataclass(frozen=True)
class Picture:
    """A PNG, which a notebook shows. `save` writes it to a file."""

    png: bytes = field(repr=False)

    def _repr_png_(self) -> bytes:
        return self.png

    @usage_errors
    def save(self, path: str | os.PathLike[str]) -> Path:
        file = path_of(path, "")
        file.write_bytes(self.png)
        return file


@dataclass(frozen=True)
class Page:
    """A table as `do=report` renders it. A notebook shows its Markdown.

    `answer`: its first sentences. `frame`: one row per published or measured number, with the columns of the CSV; those
    in `NUMBERS` hold numbers, NaN where there is none, and the others hold text.
    """

    name: str
    title: str
    answer: tuple[str, ...]
    frame: "pd.DataFrame" = field(repr=False)
    markdown: str = field(repr=False)
    columns: "tuple[ColumnAnswer, ...]" = field(repr=False)

    def _repr_markdown_(self) -> str:
        return self.markdown

    def plot(self, *columns: str) -> Picture:
        """Each row's seeds, mean, interval and place, with one panel per column, or per named column.

        Raises UsageError where no column has two rows with scores.
        """
        from harness.errors import UsageError, did_you_mean
        from harness.report.plots import scores
        from harness.report.plots.file import Plot

        shown = [answer for answer in self.columns if answer.tests.rows > 1]
        columns_shown = {answer.group.column for answer in shown}
        if missing := [name for name in columns if name not in columns_shown]:
            raise UsageError(f"{self.name} has no scores in '{missing[0]}': {did_you_mean(missing[0], columns_shown)}")
        shown = [answer for answer in shown if not columns or answer.group.column in columns]
        if not shown:
            raise UsageError(f"{self.name} has no column with two rows to compare: python run.py table={self.name}")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "picture.png"
            Plot(scores.data(self.title, shown), scores.draw, (path,), dpi=130).write([path])
            return Picture(path.read_bytes())


@usage_errors
def report(table: str, records: "pd.DataFrame | None" = None) -> Page:
    """One table from records, as `do=report table=...` makes it. Raises UsageError.

    `records`: a frame of `longhaul.records` or `longhaul.run`, or several of them joined by `pandas.concat`; by
    default all records below `paths.records`.
    """
    from harness.commands.table_pages import table_page
    from harness.config.places import CONF
    from harness.records.measurements import load_measurements
    from harness.report.render import markdown

    _require_single("table", table)
    paths = Paths()
    folders = {"paper": paths.paper, "records": paths.records, "tables": paths.tables}
    page = table_page(table, _cells(records), load_measurements(Path(paths.bench)), CONF, folders)
    made = page.table
    return Page(table, made.title, made.lead, _frame(made.tidy), markdown.render(made), tuple(page.answers))


@usage_errors
def figure(name: str, records: "pd.DataFrame | None" = None) -> Picture:
    """One figure, as `do=report figure=...` draws it; `records` as in `report`. Raises UsageError."""
    from harness.commands.report import draw_figures
    from harness.config.places import CONF
    from harness.errors import UsageError

    _require_single("figure", name)
    cells = _cells(records)
    with tempfile.TemporaryDirectory() as folder:
        if not draw_figures(name, cells, conf=CONF, paths={"paper": Paths().paper, "figures": folder}):
            raise UsageError(f"figure {name} has nothing to show yet: results/tables/not_run.md says what it needs")
        return Picture((Path(folder) / f"{name}.png").read_bytes())


@usage_errors
def measurements(root: str | Path | None = None) -> "pd.DataFrame":
    """The measurements of `do=bench`, one row per point: name and settings, model, what, length, ms, MB.

    `status` is `ok`, or says why there is no number. Numbers of different names come from different runs, so their
    ratios mean nothing. `root`: the folder, by default `paths.bench`. Raises UsageError.
    """
    import pandas as pd

    from harness.records.measurements import load_measurements

    folder = folder_of(root, Paths().bench, "measurements")
    measured = load_measurements(folder)
    if root is not None and not measured:
        print(f"{folder}: no measurement in this folder", file=sys.stderr)
    return pd.DataFrame([row for name, entries in measured.items() for row in points_of(name, entries)])


def points_of(name: str, measured: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A row per point of a measurement, with its settings."""
    hardware = measured.get("hardware") or {}
    same = {"name": name, "hardware": hardware.get("gpu") or hardware.get("cpu")} | (measured.get("settings") or {})
    return [same | {key: point[key] for key in POINT if key in point} for point in measured.get("points", ())]


def _require_single(group: str, name: str) -> None:
    """Raises UsageError for anything but the name of one table or figure."""
    from harness.commands.mistakes import unknown_option
    from harness.config.compose import folders
    from harness.errors import UsageError
    from harness.report.spec_files import available

    if name == "all":
        raise UsageError(f"one {group} is expected, not 'all': python run.py do=report {group}=all makes all of them")
    if name not in available(folders(), group):
        raise UsageError(unknown_option(f"{group}/{name}"))


def _cells(records: "pd.DataFrame | None") -> "pd.DataFrame":
    """The records that a report uses, by default all: at the paper's budget, a record must follow from its recipe."""
    from harness.records.cache import of_folder
    from harness.records.collect import frame, valid_records
    from longhaul.frames import record_frame

    if records is not None:
        return record_frame(records)
    return frame(valid_records(Paths().records, published=True, cache=of_folder(Paths().outputs))[0])


def _frame(tidy: Sequence[dict[str, str]]) -> "pd.DataFrame":
    import pandas as pd

    from harness.report.render.layout import TIDY_COLUMNS

    made = pd.DataFrame(list(tidy), columns=list(TIDY_COLUMNS))
    for column in NUMBERS:
        made[column] = pd.to_numeric(made[column], errors="coerce")
    return made
