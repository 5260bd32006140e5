"""Pictures as files: written whole, recognised as whole and current, and drawn again only where they are not.

A digest of the plotted data and one of the file's content are appended to matplotlib's output; readers of PNG and PDF
ignore them. So a picture that was cut short, changed or drawn from other numbers is not current.
"""

import hashlib
import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

from harness.records.collect import Cells
from harness.records.files import write_bytes_atomic
from harness.records.measurements import Measurement
from harness.records.png import with_palette
from harness.report.plots.drawing import Schedule
from harness.report.plots.style import RC, Figure
from harness.report.scores.tuning import Selected

VERSION = 6  # of what pictures look like: with another, all are drawn again
SUFFIXES = ("png", "pdf")
SEAL = re.compile(rb"\n%longhaul ([0-9a-f]{64}) ([0-9a-f]{64})\n")
SEAL_BYTES = len("\n%longhaul  \n") + 2 * 64


class Sources(NamedTuple):
    """What figures are made of: the frame of all records, the folder of the published numbers, the measurements of
    do=bench by their names, and the cells that `select` chose for the figure's table, if they are known."""

    cells: Cells
    paper: Any
    measurements: Mapping[str, Measurement] = {}
    selected: Selected | None = None


@dataclass(frozen=True)
class Plot:
    """A picture: all that it shows, as a plain mapping, the function that draws this, and its files."""

    data: Mapping[str, Any]
    draw: Callable[[Mapping[str, Any]], Figure]
    paths: tuple[Path, ...]
    dpi: int = 200

    @cached_property
    def digest(self) -> str:
        """Of what it shows, as 64 hexadecimal digits. The other bytes of a file depend on matplotlib's version."""
        return hashlib.sha256(json.dumps([VERSION, self.data], sort_keys=True).encode()).hexdigest()

    def stale(self) -> list[Path]:
        """The files that are not there or show something else."""
        return [path for path in self.paths if not is_current(path, self.digest)]

    def write(self, paths: Sequence[Path]) -> None:
        """Draw it into these files. The same data give the same bytes."""
        from matplotlib import rc_context

        with rc_context(RC):
            figure = self.draw(self.data)
            for path in paths:
                save(figure, path, self.digest, dpi=self.dpi)
                figure.set_layout_engine("none")  # one layout serves all files

    @property
    def shows_nothing(self) -> bool:
        """Whether no panel has a series: no picture is made."""
        panels = self.data.get("panels")
        return panels is not None and all(panel.get("series") == [] for panel in panels)

    def update(self, check: bool, schedule: Schedule) -> list[Path]:
        """Draw the files that are stale, by `schedule`, and return all. With `check`, the stale files alone.

        The files of a picture that shows nothing are removed; with `check`, they are stale.
        """
        if self.shows_nothing:
            former = [path for path in self.paths if path.is_file()]
            for path in () if check else former:
                path.unlink()
            return former if check else []
        stale = self.stale()
        if check:
            return stale
        if stale:
            schedule(partial(self.write, stale), stale)
        return list(self.paths)


def save(figure: Figure, path: Path, shows: str, *, dpi: int) -> None:
    """Write a figure, PNG or PDF by its suffix, and `shows`, the sha256 of what it shows.

    The same figure gives the same bytes. The canvas draws it once; `savefig` would draw it twice.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_pdf import FigureCanvasPdf

    file = io.BytesIO()
    figure.set_dpi(dpi)
    if path.suffix == ".png":  # its pixels are packed again below
        FigureCanvasAgg(figure).print_png(file, metadata={"Software": None}, pil_kwargs={"compress_level": 0})
    else:
        FigureCanvasPdf(figure).print_pdf(file, metadata={"CreationDate": None})
    content = with_palette(file) if path.suffix == ".png" else file.getvalue()
    seal = f"\n%longhaul {shows} {hashlib.sha256(content).hexdigest()}\n".encode()
    write_bytes_atomic(path, content + seal, durable=False)  # it can be drawn again


def is_current(path: Path, shows: str) -> bool:
    """Whether the file is whole and shows this."""
    if not path.is_file():
        return False
    data = path.read_bytes()
    seal = SEAL.fullmatch(data[-SEAL_BYTES:])
    whole = seal is not None and seal[2].decode() == hashlib.sha256(data[:-SEAL_BYTES]).hexdigest()
    return whole and seal[1].decode() == shows
