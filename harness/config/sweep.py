"""Commands -> cells: a single cell or all cells of a published table, and the cells that they depend on. Nothing runs.

A table's cells are its rows x columns x seeds. A row without its model, or a column without its task or recipe, is
reported and left out. `every` in a table adds a row for each further model of `conf/model/` that declares one of these
patterns, and for a typed model. These models are first built on the meta device (this imports torch), and those that do
not fit are left out.

An entry of `depends_on` describes a cell that must be done before another: a string with the overrides in which it
differs, or a mapping {cell: "<overrides>", weights: [prefixes]}. With the mapping, the parameters below these prefixes
start from the selected weights of the earlier cell.
"""

import itertools
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any

from omegaconf import DictConfig, OmegaConf
from pydantic import BeforeValidator

from harness.config import table_files, yaml_files
from harness.config.cell import Cell, cell_of
from harness.config.compose import OWN_CLASS, compose, folders, has_recipe, names_in, search_path
from harness.config.option_files import default_protocol
from harness.config.overrides import key_of, to_overrides, typed_values
from harness.config.schema import Bound
from harness.config.search import RATE, TRIAL, Choice, Pair, Search, Trial, decide, learning_rate, search_of
from harness.config.table_rows import Row, cell_settings, has_cells, hours_of_run, row, task_columns
from harness.config.untrusted import check_shared
from harness.config.validation import StrictModel, TupleOf, parse, shortened
from harness.config.variants import Variants, VariedConfig
from harness.errors import UsageError, did_you_mean
from harness.garbage import rare_garbage_collection

MOST_DEPENDENCIES = 50  # cells that a cell depends on, at any distance
Report = Callable[[int, int], object]  # of parts that are planned, and of all parts


@dataclass(frozen=True)
class PlannedCell:
    overrides: tuple[str, ...]
    config: DictConfig | VariedConfig
    cell: Cell
    gpu_hours: float | None = None  # cost at the scale of the table's authors, on one of their GPUs
    # {id of a cell that must be done before: prefixes of the parameters that start from its weights}
    depends_on: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    searched: Mapping[str, Any] | None = None  # the search that chose its learning rate, as in a record

    @cached_property
    def cfg(self) -> DictConfig:
        return self.config.copy() if isinstance(self.config, VariedConfig) else self.config


# the result of a trial; None if it has not ended
Validation = Callable[[PlannedCell], Trial | None]


@dataclass(frozen=True)
class Plan:
    """`cells`: each cell comes after those that it depends on."""

    cells: tuple[PlannedCell, ...]
    absent: dict[str, str]  # row or column of the table -> reason why it has no cell
    unchosen: int = 0  # cells whose learning rate is chosen when the trials among `cells` have ended


@dataclass(frozen=True)
class Command:
    """A composed command of a sweep. `overrides`: as typed. `planned`: its only cell, if it is known already."""

    cfg: DictConfig
    overrides: tuple[str, ...] = ()
    planned: PlannedCell | None = None


def compose_commands(swept: Sequence[Sequence[str]]) -> list[Command]:
    """Compose the commands of a sweep."""
    variants, commands = Variants(search_path()), []
    for overrides in map(tuple, swept):
        variant = variants.seed(overrides)
        planned = PlannedCell(overrides, *variant) if variant else None
        cfg = planned.cfg if planned else compose(overrides, search_path())
        commands.append(Command(cfg, overrides, planned))
    return commands


