"""The cells that commands mean: one each, or all of a published table, and those that they depend on. Nothing is run.

A table's cells are its rows x columns x seeds. Rows whose model, and columns whose task or recipe, do not exist here
are named and left out.
"""

import itertools
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from harness.config.cell import Cell, cell_of, refers_to_seed, with_seed, with_seeds
from harness.config.compose import compose, file_of, folders, has_recipe, options, put_model, search_path, stands_alone
from harness.config.depends_on import parse_depends_on
from harness.config.every_model import further_models, why_not
from harness.config.overrides import key_of, to_overrides, typed_values
from harness.config.ranges import check_range
from harness.config.resolvers import default_protocol
from harness.config.table_rows import Row, has_cells, row, row_hours, runs
from harness.errors import UsageError


@dataclass(frozen=True)
class PlannedCell:
    overrides: tuple[str, ...]
    cfg: DictConfig
    cell: Cell
    gpu_hours: float | None = None  # what the table's authors' scale costs, on one of its GPUs
    depends_on: tuple[str, ...] = ()  # ids of the cells to be done before


@dataclass(frozen=True)
class Plan:
    """`cells`: each after those that it depends on."""

    cells: tuple[PlannedCell, ...]
    absent: dict[str, str]  # row or column of the table -> why it has no cell

    def levels(self) -> list[int]:
        """For each cell 0, or one more than the highest of those that it depends on."""
        level: dict[str, int] = {}
        for planned in self.cells:
            level[planned.cell.id] = 1 + max((level[earlier] for earlier in planned.depends_on), default=-1)
        return list(level.values())


@dataclass(frozen=True)
class Command:
    """One composed command of a sweep. `overrides` are what the user typed."""

    cfg: DictConfig
    overrides: tuple[str, ...] = ()


def split_sweep(arguments: Sequence[str], config_loader: ConfigLoader | None = None) -> list[list[str]]:
    """`model=a,b seed=1` -> [[model=a, seed=1], [model=b, seed=1]]. Raises Hydra's errors for what cannot be read."""
    overrides = OverridesParser.create(config_loader).parse_overrides(list(arguments))
    (commands,) = BasicSweeper.split_arguments(overrides, max_batch_size=None)
    return commands


def compose_commands(swept: Sequence[Sequence[str]]) -> list[Command]:
    """The commands of a sweep. Those that differ in their model and seed alone are composed once."""
    commands = []
    seedless: dict[tuple[str, ...], bytes] = {}  # what is typed but for the seed -> its configuration
    for overrides in swept:
        words = but_for_the_seed(overrides)
        if words not in seedless:
            models = [word for word in words if word.startswith("model=")]
            rest = [word for word in words if word not in models]
            one = models[0].partition("=")[2] if len(models) == 1 else ""
            cfg = compose_with_model(one, rest) if one else compose(words, search_path())
            seedless[words] = pickle.dumps(cfg)
        cfg = pickle.loads(seedless[words])
        for word in set(overrides) - set(words):
            OmegaConf.update(cfg, "seed", word.partition("=")[2])
            check_range(cfg, "seed")
        commands.append(Command(cfg, tuple(overrides)))
    return commands


def but_for_the_seed(overrides: Sequence[str]) -> tuple[str, ...]:
    return tuple(word for word in overrides if not word.startswith("seed="))


def compose_with_model(model: str, rest: Sequence[str]) -> DictConfig:
    """As `compose` of `model=` and the rest, which is then not composed again for another model."""
    if any(key_of(override).startswith("model.") for override in rest) or not stands_alone("model", model):
        return compose([f"model={model}", *rest], search_path())  # such keys belong to this model
    cfg = compose(rest, search_path())
    put_model(cfg, model)
    return cfg


def expand_all(commands: Sequence[Command]) -> Plan:
    """The cells of all commands, each once: tables share cells, and lists may name one twice."""
    cells: dict[str, PlannedCell] = {}
    absent: dict[str, str] = {}
    first: dict[tuple[str, ...], Cell] = {}  # what is typed but for the seed -> the cell of the first seed
    for command in commands:
        words = but_for_the_seed(command.overrides)
        if words in first:
            cell = with_seed(first[words], command.cfg.seed)
            add_with_dependencies(PlannedCell(command.overrides, command.cfg, cell), cells)
            continue
        plan = expand(command.cfg, command.overrides)
        if command.cfg.table is None and not refers_to_seed(pickle.dumps(command.cfg)):
            first[words] = plan.cells[0].cell
        for planned in plan.cells:
            add_with_dependencies(planned, cells)
        absent |= plan.absent
    if not cells:  # a model may have the pattern of one of several tables
        raise no_cell(absent)
    return Plan(tuple(cells.values()), absent)


# typed keys that a cell shares with those that it depends on
SHARED = ("model", "budget", "seed", "trusted_packages", "paths", "trainer", "resources", "cluster", "checkpoint")


def add_with_dependencies(planned: PlannedCell, cells: dict[str, PlannedCell], dependents: tuple[str, ...] = ()) -> str:
    """Add a cell after those that it depends on, and return its id, which follows from theirs.

    `dependents`: ids of the cells that depend on it, without those of their own dependencies. Raises UsageError for a
    cycle.
    """
    if planned.cell.id in dependents:
        raise UsageError(f"depends_on: a cycle, {planned.cell} depends on itself")
    shared = [override for override in planned.overrides if key_of(override).split(".")[0] in SHARED]
    ids = []
    for entry in planned.cfg.depends_on:
        own = parse_depends_on(entry).overrides
        named = {key_of(override) for override in own}  # another model has settings of its own
        overrides = (*(one for one in shared if key_of(one).split(".")[0] not in named), *own)
        cfg = compose(overrides, search_path())
        first = PlannedCell(overrides, cfg, cell_of(cfg))
        ids.append(add_with_dependencies(first, cells, (*dependents, planned.cell.id)))
    cell = cell_of(planned.cfg, ids) if ids else planned.cell
    cells.setdefault(cell.id, replace(planned, cell=cell, depends_on=tuple(ids)))
    return cell.id


