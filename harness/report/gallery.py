"""Pictures that the tasks drew beside the records, for a table's page: one for each row and each thing it runs."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.config.cell import Cell
from harness.config.table_rows import said
from harness.records import collect
from harness.report.describe import name_of
from harness.report.layout import Picture
from harness.report.score import of_column, stated
from harness.report.spec import Spec


def pictures(spec: Spec, records: Sequence[Mapping[str, Any]], root: Path, page: Path) -> tuple[Picture, ...]:
    """Of each row the picture of the lowest seed that has one, at the paper's budget if there is one, else reduced.

    `root`: the folder of the records, the picture of `x.json` is `x.png`; `page`: what the links are relative to.
    """
    drawn = {}
    for entries in records:
        path = root / Cell(entries["cell"]["id"], entries["config"]).path
        path = path.with_name(f"{path.name}.png")
        if entries["status"] == "done" and entries["cell"]["budget"] != "smoke" and path.is_file():
            drawn[entries["cell"]["id"]] = path
    if not drawn:
        return ()
    configs = {entries["cell"]["id"]: entries["config"] for entries in records}
    every = collect.frame(records)
    every = stated(every[every["id"].isin(drawn)], spec, configs)
    found = []
    places = {(column.task, said(column.set)): name for name, column in reversed(spec.columns.items())}
    for (task, changes), column in reversed(places.items()):
        place = f"{task}, {changes}" if changes else task
        for protocol in spec.protocols:
            part = spec.of_protocol(protocol)
            cells = of_column(every[every["protocol"] == protocol], part, column)
            cells = cells[cells["setting"] == ""].assign(reduced=cells["budget"] != "paper")
            first = cells.sort_values(["reduced", "seed", "id"]).drop_duplicates("row").set_index("row")
            for row in (*(row for row in part.rows if row in first.index), *sorted(set(first.index) - set(part.rows))):
                cell = first.loc[row]
                caption = f"{name_of(spec, row)} · seed {cell['seed']} · {cell['budget']} budget, {cell['source']} data"
                if len(spec.protocols) > 1:
                    caption += f", protocol {protocol}"
                link = Path(os.path.relpath(drawn[cell["id"]], page.parent)).as_posix()
                found.append(Picture(place, caption, link))
    return tuple(found)
