"""Tables and figures as data: what `do=report` writes to files, returned. Nothing is written, nothing is trained."""

import contextlib
import importlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from harness.config.schema import Paths

if TYPE_CHECKING:
    import pandas as pd

    from harness.report.pages.answer import ColumnAnswer

NUMBERS = ("ours_mean", "ours_ci", "n", "ours_min", "ours_max", "chance", "tier", "difference", "difference_ci")
POINT = ("model", "what", "length", "status", "ms", "memory_mb")


@dataclass(frozen=True)
class Picture:
    """A PNG, which a notebook shows. `save` writes it to a file."""

    png: bytes = field(repr=False)

    def _repr_png_(self) -> bytes:
        return self.png

    def save(self, path: str | Path) -> Path:
        Path(path).write_bytes(self.png)
        return Path(path)


@dataclass(frozen=True)
class Page:
    """A table as `do=report` renders it. A notebook shows its Markdown.

    `answer`: the sentences that it opens with. `frame`: a row for each published or measured number, the columns of
    the CSV; those of `NUMBERS` are numbers, NaN where there is none, and the others are text.
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
        """Each row's seeds, mean, interval and tier, a panel for each column, or for those that are named.

        Raises UsageError where no column has two rows with scores.
        """
        from harness.errors import UsageError, did_you_mean
        from harness.report.plots import score_plot

        shown = score_plot.panels(self.columns)
        columns_shown = {answer.group.column for answer in shown}
        if missing := [name for name in columns if name not in columns_shown]:
            raise UsageError(f"{self.name} has no scores in '{missing[0]}': {did_you_mean(missing[0], columns_shown)}")
        shown = [answer for answer in shown if not columns or answer.group.column in columns]
        if not shown:
            raise UsageError(f"{self.name} has no column with two rows to compare: python run.py table={self.name}")
        return _drawn(lambda path: score_plot.draw(self.title, shown, path))


def report(table: str, records: "pd.DataFrame | None" = None) -> Page:
    """One table from records, as `do=report table=...` makes it. Raises UsageError.

    `records`: a frame of `longhaul.records` or `longhaul.run`, or several of them joined by `pandas.concat`; by
    default all below `paths.records`.
    """
    from harness.commands.report import table_page
    from harness.config.places import CONF
    from harness.report.render import markdown
    from harness.report.scores.measurements import load_measurements

    paths = Paths()
    folders = {"paper": paths.paper, "records": paths.records, "tables": paths.tables}
    cells = _all_records() if records is None else records
    made, answers, _ = table_page(table, cells, load_measurements(Path(paths.bench)), CONF, folders)
    return Page(table, made.title, made.answer, _frame(made.tidy), markdown.render(made), tuple(answers or ()))


def figure(name: str, records: "pd.DataFrame | None" = None) -> Picture:
    """One figure, as `do=report figure=...` draws it; `records` as in `report`. Raises UsageError."""
    from harness.commands.report import draw_figures
    from harness.config.places import CONF

    cells = _all_records() if records is None else records
    with tempfile.TemporaryDirectory() as folder, _backend_kept():
        draw_figures(name, cells, conf=CONF, paths={"paper": Paths().paper, "figures": folder})
        return Picture((Path(folder) / f"{name}.png").read_bytes())


def measurements(root: str | Path | None = None) -> "pd.DataFrame":
    """What `do=bench` measured, a row a point: the measurement's name and settings, model, what, length, ms, MB.

    `status` is `ok`, or says why there is no number. Numbers of different names were not measured in one run; their
    ratios mean nothing. `root`: the folder, by default `paths.bench`. Raises UsageError.
    """
    import pandas as pd

    from harness.report.scores.measurements import load_measurements

    rows = []
    for name, measured in load_measurements(Path(root or Paths().bench)).items():
        settings = measured.get("settings") or {}
        hardware = measured.get("hardware") or {}
        same = {"name": name, "hardware": hardware.get("gpu") or hardware.get("cpu")} | settings
        rows += [same | {key: point[key] for key in POINT if key in point} for point in measured.get("points", ())]
    return pd.DataFrame(rows)


def _all_records() -> "pd.DataFrame":
    """Those that a report takes: at the paper's budget a record has to follow from its recipe."""
    from harness.records.collect import frame, valid_records

    return frame(valid_records(Paths().records, recipes=True)[0])


def _frame(tidy: Sequence[dict[str, str]]) -> "pd.DataFrame":
    import pandas as pd

    from harness.report.render.layout import TIDY_COLUMNS

    made = pd.DataFrame(list(tidy), columns=list(TIDY_COLUMNS))
    for column in NUMBERS:
        made[column] = pd.to_numeric(made[column], errors="coerce")
    return made


def _drawn(draw: Callable[[Path], None]) -> Picture:
    with tempfile.TemporaryDirectory() as folder, _backend_kept():
        draw(path := Path(folder) / "picture.png")
        return Picture(path.read_bytes())


@contextlib.contextmanager
def _backend_kept() -> Iterator[None]:
    """The plots of a report choose a backend without a window. A notebook goes on with its own."""
    import matplotlib

    before = matplotlib.get_backend()
    if before.startswith("module://"):  # IPython's shows figures only if it is imported while it is the backend
        importlib.import_module(before.removeprefix("module://"))
    try:
        yield
    finally:
        if matplotlib.get_backend() != before:
            matplotlib.use(before)
