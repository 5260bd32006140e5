"""Which cells a command means: one, or all of a published table; and running them one after the other.

A table's cells are its rows x columns x seeds. Rows whose model, and columns whose task or recipe, are not in the
house are named and left out.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from omegaconf import DictConfig, OmegaConf

from harness.cell import Cell, cell_of
from harness.compose import CONF, compose, options, recipes, search_path
from harness.errors import UsageError
from harness.train import Outcome, report_line, run_cell


@dataclass(frozen=True)
class Planned:
    overrides: tuple[str, ...]
    cfg: DictConfig
    cell: Cell


@dataclass(frozen=True)
class Plan:
    cells: tuple[Planned, ...]
    absent: dict[str, str]  # row or column of the table -> why it has no cell


def expand(cfg: DictConfig, overrides: Sequence[str]) -> Plan:
    """The cells of a command. `overrides` are what the user typed."""
    if cfg.table is None:
        return Plan((Planned(tuple(overrides), cfg, cell_of(cfg)),), {})
    return expand_table(cfg, overrides)


def expand_table(cfg: DictConfig, overrides: Sequence[str]) -> Plan:
    table = cfg.table
    typed = {override.lstrip("+~").split("=")[0] for override in overrides}
    # what the user typed beside the table holds for every cell; a typed model, task or seed narrows the table
    shared = [override for override in overrides if not override.startswith(("table=", "do=", "seed="))]
    models = {name for name, _ in options("model")}
    tasks = {name for name, _ in options("task")}
    seeds = [cfg.seed] if "seed" in typed else list(table.seeds)
    absent, cells = {}, []
    for row, model in table.rows.items():
        if "model" in typed and model != cfg.model.name:
            continue
        if model not in models:
            absent[row] = f"no model '{model}' yet"
            continue
        for column, place in table.columns.items():
            if "task" in typed and place.task != cfg.task.name:
                continue
            if place.task not in tasks or table.protocol not in recipes(place.task):
                absent[column] = f"no task '{place.task}' yet"
                continue
            names = [f"model={model}", f"task={place.task}", f"protocol={table.protocol}"]
            own = [*names, *(override for override in shared if not override.startswith(("model=", "task=")))]
            composed = compose(own, search_path())
            for seed in seeds:
                one = composed.copy()
                one.seed = int(seed)
                cells.append(Planned((*own, f"seed={seed}"), one, cell_of(one)))
    if not cells:
        raise UsageError(f"this table has no cell that can run: {'; '.join(f'{k}: {v}' for k, v in absent.items())}")
    return Plan(tuple(cells), absent)


def run(cfg: DictConfig, overrides: Sequence[str]) -> int:
    """do=train. Exit status: 0 if nothing failed, 2 if a cell was refused, 1 if one failed."""
    plan = expand(cfg, overrides)
    outcomes: list[Outcome] = []
    for place, planned in enumerate(plan.cells, 1):
        if len(plan.cells) > 1:
            print(f"cell {place} of {len(plan.cells)}", file=sys.stderr, flush=True)
        outcome = run_cell(planned.cfg, planned.overrides)
        outcomes.append(outcome)
        if outcome.state == "refused" and len(plan.cells) == 1:
            raise UsageError(outcome.detail)
        report_line(outcome, sys.stderr if outcome.code else sys.stdout)
        if outcome.state == "interrupted" or (cfg.fail_fast and outcome.code):
            break
    if len(plan.cells) > 1:
        counts = {
            state: sum(outcome.state == state for outcome in outcomes)
            for state in dict.fromkeys(outcome.state for outcome in outcomes)
        }
        print(", ".join(f"{count} {state}" for state, count in counts.items()))
        for name, why in plan.absent.items():
            print(f"left out: {name} ({why})")
    return max(outcome.code for outcome in outcomes)


def table_names() -> list[str]:
    return [name for name, _ in options("table")]


def table_spec(name: str) -> DictConfig:
    return OmegaConf.load(CONF / "table" / f"{name}.yaml")