def expand_all(commands: Sequence[Command], validation: Validation | None = None, report: Report | None = None) -> Plan:
    """The cells of all commands without duplicates: tables share cells, and lists may repeat a cell.

    `validation` reads the scores of trials. Without it no learning rate is searched: all cells have their recipe's.
    """
    cells: dict[str, PlannedCell] = {}
    absent: dict[str, str] = {}
    unchosen = begun = 0
    with rare_garbage_collection():
        tables, variants = [tables_of(command) for command in commands], Variants(search_path())
        number = sum(map(len, tables))
        for command, of_command in zip(commands, tables, strict=True):
            found: dict[str, PlannedCell] = {}
            for path, table in of_command.items():
                if report is not None and number > 1:
                    report(begun, number)
                begun += 1
                if table is None:
                    planned = command.planned or PlannedCell(command.overrides, command.cfg, cell_of(command.cfg))
                    plan = Plan((planned,), {})
                else:
                    table_files.check(table, path, has_cells=True)
                    inside = report if number == 1 else None
                    plan = expand_table(table, command.cfg, command.overrides, validation, inside, variants)
                found |= {planned.cell.id: planned for planned in plan.cells}  # tables share cells
                absent |= plan.absent
                unchosen += plan.unchosen
            if not found and not command.cfg.table.get("every"):
                raise no_cell(absent)
            for planned in found.values():
                add_with_dependencies(planned, cells, {})
    if not cells:  # checked at the end: a model may fit only some of the tables
        raise no_cell(absent)
    return Plan(tuple(cells.values()), absent, unchosen)


def words_of(text: Any) -> tuple[str, ...]:
    if not isinstance(text, str):
        raise ValueError(f"overrides are expected, not {shortened(text)}")
    return tuple(shlex.split(text))


class DependsOn(StrictModel):
    cell: Annotated[tuple[str, ...], BeforeValidator(words_of)]  # overrides
    weights: TupleOf[str]  # prefixes of parameter names


def parse_depends_on(entry: Any) -> DependsOn:
    """Parse an entry of `depends_on`. Raises UsageError for any other form."""
    raw = {"cell": entry, "weights": ()} if isinstance(entry, str) else entry
    return parse(DependsOn, raw, f"depends_on: {str(entry)[:99]}")


# typed keys that a cell passes to its dependencies
SHARED = ("model", "budget", "seed", "trusted_packages", "paths", "trainer", "resources", "cluster", "checkpoint")


def add_with_dependencies(
    planned: PlannedCell,
    cells: dict[str, PlannedCell],
    added: dict[tuple[str, ...], str],
    dependents: tuple[str, ...] = (),
) -> str:
    """Add a cell after its dependencies and return its id, which includes their ids.

    `added`: {overrides: id} of the dependencies so far. `dependents`: ids of the cells that depend on it, computed
    without dependencies. Raises UsageError for a cycle, and for more than MOST_DEPENDENCIES.
    """
    if planned.cell.id in dependents:
        raise UsageError(f"depends_on: a cycle, {planned.cell} depends on itself")
    shared = [override for override in planned.overrides if key_of(override).split(".")[0] in SHARED]
    entries, where = planned.cell.config.get("depends_on", ()), f"depends_on of {planned.cell}"
    ids: dict[str, tuple[str, ...]] = {}
    for entry in map(parse_depends_on, entries):
        differing = entry.cell
        check_shared(differing, where)
        named = {key_of(override) for override in differing}  # settings of one model do not fit another
        overrides = (*(word for word in shared if key_of(word).split(".")[0] not in named), *differing)
        if overrides not in added:
            if len(added) + len(dependents) >= MOST_DEPENDENCIES:
                raise UsageError(f"{where}: with those that they depend on, more than {MOST_DEPENDENCIES} cells")
            cfg = compose(overrides, search_path(), shared=differing)
            first = PlannedCell(overrides, cfg, cell_of(cfg))
            added[overrides] = add_with_dependencies(first, cells, added, (*dependents, planned.cell.id))
        ids[added[overrides]] = ids.get(added[overrides], ()) + entry.weights
    cell = cell_of(planned.cfg, tuple(ids)) if ids else planned.cell
    cells.setdefault(cell.id, replace(planned, cell=cell, depends_on=ids))
    return cell.id


