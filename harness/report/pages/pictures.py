"""Pictures, sounds and texts for a table's page: the artifacts of one record per row and task."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from harness.config.cell import Cell
from harness.config.table_rows import format_settings, settings_key
from harness.report.render.layout import Picture
from harness.report.spec.table import TableSpec
from tasks.regular_files import is_regular

if TYPE_CHECKING:
    import pandas as pd

PICTURE = ".png"
SHOWN = (PICTURE, ".wav", ".txt")


def pictures_of(
    selected: "Mapping[str, Mapping[str, pd.DataFrame]]", spec: TableSpec, records_root: Path, page: Path
) -> tuple[Picture, ...]:
    """Per row and task, the artifacts of the lowest seed that has some, preferably at the paper's budget.

    `selected`: the cells of the table by protocol and column. The PNG of a record is shown, sounds and texts are
    linked. `page`: the file that will hold the links.
    """

    def link(path: Path) -> str:
        return Path(os.path.relpath(path, page.parent)).as_posix()

    first_columns = {}  # per task and settings: columns of the same run show its artifacts once
    for name, column in spec.columns.items():
        if column.task is None:
            continue
        first_columns.setdefault((column.task, settings_key(column.set)), name)
    pictures, rows = [], list(spec.rows)
    for (task, settings), column in first_columns.items():
        heading = f"{task}, {format_settings(settings)}" if settings else task
        for protocol, columns in selected.items():
            cells = columns[column]
            cells = cells[(cells["setting"] == "") & (cells["status"] == "done")].to_dict("records")
            first = {}
            for cell in sorted(cells, key=lambda cell: (cell["budget"] != "paper", cell["seed"], cell["id"])):
                folder = records_root / Cell(cell["id"], cell["config"]).path.parent
                names = sorted(name for name in cell["artifacts"] if name.endswith(SHOWN) and is_regular(folder / name))
                if names:
                    first.setdefault(cell["row"], (cell, [folder / name for name in names]))
            for row in sorted(first, key=lambda row: (rows.index(row) if row in rows else len(rows), row)):
                cell, paths = first[row]
                data = f"{cell['budget']} budget, {cell['source']} data"
                caption = f"{spec.row_name(row)} · seed {cell['seed']} · {data}"
                if len(selected) > 1:
                    caption += f", protocol {protocol}"
                shown = next((link(path) for path in paths if path.suffix == PICTURE), None)
                # files are named <stem of the record>.<name>
                files = {path.name.split(".", 1)[1]: link(path) for path in paths if path.suffix != PICTURE}
                pictures.append(Picture(heading, caption, shown, files))
    return tuple(pictures)
