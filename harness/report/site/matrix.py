"""The matrix model x task: which of the wanted cells are done at each budget, and the tiers of the model there.

Wanted is what the tables ask for: each of their rows in each of their columns, with their seeds. A model that runs
elsewhere, too, has the count of its runs there.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.config.cell import flatten
from harness.config.table_rows import Settings, settings_key
from harness.report.pages.answer import ColumnAnswer
from harness.report.spec.table import TableSpec

BUDGETS = ("paper", "reduced")
DONE, PARTIAL, NONE = "done", "partial", "none"


@dataclass
class Place:
    """A model on a task. `wanted`: (protocol, settings) -> seeds; `tiers`: budget -> those of the model's rows."""

    wanted: dict[tuple[str, Settings], set[int]] = field(default_factory=dict)
    papers: set[str] = field(default_factory=set)
    tables: set[str] = field(default_factory=set)
    tiers: dict[str, set[int]] = field(default_factory=dict)
    runs: dict[str, list[Mapping[str, Any]]] = field(default_factory=dict)

    def state(self, budget: str) -> dict[str, Any]:
        """Counts of seeds, of everything that the tables want here; tiers from the best to the worst."""
        runs, tiers = self.runs.get(budget, []), sorted(self.tiers.get(budget, ()))
        ended = [run for run in runs if run["status"] == "done"]
        failed = len(runs) - len(ended)
        if self.wanted:
            wanted = sum(len(seeds) for seeds in self.wanted.values())
            done = sum(len(self._seeds(key, ended) & seeds) for key, seeds in self.wanted.items())
        else:
            wanted = done = len(ended)
        state = DONE if wanted and done == wanted else PARTIAL if ended else NONE
        return {"state": state, "done": done, "wanted": wanted, "runs": len(ended), "failed": failed, "tiers": tiers}

    def _seeds(self, key: tuple[str, Settings], ended: Sequence[Mapping[str, Any]]) -> set[int]:
        """Seeds that are done of what a table wants: nothing else is changed, and everything that it sets is set."""
        protocol, settings = key
        wanted = set(settings)
        return {
            run["cell"]["seed"]
            for run in ended
            if run["cell"]["protocol"] == protocol and _changed(run) <= wanted <= _used(run)
        }


def matrix(
    specs: Sequence[TableSpec], found: Sequence[ColumnAnswer], records: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """`tasks`, and for each model the `places` where a table wants it or a record has it. Smoke runs are left out."""
    places: dict[tuple[str, str], Place] = {}
    for spec in specs:
        for row in spec.rows.values():
            for name, column in spec.columns.items():
                if column.task is None or (row.columns is not None and name not in row.columns):
                    continue
                place = places.setdefault((row.model, column.task), Place())
                key = (column.protocol or row.protocol, settings_key({**row.set, **column.set}))
                place.wanted.setdefault(key, set()).update(spec.seeds)
                place.papers.add(spec.name.split("/")[0])
                place.tables.add(spec.name)
    for entries in records:
        cell = entries["cell"]
        if cell["budget"] in BUDGETS:
            place = places.setdefault((cell["model"], cell["task"]), Place())
            place.runs.setdefault(cell["budget"], []).append(entries)
    for answer in found:
        for (row, _), tier in answer.tests.tiers.items():
            model = answer.spec.rows[row].model if row in answer.spec.rows else row
            column = answer.spec.columns.get(answer.group.column)
            if column is not None and column.task is not None and (model, column.task) in places:
                places[model, column.task].tiers.setdefault(answer.group.budget, set()).add(tier)
    tasks = sorted({task for _, task in places})
    rows = [
        {
            "model": model,
            "places": {
                task: {
                    "papers": sorted(place.papers),
                    "tables": sorted(place.tables),
                    "budgets": {budget: place.state(budget) for budget in BUDGETS},
                }
                for task in tasks
                if (place := places.get((model, task))) is not None
            },
        }
        for model in sorted({model for model, _ in places})
    ]
    return {"budgets": list(BUDGETS), "tasks": tasks, "rows": rows}


def _changed(run: Mapping[str, Any]) -> set[tuple[str, str]]:
    return set(settings_key({key: used for key, (_, used) in run["changed"].items()}))


def _used(run: Mapping[str, Any]) -> set[tuple[str, str]]:
    """Every setting of a run in the form of `settings_key`, also one that its recipe has anyway."""
    flat = {key: (key, json.dumps(value, sort_keys=True)) for key, value in flatten(run["config"]).items()}
    return {*flat.values(), *_changed(run)}