def tables_of(command: Command) -> dict[str, DictConfig | None]:
    """{file: content} of the tables of a command; for a single cell {"": None}. Raises UsageError."""
    asked, name = command.cfg.table, typed_values(command.overrides).get("table", "NAME")
    if asked is None:
        return {"": None}
    if not isinstance(asked, DictConfig) or not asked.get("all"):
        if isinstance(asked, DictConfig) and not has_cells(asked):
            shown = f"python run.py do=report table={name} shows it"
            raise UsageError(f"table={name} has no cells, nothing to run: {shown}")
        return {table_files.shown_path("table", name, folders()): asked}
    paths = [table_files.path_of("table", name, folders()) for name in names_in("table") if name != "all"]
    every = {str(path): yaml_files.load_config(path) for path in paths}
    for path, table in every.items():
        table_files.check(table, path)
    return {path: table for path, table in every.items() if has_cells(table) and not table.get("every")}


def no_cell(absent: Mapping[str, str]) -> UsageError:
    why = "; ".join(f"{name}: {reason}" for name, reason in absent.items()) or "nothing typed belongs to it"
    return UsageError(f"this table has no cell that can run: {why}")


def expand_table(
    table: DictConfig,
    cfg: DictConfig,
    overrides: Sequence[str],
    validation: Validation | None = None,
    report: Report | None = None,
    variants: Variants | None = None,
) -> Plan:
    """A table's cells. A typed seed or task selects some; a typed model is the only row, also if the table lacks it.

    `variants`: other tables may have parts in common.
    """
    typed = typed_values(overrides)
    if "protocol" in typed and typed["protocol"] != default_protocol(typed.get("task", ""), folders()):
        raise UsageError(
            "a table's rows name their protocols: leave protocol= out, or type model= and task= for a cell"
        )
    # all other typed overrides apply to every cell
    chosen = ("table", "do", "seed", "model", "task", "protocol")
    shared = [override for override in overrides if override.partition("=")[0] not in chosen]
    seeds = [cfg.seed] if "seed" in typed else list(map(int, table.seeds))
    if not seeds:
        raise UsageError("table.seeds is empty")
    published = hours_of_run(table)
    absent: dict[str, str] = {}
    cells: dict[tuple[str, ...], list[PlannedCell]] = {}  # overrides -> one cell per seed, after its trials
    searches = validation is not None and RATE not in typed and table.get("search", True)
    search, variants = search_of(cfg) if searches else None, variants or Variants(search_path())
    unchosen = 0
    pairs = list(runnable_cells(table, typed, cfg.model.name, absent))
    for number, (table_row, column, is_further) in enumerate(pairs):
        if report is not None:
            report(number, len(pairs))
        protocol = column.get("protocol") or table_row.protocol
        settings = cell_settings(table_row, column.get("set", {}), cfg.budget.name)
        names = [f"model={table_row.model}", f"task={column.task}", f"protocol={protocol}"]
        changed = to_overrides(settings)
        check_shared(changed, f"{table_row.model}, {column.task}: set")
        words = (*names, *changed, *shared)
        if words in cells:
            continue  # columns may show several scores of one cell
        composed, varied = variants.row(words, ("seed",) if search is None else ("seed", RATE, TRIAL), shared=changed)
        if is_further:
            from harness.config.build import on_meta  # imports torch

            try:
                on_meta(composed)
            except UsageError as error:
                absent[f"{cfg.model.name if 'model' in typed else table_row.model}, {column.task}"] = str(error)
                continue
        hours = None
        if cfg.budget.name == "paper" and table.get("gpu_hours"):
            hours = published(table_row.protocol)
        if search is None:
            cells[words] = planned_cells(words, varied, {}, seeds, hours)
            continue
        cells[words], choice = trials(search, words, composed, varied, validation)
        if choice is None:
            unchosen += len(seeds)
        else:
            change, searched = at_rate(composed, choice.rate), choice.entry(OmegaConf.select(composed, RATE))
            seeds_at_rate = planned_cells((*words, *to_overrides(change)), varied, change, seeds, hours)
            cells[words] += [replace(planned, searched=searched) for planned in seeds_at_rate]
    return Plan(tuple(itertools.chain.from_iterable(cells.values())), absent, unchosen)


