"""Pictures, sounds and texts for a table's page: the artifacts of one record per row and task."""

import os
from collections.abc import Mapping
from pathlib import Path

from harness.config.cell import Cell
from harness.config.table_rows import format_settings, settings_key
from harness.records.collect import Cells
from harness.report.render.layout import Picture
from harness.report.spec.table import TableSpec
from harness.report.stats.grouping import grouped
from tasks.regular_files import is_regular

PICTURE = ".png"
SHOWN = (PICTURE, ".wav", ".txt")


def pictures_of(
    selected: Mapping[str, Mapping[str, Cells]], spec: TableSpec, records_root: Path, page: Path
) -> tuple[Picture, ...]:
    """Per row and task, the artifacts of the lowest seed that has some, preferably at the paper's budget.

    `selected`: the cells of the table by protocol and column. The PNG of a record is shown, sounds and texts are
    linked. `page`: the file that will hold the links.
    """

    def link(path: Path) -> str:
        return Path(os.path.relpath(path, page.parent)).as_posix()

    # per task and settings: columns of the same run show its artifacts once
    with_task = {name: column for name, column in spec.columns.items() if column.task is not None}
    same_run = grouped(((column.task, settings_key(column.set)), name) for name, column in with_task.items())
    pictures, rows = [], list(spec.rows)
    for (task, settings), names in same_run.items():
        heading = f"{task}, {format_settings(settings)}" if settings else task
        for protocol, columns in selected.items():
            cells = columns[names[0]]
            cells = cells[(cells["setting"] == "") & (cells["status"] == "done")].to_dict("records")
            first = {}
            for cell in sorted(cells, key=lambda cell: (cell["budget"] != "paper", cell["seed"], cell["id"])):
                folder = records_root / Cell(cell["id"], cell["config"]).path.parent
                paths = [folder / name for name in sorted(cell["artifacts"]) if name.endswith(SHOWN)]
                if there := [path for path in paths if is_regular(path)]:
                    first.setdefault(cell["row"], (cell, there))
            for row in sorted(first, key=lambda row: (rows.index(row) if row in rows else len(rows), row)):
                cell, paths = first[row]
                data = f"{cell['budget']} budget, {cell['source']} data"
                data += f", protocol {protocol}" if len(selected) > 1 else ""
                caption = f"{spec.row_name(row)} · seed {cell['seed']} · {data}"
                shown = next((link(path) for path in paths if path.suffix == PICTURE), None)
                # files are named <stem of the record>.<name>
                files = {path.name.split(".", 1)[1]: link(path) for path in paths if path.suffix != PICTURE}
                pictures.append(Picture(heading, caption, shown, files))
    return tuple(pictures)
