"""All that the site shows, as one JSON document. Pages are rendered from it alone; the same records, the same bytes.

Places of files are relative to the site: `figures/`, `records/` and `bench/` are copies of the folders of these names.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.report.pages import answer
from harness.report.pages.printed import beside
from harness.report.render.layout import Block, Picture, Table, TableEntry
from harness.report.scores.measurements import describe_setting
from harness.report.site import audit, charts, matrix, runs
from harness.report.spec.table import TableSpec
from harness.report.spec_files import Folders, available, load_figure, load_table

if TYPE_CHECKING:
    import pandas as pd

NOT_SHOWN = "smoke"  # a budget whose records only show that a cell runs
COPIED = ("figures", "records", "bench")  # folders of `paths` whose files the site has copies of


@dataclass(frozen=True)
class Material:
    """What the site is made of: the pages of all tables with what their columns tell, the records as they were read
    and as a frame, and the measurements of do=bench by their names. `paths` names the folders."""

    tables: Sequence[Table]
    answers: Sequence[answer.ColumnAnswer]
    records: Sequence[Mapping[str, Any]]
    cells: "pd.DataFrame"
    measurements: Mapping[str, Mapping[str, Any]]
    conf: Folders
    paths: Mapping[str, Any]

    @property
    def shown(self) -> list[Mapping[str, Any]]:
        return [entries for entries in self.records if entries["cell"]["budget"] != NOT_SHOWN]


def document(material: Material) -> str:
    return json.dumps(site_data(material), ensure_ascii=False, sort_keys=True, separators=(",", ":")) + "\n"


def site_data(material: Material) -> dict[str, Any]:
    """The document. Raises UsageError for a file of conf/ or of the ledger that is none."""
    known, paper_root = audit.load(material.paths["paper"]), material.paths["paper"]
    specs = [load_table(table.name, material.conf, paper_root) for table in material.tables]
    figures = {name: load_figure(name, material.conf, paper_root) for name in _figures(material)}
    root = Path(material.paths["records"])
    drawn = [chart for figure in figures.values() for chart in charts.of_figure(figure, material.cells, paper_root)]
    measured = material.measurements.items()
    return {
        "papers": _papers(known.papers, [table.name for table in material.tables], list(figures)),
        "tables": {table.name: _table(table, material.paths) for table in material.tables},
        "figures": {name: _figure(name, figure) for name, figure in figures.items()},
        "runs": {entries["cell"]["id"]: runs.run_of(entries, root) for entries in material.shown},
        "measurements": {name: _measurement(name, one) for name, one in measured},
        "matrix": matrix.matrix([s for s in specs if isinstance(s, TableSpec)], material.answers, material.shown),
        "audit": audit.linked(known, material.tables, list(figures)),
        "charts": [chart for name, one in measured for chart in charts.of_measurement(name, one)] + drawn,
        "totals": _totals(material, len(figures)),
    }


def _figures(material: Material) -> list[str]:
    return available(material.conf, "figure")


def _papers(known: Mapping[str, str], tables: Sequence[str], figures: Sequence[str]) -> list[dict[str, Any]]:
    """The papers, then our own tables by their folder; a table without a folder is a page of its name."""
    keys = list(dict.fromkeys([*known, *sorted(name.split("/")[0] for name in (*tables, *figures))]))
    found = []
    for key in keys:
        own, drawn = ([name for name in names if name.split("/")[0] == key] for names in (tables, figures))
        page = {"key": key, "name": known.get(key, key.capitalize()), "published": key in known}
        found += [page | {"tables": sorted(own, key=_order), "figures": sorted(drawn, key=_order)}] * bool(own or drawn)
    return found


def _order(name: str) -> tuple[bool, int, str]:
    """Published tables and figures first, `t2` before `t2_costs` and `t10`."""
    last = name.rpartition("/")[2]
    number = re.match(r"[tf](\d+)", last)
    return not number, int(number[1]) if number else 0, last


def _table(table: Table, paths: Mapping[str, Any]) -> dict[str, Any]:
    page = Path(paths["tables"]) / f"{table.name}.md"
    return {
        "title": table.title,
        "summary": table.summary,
        "command": table.command,
        "answer": list(table.answer),
        "sections": [
            {"title": each.title, "lines": list(each.lines), "blocks": [_block(block) for block in each.blocks]}
            for each in table.sections
        ],
        "caption": list(table.caption),
        "footnotes": [list(note) for note in table.footnotes],
        "plot": _picture(table.plot, page, paths) if table.plot else None,
        "pictures": [_picture(picture, page, paths) for picture in table.pictures],
    }


def _block(block: Block) -> dict[str, Any]:
    return {
        "title": block.title,
        "align": block.align,
        "notes": list(block.notes),
        "lines": list(block.lines),
        "tiers": list(block.tiers),
        "header": [_entry(entry) for entry in block.header],
        "rows": [[_entry(entry) for entry in row] for row in block.rows],
    }


def _entry(entry: TableEntry) -> dict[str, Any]:
    """What is empty is left out: most of it is."""
    full = {"text": entry.text, "notes": list(entry.notes), "bold": entry.bold, "tone": entry.tone}
    full["cells"] = list(entry.cells)
    return {key: value for key, value in full.items() if value or key == "text"}


def _picture(picture: Picture, page: Path, paths: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "heading": picture.heading,
        "caption": picture.caption,
        "file": None if picture.link is None else _place(picture.link, page, paths),
        "files": {name: _place(link, page, paths) for name, link in picture.files.items()},
    }


def _place(link: str, page: Path, paths: Mapping[str, Any]) -> str:
    """Of a file that the page of a table links: below which of the copied folders it is."""
    file = Path(os.path.abspath(page.parent / link))
    for folder in COPIED:
        root = paths.get(folder)
        if root is not None and file.is_relative_to(os.path.abspath(root)):
            return f"{folder}/{file.relative_to(os.path.abspath(root)).as_posix()}"
    raise ValueError(f"{link} is in no folder of {', '.join(COPIED)}")


def _figure(name: str, figure: Any) -> dict[str, Any]:
    """Its title, and the caption that some kinds of figures have; what one needs that cannot be drawn yet."""
    caption = getattr(figure, "caption", "") or getattr(figure, "needs", "")
    return {"title": figure.title, "caption": caption, "file": f"figures/{name}.png"}


def _measurement(name: str, measured: Mapping[str, Any]) -> dict[str, Any]:
    if measured["kind"] != "bench":
        return {"setting": "", "command": "", "file": f"bench/{name}.json"}
    points = measured["points"]
    lists = {"model": list(measured["models"])}
    lists |= {key: list(dict.fromkeys(point[key] for point in points)) for key in ("length", "what")}
    words = [f"{'lengths' if key == 'length' else key}={','.join(map(str, each))}" for key, each in lists.items()]
    return {
        "setting": describe_setting(dict(measured)),
        "command": f"do=bench {' '.join(words)}",
        "file": f"bench/{name}.json",
    }


def _totals(material: Material, figures: int) -> list[str]:
    """Sentences for the top of the first page."""
    records = material.shown
    done = sum(entries["status"] == "done" for entries in records)
    cells = {tuple(entries["cell"][key] for key in ("model", "task")) for entries in records}
    hours = [
        sum(filter(None, (float(value) for value in material.cells[key].dropna())))
        for key in ("core_hours", "gpu_hours")
    ]
    ran = answer.cost(*hours)
    return [
        f"{len(material.tables)} tables and {figures} figures.",
        f"{len(records):,} records, {done:,} of them done: {len(cells):,} pairs of a model and a task.",
        *([f"Cost of these runs: {ran}."] if ran else []),
        f"{_sentence(answer.totals(material.answers))}.",
        beside(material.tables, material.paths["paper"]),
    ]


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def files_of(data: Mapping[str, Any], paths: Mapping[str, Any]) -> dict[str, Path]:
    """Each copied file, relative to the site -> where it comes from."""

    def places() -> Iterator[str]:
        yield from (figure["file"] for figure in data["figures"].values())
        yield from (f"records/{run['file']}" for run in data["runs"].values())
        yield from (one["file"] for one in data["measurements"].values())
        yield from (chart["picture"] for chart in data["charts"])
        for table in data["tables"].values():
            for picture in [*filter(None, [table["plot"]]), *table["pictures"]]:
                yield from filter(None, [picture["file"], *picture["files"].values()])

    found = {}
    for place in places():
        folder, _, rest = place.partition("/")
        found[place] = Path(paths[folder]) / rest
    return found
