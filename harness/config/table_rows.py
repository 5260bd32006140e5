"""The cells of a row and a column in a published table, `conf/table/<name>.yaml`, for sweeps and reports.

rows:
  Linformer: linformer                                           a model, under the table's protocol
  Luna-256: {model: luna, protocol: luna}                        under another protocol
  Luna-16: {model: luna, protocol: luna, set: {model.slots: 16}} the recipe with another setting
  no attention: {model: no_cross, ours: true}                    a control that the paper's table lacks
  vanilla: {model: vanilla, ours: true, columns: [ListOps]}      only in these columns
  Llama: {model: vanilla_rope, set: {+backbone.norm_kind: rmsnorm}}  with a key that the recipe lacks
  Mamba: {model: mamba, paper_set: {task.tokenizer: gpt2}}       at the paper's budget alone
  FlashAttention: {model: vanilla, same_as: softmax}             the computation of another row: shown, not tested again
columns:
  ListOps, packed P: {task: lra/listops, metric: acc, set: {backbone.pooling: packed}}
  recall: {task: probe/recall, metric: acc, protocol: probe}     under another protocol than the rows
every: [causal_self]     further rows: each model with one of these patterns (`harness.config.sweep`)
"""

import functools
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated, Any

from omegaconf import DictConfig, OmegaConf
from pydantic import AfterValidator, Field

from harness.config import table_files
from harness.config.compose import default_arguments, folders, option_config, options
from harness.config.places import CONF
from harness.config.plain import resolved
from harness.config.schema import DECLARES, SHORT_CONV
from harness.config.validation import StrictModel, TupleOf, parse
from harness.errors import UsageError, did_you_mean

TAPS = f"backbone.{SHORT_CONV}"
PAPER = "paper"  # the budget of `paper_set`
LONGEST_NAME = 40  # of a model, for people
Settings = tuple[tuple[str, str], ...]  # (key, value as JSON), sorted by key


def _without_seed(settings: dict[str, Any]) -> dict[str, Any]:
    if "seed" in settings:
        raise ValueError("seed is no setting: `seeds:` of the table has those of all rows")
    return settings


SettingsOfCells = Annotated[dict[str, Any], AfterValidator(_without_seed)]


class Row(StrictModel):
    """`set`: {key: value} on top of the recipe, as part of the paper's row. `columns`: None means all.

    `paper_set`: further settings of the paper's budget alone, which replace those of row and column. `same_as`: the
    row with the same computation.
    """

    model: table_files.Name
    protocol: table_files.Name
    set: SettingsOfCells = Field(default_factory=dict)
    paper_set: SettingsOfCells = Field(default_factory=dict)
    ours: bool = False
    columns: TupleOf[str] | None = None
    same_as: str = ""


def cell_settings(row: Any, column: Mapping[str, Any], budget: str) -> dict[str, Any]:
    """The settings of a row's cells in a column with the settings `column`, at this budget. `row`: has those of Row."""
    return {**row.set, **column, **(row.paper_set if budget == PAPER else {})}


