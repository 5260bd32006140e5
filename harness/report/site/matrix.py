"""The matrix of models and tasks: how many wanted cells are done at each budget, and the tiers of the model.

The tables define the wanted cells: every row in every column, with all seeds. Where no table wants a model on a task,
the matrix counts its runs.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.config.cell import flatten
from harness.config.table_rows import Settings, cell_settings, settings_key
from harness.report.pages.answer import ColumnAnswer
from harness.report.spec.table import TableSpec

BUDGETS = ("paper", "reduced")
DONE, PARTIAL, NONE = "done", "partial", "none"


@dataclass
class ModelOnTask:
    """`wanted`: budget -> (protocol, settings) -> seeds. `tiers`, `runs`: budget -> those of the model's rows."""

    wanted: dict[str, dict[tuple[str, Settings], set[int]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(set))
    )
    tables: set[str] = field(default_factory=set)
    tiers: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    runs: dict[str, list[Mapping[str, Any]]] = field(default_factory=lambda: defaultdict(list))

    def state(self, budget: str) -> dict[str, Any]:
        """Counts of done and wanted seeds, of runs and failures; the tiers in ascending order."""
        runs, cells = self.runs[budget], self.wanted[budget]
        ended = [run for run in runs if run["status"] == "done"]
        wanted = sum(map(len, cells.values())) if cells else len(ended)
        done = sum(len(_seeds(key, ended) & seeds) for key, seeds in cells.items()) if cells else wanted
        state = DONE if wanted and done == wanted else PARTIAL if ended else NONE
        counts = {"done": done, "wanted": wanted, "runs": len(ended), "failed": len(runs) - len(ended)}
        return {"state": state, **counts, "tiers": sorted(self.tiers[budget])}

    def summary(self) -> dict[str, Any]:
        papers = sorted({table.split("/")[0] for table in self.tables})
        budgets = {budget: self.state(budget) for budget in BUDGETS}
        return {"papers": papers, "tables": sorted(self.tables), "budgets": budgets}


def _seeds(key: tuple[str, Settings], ended: Sequence[Mapping[str, Any]]) -> set[int]:
    """Done seeds of a wanted cell: runs with all settings that the table sets and no other changes."""
    protocol, wanted = key[0], set(key[1])
    runs = [run for run in ended if run["cell"]["protocol"] == protocol]
    return {run["cell"]["seed"] for run in runs if _changed(run) <= wanted <= _used(run)}


def matrix(
    specs: Sequence[TableSpec], answers: Sequence[ColumnAnswer], records: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """`tasks`, and per model the tasks (`places`) on which a table wants it or a record exists. No smoke runs."""
    places: dict[tuple[str, str], ModelOnTask] = defaultdict(ModelOnTask)
    for spec in specs:
        for row in spec.rows.values():
            for name, column in spec.columns.items():
                if column.task is None or (row.columns is not None and name not in row.columns):
                    continue
                for budget in BUDGETS:
                    key = (column.protocol or row.protocol, settings_key(cell_settings(row, column.set, budget)))
                    places[row.model, column.task].wanted[budget][key].update(spec.seeds)
                places[row.model, column.task].tables.add(spec.name)
    for entries in records:
        cell = entries["cell"]
        if cell["budget"] in BUDGETS:
            places[cell["model"], cell["task"]].runs[cell["budget"]].append(entries)
    for answer in answers:
        column, rows = answer.spec.columns.get(answer.group.column), answer.spec.rows
        for (row, _), tier in answer.tests.tiers.items():
            model = rows[row].model if row in rows else row
            if column is not None and (model, column.task) in places:
                places[model, column.task].tiers[answer.group.budget].add(tier)
    tasks = sorted({task for _, task in places})
    rows = [
        {"model": model, "places": {task: places[model, task].summary() for task in tasks if (model, task) in places}}
        for model in sorted({model for model, _ in places})
    ]
    return {"budgets": list(BUDGETS), "tasks": tasks, "rows": rows}


def _changed(run: Mapping[str, Any]) -> set[tuple[str, str]]:
    return set(settings_key({key: used for key, (_, used) in run["changed"].items()}))


def _used(run: Mapping[str, Any]) -> set[tuple[str, str]]:
    """All settings of a run in the form of `settings_key`, including those of its recipe."""
    flat = {key: (key, json.dumps(value, sort_keys=True)) for key, value in flatten(run["config"]).items()}
    return {*flat.values(), *_changed(run)}