def planned_cells(
    words: tuple[str, ...], varied: VariedConfig, change: Mapping[str, Any], seeds: Sequence[int], hours: float | None
) -> list[PlannedCell]:
    """One cell per seed. `change`: the values, {key: value}, that `words` set beyond those of the variant."""
    cells = [(seed, *varied.cell({**change, "seed": seed})) for seed in seeds]
    return [PlannedCell((*words, f"seed={seed}"), config, cell, hours) for seed, config, cell in cells]


def trials(
    search: Search, words: tuple[str, ...], cfg: DictConfig, varied: VariedConfig, validation: Validation
) -> tuple[list[PlannedCell], Choice | None]:
    """The trials of a row in a column, and the chosen multiple of the recipe's rate; None until they have ended.

    `varied`: `cfg`, with other seeds and rates.
    """
    planned: dict[Pair, PlannedCell] = {}

    def result(rate: float, seed: int) -> Trial | None:
        change = {**at_rate(cfg, rate), TRIAL: True}
        (planned[rate, seed],) = planned_cells((*words, *to_overrides(change)), varied, change, [seed], None)
        return validation(planned[rate, seed])

    _, choice = decide(search, result)
    return list(planned.values()), choice


def at_rate(cfg: DictConfig, rate: float) -> dict[str, float]:
    """{RATE: value} at this multiple of the recipe's learning rate; empty at 1. Raises UsageError without one."""
    if rate == 1:
        return {}
    recipe = OmegaConf.select(cfg, RATE)
    if not isinstance(recipe, (int, float)):
        raise UsageError(f"{cfg.task.name}, protocol={cfg.protocol.name}: no {RATE} to search; add budget.search=null")
    value = learning_rate(recipe, rate)
    Bound(above=0).check(RATE, value)
    return {RATE: value}


def runnable_cells(
    table: DictConfig, typed: dict[str, str], model: str, absent: dict[str, str]
) -> Iterator[tuple[Row, DictConfig, bool]]:
    """The rows and columns of a table that can run, and whether `every` adds the row.

    Adds the others to `absent`, with the reasons.

    `model`: the composed model's name, the label of a typed model that the table lacks.
    """
    models, tasks = (set(names_in(group)) for group in ("model", "task"))
    where = f"table {typed.get('table', '')}: rows"
    rows = {label: row(raw, table.protocol, f"{where}.{label}") for label, raw in table.rows.items()}
    of_table = {entry.model for entry in rows.values()}
    if "model" in typed:
        listed = {label: entry for label, entry in rows.items() if entry.model == typed["model"]}
        rows = listed or {model: row(typed["model"], table.protocol)}
    elif table.get("every"):
        without = dict(table.get("without") or {})
        rows |= {name: row(name, table.protocol) for name in further_models(table.every, of_table | without.keys())}
        absent |= without
    for label, table_row in rows.items():
        if table_row.model not in models:
            absent[label] = f"no model '{table_row.model}': {did_you_mean(table_row.model, models, ())}"
            continue
        for name, column in task_columns(table).items():
            if table_row.columns is not None and name not in table_row.columns:
                continue
            if "task" in typed and column.task != typed["task"]:
                continue
            if column.task not in tasks:
                absent[name] = f"no task '{column.task}': {did_you_mean(column.task, tasks, ())}"
            elif not has_recipe(protocol := column.get("protocol") or table_row.protocol, column.task):
                absent[f"{label}, {name}"] = f"protocol '{protocol}' has no recipe for {column.task}"
            else:
                yield table_row, column, bool(table.get("every")) and table_row.model not in of_table


def further_models(patterns: Collection[str], others: Collection[str]) -> list[str]:
    """Models for `every` in a table: all but `others` that have one of these patterns."""
    from harness.config.build import patterns_of  # imports torch

    names = [name for name in names_in("model") if name not in {*others, *OWN_CLASS}]
    return [name for name in names if set(patterns) & patterns_of(name)]