def expand(cfg: DictConfig, overrides: Sequence[str]) -> Plan:
    """The cells of a command. `overrides` are what the user typed."""
    if cfg.table is None:
        return Plan((PlannedCell(tuple(overrides), cfg, cell_of(cfg)),), {})
    tables = [cfg.table]
    if cfg.table.get("all"):
        tables = [OmegaConf.load(file_of("table", name)) for name, _ in options("table") if name != "all"]
        tables = [table for table in tables if has_cells(table) and not table.get("every")]
    elif not has_cells(cfg.table):
        name = typed_values(overrides).get("table", "NAME")
        raise UsageError(f"table={name} has no cells, nothing to run: python run.py do=report table={name} shows it")
    cells: dict[str, PlannedCell] = {}
    absent: dict[str, str] = {}
    for table in tables:
        plan = expand_table(table, cfg, overrides)
        cells |= {planned.cell.id: planned for planned in plan.cells}  # tables share cells
        absent |= plan.absent
    if not cells and not cfg.table.get("every"):
        raise no_cell(absent)
    return Plan(tuple(cells.values()), absent)


def no_cell(absent: Mapping[str, str]) -> UsageError:
    why = "; ".join(f"{name}: {reason}" for name, reason in absent.items()) or "nothing typed belongs to it"
    return UsageError(f"this table has no cell that can run: {why}")


def expand_table(table: DictConfig, cfg: DictConfig, overrides: Sequence[str]) -> Plan:
    """A table's cells. A typed seed or task narrows it; a typed model is its only row, in the paper's table or not."""
    typed = typed_values(overrides)
    if "protocol" in typed and typed["protocol"] != default_protocol(typed.get("task", ""), folders()):
        raise UsageError(
            "a table's rows name their protocols: leave protocol= out, or type model= and task= for a cell"
        )
    # everything else that was typed holds for every cell
    chosen = ("table", "do", "seed", "model", "task", "protocol")
    shared = [override for override in overrides if override.partition("=")[0] not in chosen]
    seeds = [cfg.seed] if "seed" in typed else list(map(int, table.seeds))
    if not seeds:
        raise UsageError("table.seeds is empty")
    runs_of_row = runs((column.task, column.get("set", {})) for column in task_columns(table).values())
    absent: dict[str, str] = {}
    cells: dict[tuple[str, ...], list[PlannedCell]] = {}  # what is typed for them -> one for each seed
    for one, column in runnable_cells(table, typed, cfg.model.name, absent):
        settings = dict(one.set) | dict(column.get("set", {}))
        protocol = column.get("protocol") or one.protocol
        rest = [f"task={column.task}", f"protocol={protocol}", *to_overrides(settings), *shared]
        own = (f"model={one.model}", *rest)
        if own in cells:
            continue  # columns may show several scores of one cell
        plain = compose_with_model(one.model, rest)
        plain.seed = seeds[0]
        if table.get("every") and (why := why_not(plain, one.model, table)):
            absent[f"{cfg.model.name if 'model' in typed else one.model}, {column.task}"] = why
            continue
        first = cell_of(plain)
        hours = None
        if cfg.budget.name == "paper" and table.get("gpu_hours"):
            hours = row_hours(table.gpu_hours, one.protocol) / runs_of_row
        cells[own] = [
            PlannedCell((*own, f"seed={cell.seed}"), seeded, cell, hours)
            for seeded, cell in [(plain, first), *with_seeds(plain, first, seeds[1:])]
        ]
    return Plan(tuple(itertools.chain.from_iterable(cells.values())), absent)


def runnable_cells(
    table: DictConfig, typed: dict[str, str], model: str, absent: dict[str, str]
) -> Iterator[tuple[Row, DictConfig]]:
    """The (row, column) pairs of a table that can be run. `absent` is filled with the others and the reasons.

    `model`: the composed model's name, which is the row of a typed model that the table lacks.
    """
    models, tasks = ({name for name, _ in options(group)} for group in ("model", "task"))
    rows = {label: row(raw, table.protocol) for label, raw in table.rows.items()}
    if "model" in typed:
        listed = {label: one for label, one in rows.items() if one.model == typed["model"]}
        rows = listed or {model: row(typed["model"], table.protocol)}
    elif table.get("every"):
        rows |= {name: row(name, table.protocol) for name in further_models(table)}
        absent |= dict(table.get("without") or {})
    for label, one in rows.items():
        if one.model not in models:
            absent[label] = f"no model '{one.model}' yet"
            continue
        for name, column in task_columns(table).items():
            if one.columns is not None and name not in one.columns:
                continue
            if "task" in typed and column.task != typed["task"]:
                continue
            if column.task not in tasks:
                absent[name] = f"no task '{column.task}' yet"
            elif not has_recipe(protocol := column.get("protocol") or one.protocol, column.task):
                absent[f"{label}, {name}"] = f"protocol '{protocol}' has no recipe for {column.task}"
            else:
                yield one, column


def task_columns(table: DictConfig) -> dict[str, DictConfig]:
    """The columns that cells fill; the others show measurements of do=bench."""
    return {name: column for name, column in table.columns.items() if "task" in column}
