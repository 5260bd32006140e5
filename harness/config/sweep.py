"""Which cells commands mean: one each, or all of a published table, and what these need. Nothing is run here.

A table's cells are its rows x columns x seeds. Rows whose model, and columns whose task or recipe, are not in the
house are named and left out.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace

from omegaconf import DictConfig, OmegaConf

from harness.config.cell import Cell, cell_of, with_seed
from harness.config.compose import CONF, compose, options, own_protocol, recipes, search_path, with_model
from harness.config.schema import Budget
from harness.config.table_rows import row, runs
from harness.errors import UsageError


@dataclass(frozen=True)
class PlannedCell:
    overrides: tuple[str, ...]
    cfg: DictConfig
    cell: Cell
    gpu_hours: float | None = None  # what the table's authors' scale costs, on one of its GPUs
    needs: tuple[str, ...] = ()  # ids of the cells to be done before


@dataclass(frozen=True)
class Plan:
    """`cells`: each after those that it needs."""

    cells: tuple[PlannedCell, ...]
    absent: dict[str, str]  # row or column of the table -> why it has no cell

    def levels(self) -> list[int]:
        """For each cell 0, or one more than the highest of those that it needs."""
        level: dict[str, int] = {}
        for planned in self.cells:
            level[planned.cell.id] = 1 + max((level[needed] for needed in planned.needs), default=-1)
        return list(level.values())


@dataclass(frozen=True)
class Command:
    """One composed command of a sweep. `overrides` are what the user typed."""

    cfg: DictConfig
    overrides: tuple[str, ...] = ()


def expand_all(commands: Sequence[Command]) -> Plan:
    """The cells of all commands, each once: tables share cells, and lists may name one twice."""
    cells: dict[str, PlannedCell] = {}
    absent: dict[str, str] = {}
    for command in commands:
        plan = expand(command.cfg, command.overrides)
        for planned in plan.cells:
            add_with_needed(planned, cells)
        absent |= plan.absent
    return Plan(tuple(cells.values()), absent)


# typed words that a cell shares with those that it needs
KEPT = ("model", "budget", "seed", "trusted_packages", "paths", "trainer", "resources", "cluster", "checkpoint")


def add_with_needed(planned: PlannedCell, cells: dict[str, PlannedCell], under: tuple[str, ...] = ()) -> None:
    """Add a cell behind those that it needs. `under`: ids of the cells that need it. Raises UsageError for a circle."""
    if planned.cell.id in cells:
        return
    if planned.cell.id in under:
        raise UsageError(f"needs: {planned.cell} needs itself")
    kept = [word for word in planned.overrides if word.lstrip("+~").split("=")[0].split(".")[0] in KEPT]
    ids = []
    for words in planned.cfg.needs:
        typed = (*kept, *shlex.split(words))
        cfg = compose(typed, search_path())
        needed = PlannedCell(typed, cfg, cell_of(cfg))
        add_with_needed(needed, cells, (*under, planned.cell.id))
        ids.append(needed.cell.id)
    cells[planned.cell.id] = replace(planned, needs=tuple(ids))


def expand(cfg: DictConfig, overrides: Sequence[str]) -> Plan:
    """The cells of a command. `overrides` are what the user typed."""
    if cfg.table is None:
        return Plan((PlannedCell(tuple(overrides), cfg, cell_of(cfg)),), {})
    tables = [cfg.table]
    if cfg.table.get("all"):
        tables = [OmegaConf.load(CONF / "table" / f"{name}.yaml") for name, _ in options("table") if name != "all"]
    cells: dict[str, PlannedCell] = {}
    absent: dict[str, str] = {}
    for table in tables:
        plan = expand_table(table, cfg, overrides)
        cells |= {planned.cell.id: planned for planned in plan.cells}  # tables share cells
        absent |= plan.absent
    if not cells:
        why = "; ".join(f"{name}: {reason}" for name, reason in absent.items()) or "nothing typed belongs to it"
        raise UsageError(f"this table has no cell that can run: {why}")
    return Plan(tuple(cells.values()), absent)


def expand_table(table: DictConfig, cfg: DictConfig, overrides: Sequence[str]) -> Plan:
    """A table's cells. A typed seed or task narrows it; a typed model is its only row, in the paper's table or not."""
    typed = dict(override.lstrip("+~").split("=", 1) for override in overrides if "=" in override)
    if typed.get("protocol") not in (None, own_protocol(typed.get("task", ""), search_path())):
        raise UsageError(
            "a table's rows name their protocols: leave protocol= out, or type model= and task= for a cell"
        )
    # everything else that was typed holds for every cell
    shared = [
        override
        for override in overrides
        if override.split("=")[0] not in ("table", "do", "seed", "model", "task", "protocol")
    ]
    models, tasks = ({name for name, _ in options(group)} for group in ("model", "task"))
    rows = {label: row(raw, table.protocol) for label, raw in table.rows.items()}
    if "model" in typed:
        listed = {label: one for label, one in rows.items() if one.model == typed["model"]}
        rows = listed or {cfg.model.name: row(typed["model"], table.protocol)}
    seeds = [cfg.seed] if "seed" in typed else list(table.seeds)
    columns = {name: column for name, column in table.columns.items() if "task" in column}  # others are do=bench's
    places = ((place.task, place.get("set", {})) for place in columns.values())
    hours = table.gpu_hours / runs(places) if cfg.budget.name is Budget.paper else None
    absent, cells = {}, []
    composed: dict[tuple[str, ...], DictConfig] = {}  # by everything but the model
    for label, one in rows.items():
        if one.model not in models:
            absent[label] = f"no model '{one.model}' yet"
            continue
        for column, place in columns.items():
            if "task" in typed and place.task != typed["task"]:
                continue
            if place.task not in tasks:
                absent[column] = f"no task '{place.task}' yet"
                continue
            if one.protocol not in recipes(place.task):
                absent[f"{label}, {column}"] = f"protocol '{one.protocol}' has no recipe for {place.task}"
                continue
            settings = dict(one.set) | dict(place.get("set", {}))
            names = (f"task={place.task}", f"protocol={one.protocol}")
            rest = (
                *names,
                *(f"{key}={'null' if value is None else value}" for key, value in settings.items()),
                *shared,
            )
            own = (f"model={one.model}", *rest)
            if any(override.lstrip("+~").startswith("model.") for override in rest):
                plain = compose(own, search_path())  # such a key belongs to this model
            else:
                if rest not in composed:
                    composed[rest] = compose(rest, search_path())
                plain = with_model(composed[rest], one.model)
            first = cell_of(plain)
            for seed in seeds:
                cells.append(PlannedCell((*own, f"seed={seed}"), *with_seed(plain, first, int(seed)), hours))
    return Plan(tuple(cells), absent)