def as_composed(model: str, settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Settings as the configuration of a cell of `model` has them: `backbone.short_conv` in its canonical form."""
    if TAPS not in settings:
        return settings
    others = dict(settings)
    taps = others.pop(TAPS)
    off, published = switches(model)
    if all(settings.get(f"model.{key}", published.get(key)) == value for key, value in off.items()):
        return others if taps in (None, 1) else settings
    return others | {f"model.{key}": value for key, value in off.items()} if taps == 1 else others


@functools.cache
def switches(model: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """`declares: short_conv` of a model and its published settings; of a model without a yaml, nothing."""
    try:
        declares = option_config("model", model).get(DECLARES) or {}
    except FileNotFoundError:
        return {}, {}
    off = resolved(declares).get(SHORT_CONV) or {} if declares else {}
    return off, default_arguments(model) if off else {}


def has_cells(table: Mapping[str, Any]) -> bool:
    """Whether the numbers of a table come from cells. Otherwise its `kind` names their source."""
    return "kind" not in table


def row(raw: Any, protocol: str, where: object = "") -> Row:
    """The row of an entry in the yaml. Raises UsageError; `where`: the file and the key of the row."""
    raw = resolved(raw)
    raw = {"model": raw} if isinstance(raw, str) else raw
    return parse(Row, {"protocol": protocol} | raw if isinstance(raw, dict) else raw, where)


def row_hours(gpu_hours: float | Mapping[str, float], protocol: str) -> float:
    """GPU-hours of a row under this protocol. A table has a single number or one per protocol. Raises UsageError."""
    if not isinstance(gpu_hours, Mapping):
        return gpu_hours
    if protocol not in gpu_hours:
        raise UsageError(f"gpu_hours: there is no '{protocol}': {did_you_mean(protocol, gpu_hours)}")
    return gpu_hours[protocol]


def settings_key(settings: Mapping[str, Any]) -> Settings:
    """Settings as sorted pairs of key and JSON value, which can be compared, hashed and kept in a frame."""
    by_key = {key.lstrip("+"): value for key, value in settings.items()}  # + adds a key that the recipe lacks
    return tuple((key, json.dumps(resolved(value), sort_keys=True)) for key, value in sorted(by_key.items()))


def format_settings(pairs: Iterable[tuple[str, str]]) -> str:
    """`backbone.layers=12, backbone.pooling=packed`, with strings unquoted."""
    return ", ".join(f"{key}={display_value(value)}" for key, value in pairs)


def split_settings(text: str) -> list[str]:
    """The settings of `format_settings`, one by one: a list may hold the same comma as stands between them."""
    return re.split(r", (?=[\w.]+=)", text)


def display_value(value: str) -> str:
    decoded = json.loads(value)
    return decoded if isinstance(decoded, str) else value


def runs(columns: Iterable[tuple[str, Mapping[str, Any]]]) -> int:
    """The number of cells per row and seed. Columns with the same (task, settings) share a cell."""
    return len({(task, settings_key(changes)) for task, changes in columns})


def row_name(row: str) -> str:
    """The name for people of a row that is called by the id of a model, and of this model; other labels stay.

    It is the words before the colon in the first line of the model's yaml.
    """
    return _names(tuple(folders())).get(row, row)


@functools.cache
def _names(_: tuple[str, ...]) -> dict[str, str]:
    lines = ((model, *line.partition(": ")) for model, line in options("model"))
    return {model: name for model, name, colon, _ in lines if colon and len(name) <= LONGEST_NAME}


def labelled(label: str, model: str) -> str:
    """A label of do=bench for people: `Luna (slots=16)` for `luna (model.slots=16)`, `Luna-16` for `luna_16`; a label
    that does not begin with the id of a model stays."""
    if (shown := row_name(label)) != label:
        return shown
    if label.startswith(f"{model}_"):
        return f"{row_name(model)}-{label.removeprefix(f'{model}_')}"
    start, bracket, rest = label.partition(" (")
    return row_name(model) + bracket + rest.replace("model.", "") if start == model else label


@functools.cache
def row_named(name: str) -> tuple[str, Mapping[str, Any]] | None:
    """Model and settings of the table row with this typed name; None if no table has it.

    Raises UsageError if the rows of several tables contradict each other.
    """
    meanings = [
        (*model_settings(value, f"table {table}: rows.{label}"), table)
        for table, raw in tables()
        if raw.get("kind", "measured") == "measured"  # a table of cells or measurements
        for label, value in (raw.get("rows") or {}).items()
        if re.sub(r"[^a-z0-9]+", "_", label.lower()).strip("_") == name  # `luna_16` for `Luna-16`
    ]
    if not meanings:
        return None
    model, settings, _ = max(meanings, key=lambda meaning: len(meaning[1]))
    # a row may lack a setting that its table's recipe has
    if any(name_of_model != model or not fewer.items() <= settings.items() for name_of_model, fewer, _ in meanings):
        where = ", ".join(dict.fromkeys(table for _, _, table in meanings))
        raise UsageError(f"model={name}: rows of {where} differ; type the model and its settings")
    return model, settings


def tables(*, about_others: bool = False) -> Iterator[tuple[str, dict[str, Any]]]:
    """(name, content) of every table. Raises UsageError.

    `about_others`: the command is about another table, so one of `--config-dir` may be half written: standard error
    names it.
    """
    of_project = set(table_files.names("table", [CONF]))
    for name in table_files.names("table", folders()):
        try:
            content = read_table(name)
        except UsageError as error:
            if not about_others or name in of_project:
                raise
            print(f"left out: {error}", file=sys.stderr)
        else:
            yield name, content


def read_table(name: str) -> dict[str, Any]:
    """The content of a table as plain values. Raises UsageError."""
    return table_files.read("table", name, folders())[1]


def model_settings(value: Any, where: object = "") -> tuple[str, dict[str, Any]]:
    """The model of a row and its settings, without those of the backbone and of the runs."""
    if isinstance(value, Mapping):
        value = {key: entry for key, entry in value.items() if key != "runs"}
    named = row(value, "own", where)  # its protocol does not count
    return named.model, {key: setting for key, setting in named.set.items() if key.startswith("model.")}


def task_columns(table: DictConfig) -> dict[str, DictConfig]:
    """The columns with scores of cells; other columns show measurements of do=bench."""
    return {name: column for name, column in table.columns.items() if "task" in column}


def hours_of_run(table: DictConfig) -> Callable[[str], float]:
    """GPU-hours of one run, by the protocol of its row, whose hours its runs share."""
    number = runs((column.task, column.get("set", {})) for column in task_columns(table).values())
    return lambda protocol: row_hours(table.gpu_hours, protocol) / number


@functools.cache
def published_hours(task: str, protocol: str) -> float | None:
    """GPU-hours of one run of a task, from the first table that has the task under this protocol."""
    for _, content in tables(about_others=True):
        table = OmegaConf.create(content)
        columns = task_columns(table).values() if table.get("gpu_hours") else ()
        rows = [row(raw, table.protocol) for raw in table.rows.values()] if columns else []
        if any(column.task == task for column in columns) and any(row.protocol == protocol for row in rows):
            return hours_of_run(table)(protocol)
    return None
