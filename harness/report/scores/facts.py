"""How, where and on which data the cells of a section were run."""

from collections.abc import Iterable

import pandas as pd

from harness.records.collect import Cells
from harness.records.data_cards import DataName, data_name
from harness.report.render.words import span
from harness.report.scores.select import UNKNOWN_SOURCE
from harness.report.spec.parts import Column
from harness.report.spec.table import TableSpec


def run_facts(spec: TableSpec, columns: Iterable[Cells]) -> tuple[str, ...]:
    """How and where the cells of one section were run, each once, although several columns may show it."""
    if not (measured := [cells for cells in columns if len(cells)]):
        return ()
    cells = pd.concat(measured)
    cells = cells[~cells.index.duplicated()]
    seeds = span(sorted(cells.groupby(["task", "budget", "source", "model", "variant"])["seed"].nunique()))
    rest = "" if seeds == f"{len(spec.seeds)}" else f"; the table plans {len(spec.seeds)}"
    rules = set()
    for rule, after, leak in zip(cells["rule"], cells["after_steps"], cells["leak"], strict=True):
        start = f" from step {int(after):,} on" if after and rule != "last" else ""
        rules.add(f"{rule}{start}{' (TEST LEAK: chosen on the test split)' if leak else ''}")
    facts = [
        f"Checkpoint tested: {'; '.join(sorted(rules))}.",
        f"Seeds: {seeds} per row{rest}.",
        f"Hardware: {', '.join(sorted(set(cells['hardware'])))}.",
    ]
    if dirty := int(cells["dirty"].astype(bool).sum()):
        facts.append(f"Made with uncommitted changes in the code: {dirty} of {len(cells)} runs.")
    return tuple(facts)


def data_name_of(column: Column, cells: Cells) -> DataName | None:
    """How titles name the data of the cells; None for the published data, several data, or a number without data."""
    if column.metric is None:
        return None
    sources = set(cells["source"]) - {UNKNOWN_SOURCE}
    names = {data_name(column.task, source, column.evaluation or "") for source in sources}
    return names.pop() if len(names) == 1 else None
