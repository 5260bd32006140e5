"""The content of the site as one JSON document, from which all pages are rendered. Equal records give equal bytes.

Paths of files are relative to the site: `figures/`, `records/` and `bench/` are copies of the folders of these names.
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.report.pages import answer, counts
from harness.report.pages.printed import count_beside
from harness.report.plots.file import Sources
from harness.report.render.layout import Picture, Table
from harness.report.scores.measurements import describe_setting
from harness.report.site import audit, charts, matrix, runs
from harness.report.spec.table import TableSpec
from harness.report.spec_files import Folders, available, load_figure, load_table

if TYPE_CHECKING:
    import pandas as pd

NOT_SHOWN = "smoke"  # the budget of records that only show that a cell runs
COPIED = ("figures", "records", "bench")  # folders of `paths` whose files are copied into the site


@dataclass(frozen=True)
class Material:
    """The input of the site: the pages of all tables with the answers of their columns, the records as read and as a
    frame, and the measurements of do=bench by name. `paths`: the folders."""

    tables: Sequence[Table]
    answers: Sequence[answer.ColumnAnswer]
    records: Sequence[Mapping[str, Any]]
    cells: "pd.DataFrame"
    measurements: Mapping[str, Mapping[str, Any]]
    conf: Folders
    paths: Mapping[str, Any]

    @property
    def shown_records(self) -> list[Mapping[str, Any]]:
        return [entries for entries in self.records if entries["cell"]["budget"] != NOT_SHOWN]


def document(material: Material) -> str:
    return json.dumps(site_data(material), ensure_ascii=False, sort_keys=True, separators=(",", ":")) + "\n"


def site_data(material: Material) -> dict[str, Any]:
    """The document. Raises UsageError for an invalid file of conf/ or of the ledger."""
    paper_root, conf, measurements = material.paths["paper"], material.conf, material.measurements
    audited = audit.load(paper_root)
    specs = [load_table(table.name, conf, paper_root) for table in material.tables]
    figures = {name: load_figure(name, conf, paper_root) for name in available(conf, "figure")}
    sources = Sources(material.cells, paper_root, measurements)
    measured = [chart for name in measurements for chart in charts.measurement_charts(name, measurements[name])]
    root = Path(material.paths["records"])
    return {
        "papers": _papers(audited.papers, [table.name for table in material.tables], list(figures)),
        "tables": {table.name: _table(table, material.paths) for table in material.tables},
        "figures": {name: _figure(name, figure) for name, figure in figures.items()},
        "runs": {entries["cell"]["id"]: runs.run_of(entries, root) for entries in material.shown_records},
        "measurements": {name: _measurement(name, entries) for name, entries in measurements.items()},
        "matrix": matrix.matrix(
            [s for s in specs if isinstance(s, TableSpec)], material.answers, material.shown_records
        ),
        "audit": audit.linked(audited, material.tables, list(figures)),
        "charts": measured + [chart for figure in figures.values() for chart in charts.figure_charts(figure, sources)],
        "totals": _totals(material, len(figures)),
    }


def _papers(published: Mapping[str, str], tables: Sequence[str], figures: Sequence[str]) -> list[dict[str, Any]]:
    """The papers, then our own tables by folder; a table without a folder has a page of its own name."""
    names = {"tables": sorted(tables, key=_order), "figures": sorted(figures, key=_order)}
    papers = []
    for key in dict.fromkeys([*published, *sorted(name.split("/")[0] for name in (*tables, *figures))]):
        of_paper = {group: [name for name in names[group] if name.split("/")[0] == key] for group in names}
        if any(of_paper.values()):
            page = {"key": key, "name": published.get(key, key.capitalize()), "published": key in published}
            papers.append(page | of_paper)
    return papers


def _order(name: str) -> tuple[bool, int, str]:
    """Published tables and figures first, `t2` before `t2_costs` and `t10`."""
    last = name.rpartition("/")[2]
    number = re.match(r"[tf](\d+)", last)
    return not number, int(number[1]) if number else 0, last


def _table(table: Table, paths: Mapping[str, Any]) -> dict[str, Any]:
    page = Path(paths["tables"]) / f"{table.name}.md"
    shown = replace(table, tidy=(), plots=(), pictures=())
    return asdict(shown, dict_factory=_without_empty) | {
        "command": table.command,
        "lead": table.lead,
        "details": table.details,
        "plots": [_picture(plot, page, paths) for plot in table.plots],
        "pictures": [_picture(picture, page, paths) for picture in table.pictures],
    }


def _without_empty(items: list[tuple[str, Any]]) -> dict[str, Any]:
    """The mapping without what is empty in most entries."""
    return {key: value for key, value in items if value or key not in ("bold", "tone", "link", "card", "cells")}


def _picture(picture: Picture, page: Path, paths: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "heading": picture.heading,
        "caption": picture.caption,
        "file": None if picture.link is None else _place(picture.link, page, paths),
        "files": {name: _place(link, page, paths) for name, link in picture.files.items()},
    }


def _place(link: str, page: Path, paths: Mapping[str, Any]) -> str:
    """The path in the site of a file that the page of a table links. Raises ValueError outside the copied folders."""
    file = Path(os.path.abspath(page.parent / link))
    for folder in COPIED:
        root = paths.get(folder)
        if root is not None and file.is_relative_to(os.path.abspath(root)):
            return f"{folder}/{file.relative_to(os.path.abspath(root)).as_posix()}"
    raise ValueError(f"{link} is in no folder of {', '.join(COPIED)}")


def _figure(name: str, figure: Any) -> dict[str, Any]:
    """Title, file and caption; for a figure that cannot be drawn yet, the caption says what is missing."""
    caption = getattr(figure, "caption", "") or getattr(figure, "needs", "")
    return {"title": figure.title, "caption": caption, "file": f"figures/{name}.png"}


def _measurement(name: str, measured: Mapping[str, Any]) -> dict[str, Any]:
    file = {"file": f"bench/{name}.json"}
    if measured["kind"] != "bench":
        return file | {"setting": "", "command": ""}
    points = measured["points"]
    lengths, timed = (dict.fromkeys(str(point[key]) for point in points) for key in ("length", "what"))
    words = f"model={','.join(measured['models'])} lengths={','.join(lengths)} what={','.join(timed)}"
    return file | {"setting": describe_setting(dict(measured)), "command": f"do=bench {words}"}


def _totals(material: Material, figures: int) -> list[str]:
    """The sentences at the top of the first page."""
    records = material.shown_records
    done = sum(entries["status"] == "done" for entries in records)
    cells = {tuple(entries["cell"][key] for key in ("model", "task")) for entries in records}
    return [
        f"{len(material.tables)} tables and {figures} figures.",
        f"{len(records):,} records, {done:,} of them done: {len(cells):,} pairs of a model and a task.",
        *(f"{_capitalized(line)}." for line in counts.lines(material.answers, material.cells)),
        count_beside(material.tables, material.paths["paper"]),
    ]


def _capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]


def files_of(data: Mapping[str, Any], paths: Mapping[str, Any]) -> dict[str, Path]:
    """{copied file, relative to the site: its source}."""
    files = [figure["file"] for figure in data["figures"].values()]
    files += [f"records/{run['file']}" for run in data["runs"].values()]
    files += [measured["file"] for measured in data["measurements"].values()]
    files += [chart["picture"] for chart in data["charts"]]
    for table in data["tables"].values():
        for picture in [*table["plots"], *table["pictures"]]:
            files += filter(None, [picture["file"], *picture["files"].values()])
    return {file: Path(paths[file.partition("/")[0]]) / file.partition("/")[2] for file in files}
