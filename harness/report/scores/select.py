"""Assigns cells to the rows and columns of a table.

The model of a cell and its changes to the recipe decide its row. One cell may measure several columns, which differ
only in their metric. A pre-training from whose weights another cell started is no row of its own, unless the table
names it. Any other cell that fits no row is listed under the name of its model, unless it fits a row of a table
named in `elsewhere`, or the table has `only_rows`.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from harness.config.cell import values_at
from harness.config.table_rows import PAPER, Settings, as_composed, cell_settings, format_settings, settings_key
from harness.errors import UsageError
from harness.records.collect import Cells, say_left_out_once
from harness.report.scores.size_line import size_beside_paper
from harness.report.scores.tuning import tuned
from harness.report.spec.expressions import evaluate
from harness.report.spec.parts import UNITS, Column
from harness.report.spec.table import TableSpec
from harness.report.stats.grouping import grouped

NO_SOURCE = "none"  # of a column without a run
UNKNOWN_SOURCE = "unknown"  # of a run that failed before it loaded its data
RECIPE_RATE = "at the recipe's rate"  # setting of a cell whose row has none at the rate that its search chose
Meanings = Mapping[tuple[str, Settings], list[tuple[str, str]]]  # as `TableSpec.meanings`
PLAIN_RECIPE = "the plain recipe"  # setting of a cell whose row means a changed one


def select(cells: Cells, spec: TableSpec) -> dict[str, dict[str, Cells]]:
    """{protocol: {column: its cells}} out of the frame of all records. Smoke runs and other protocols are left out.

    Where a search chose a learning rate, a row's cells are those at this rate (`harness.report.scores.tuning`).

    A column's cells have `row`, the label of their row or the name of a model that the table lacks; `setting`, what was
    set beyond the meaning of row and column, empty for the recipe; `size`, here and in the paper; and
    `score`, their number in this column. A cell whose size cannot be stated is left out, in one line. Columns of bench
    measurements have no cells.
    """
    tasks = {column.task for column in spec.columns.values()}
    cells = tuned(cells)
    cells = cells[(cells["budget"] != "smoke") & cells["task"].isin(tasks)]
    meanings = {task: spec.meanings(task) for task in tasks if task}
    cells = _with_table_settings(cells, spec, meanings)
    selected = {}
    for protocol in spec.protocols:
        part = spec.for_protocol(protocol)
        by_protocol = {
            name: group.assign(elsewhere=_elsewhere(group, part)) for name, group in cells.groupby("protocol")
        }
        empty = cells[:0].assign(elsewhere=[])
        selected[protocol] = {
            name: _column_cells(by_protocol.get(column.protocol or protocol, empty), part, name, meanings[column.task])
            for name, column in spec.columns.items()
            if column.task
        }
    return selected


def _with_table_settings(cells: Cells, spec: TableSpec, meanings: Mapping[str, Meanings]) -> Cells:
    """The cells with `changed` as the table sees it: what a column or a row sets counts as changed in its cells, even
    in a recipe that has this value anyway. `meanings`: by task."""
    columns = grouped(
        ((column.task, model), _composed(model, column.set))
        for model in set(cells["model"])
        for column in spec.columns.values()
        if column.task and column.set
    )
    rows = grouped(
        (row.model, _composed(row.model, settings))
        for row in spec.rows.values()
        for settings in (row.set, cell_settings(row, {}, PAPER))
        if settings
    )
    keys = {key for by_name in (columns, rows) for sets in by_name.values() for settings in sets for key, _ in settings}
    changed = []
    for config, task, model, already in zip(
        cells["config"], cells["task"], cells["model"], cells["changed"], strict=True
    ):
        of_columns = columns.get((task, model), ())
        if task in meanings and (of_columns or model in rows):
            used = {(key, json.dumps(value, sort_keys=True)) for key, value in values_at(config, keys).items()}
            already = _union(already, *(settings for settings in of_columns if settings <= used))
            if (model, already) not in meanings[task]:
                candidates = (_union(already, settings) for settings in rows.get(model, ()) if settings <= used)
                already = next((key for key in candidates if (model, key) in meanings[task]), already)
        changed.append(already)
    return cells.assign(changed=changed)


def _elsewhere(cells: Cells, spec: TableSpec) -> list[bool]:
    """Whether each cell is a row's of another table that `spec` names, all of one protocol."""
    is_elsewhere = [False] * len(cells)
    for table in spec.elsewhere:
        part = table.for_protocol(spec.protocol)
        meanings = {task: part.meanings(task) for task in set(cells["task"])}
        seen = _with_table_settings(cells, part, meanings)
        rows = zip(is_elsewhere, seen["task"], seen["model"], seen["changed"], strict=True)
        is_elsewhere = [already or (model, changed) in meanings[task] for already, task, model, changed in rows]
    return is_elsewhere


def _composed(model: str, settings: Mapping[str, Any]) -> set[tuple[str, str]]:
    return set(settings_key(as_composed(model, settings)))


def _union(settings: Settings, *more: set[tuple[str, str]]) -> Settings:
    return tuple(sorted(set(settings).union(*more)))


def _column_cells(cells: Cells, spec: TableSpec, name: str, meanings: Meanings) -> Cells:
    """The cells of one protocol that measure a column. `meanings`: of the rows of all protocols in its task.

    A cell that broke off before its task was built has no metric yet; it stands in every column of its task. The
    settings of the columns decide which one of a task a cell belongs to. The baseline is known for one metric.
    """
    column = spec.columns[name]
    same_task = [peer for peer in spec.columns.values() if peer.task == column.task]
    cells = cells[cells["task"] == column.task]
    if metrics := {peer.metric for peer in same_task if peer.metric and peer.evaluation is None}:
        cells = cells[cells["metric"].isna() | cells["metric"].isin(metrics)]
    models = set(cells["model"])
    of_column = {model: _composed(model, column.set) for model in models}
    of_peers = {model: [_composed(model, peer.set) for peer in same_task] for model in models}
    kept = []
    columns = (cells[key] for key in ("model", "changed", "elsewhere", "gives_weights", "untuned"))
    for index, model, changed, elsewhere, gives_weights, untuned in zip(cells.index, *columns, strict=True):
        owners = [(row, owner) for row, owner in meanings.get((model, changed), ()) if row in spec.rows]
        if exact := [row for row, owner in owners if owner == name]:
            kept.append((index, exact[0], RECIPE_RATE if untuned else ""))
            continue
        pairs, label, column_settings = set(changed), spec.row_of_model(model), of_column[model]
        is_of_a_peer = any(column_settings < settings_of_peer <= pairs for settings_of_peer in of_peers[model])
        if spec.every and (label is not None or model in spec.without or not pairs <= column_settings):
            continue  # its rows are plain
        elif spec.only_rows or elsewhere or owners or not column_settings <= pairs or is_of_a_peer or gives_weights:
            continue  # another row, column or table has it; a pre-training is no row
        else:
            beyond = format_settings(pair for pair in changed if pair not in column_settings)
            row, setting = (model, beyond) if label is None else (label, beyond or PLAIN_RECIPE)
        kept.append((index, row, setting))
    indices, rows, settings = map(list, zip(*kept, strict=True)) if kept else ([], [], [])
    cells = cells.loc[indices].assign(row=rows, setting=settings)
    cells["size"] = _stated(cells, lambda config: size_beside_paper(config, column.set))
    return _with_score(cells[cells["size"].notna()].copy(), column, spec.unit_of(name))


def _stated(cells: Cells, of_config: Callable[[Mapping[str, Any]], Any]) -> list[Any]:
    """The value of each configuration; None, said in one line, for one that lacks what it is made of."""
    values = []
    for config, id in zip(cells["config"], cells["id"], strict=True):
        try:
            values.append(of_config(config))
        except UsageError as error:
            say_left_out_once(f"cell {id[:8]}: {error}")
            values.append(None)
    return values


def _with_score(cells: Cells, column: Column, unit: str) -> Cells:
    """The cells with their number in a column, in its unit.

    An evaluation that did not end well gives its status to the cell.
    """
    if column.evaluation is not None:
        results = [evaluations.get(column.evaluation) or {} for evaluations in cells["evaluations"]]
        pairs = zip(cells["status"], results, strict=True)
        cells["status"] = [result.get("status", status) if status == "done" else status for status, result in pairs]
        cells["score"] = [(result.get("metrics") or {}).get(column.metric) for result in results]
    elif column.reaches is not None:
        rows = zip(cells["status"], cells["curve"], cells["higher_is_better"], cells["steps"], strict=True)
        reached = [_reached(column.reaches, *row) for row in rows]
        cells["status"], cells["score"] = ([pair[place] for pair in reached] for place in (0, 1))
    elif column.metric is not None:
        cells["score"] = [tested.get(column.metric) for tested in cells["tested"]]
    elif column.formula is not None:
        cells["score"] = _stated(cells, lambda config: evaluate(column.formula, config))
    else:
        cells["score"] = cells[column.record_field] / UNITS.get(unit, 1)
    if column.evaluation is not None or column.metric is None or column.reaches is not None:
        cells[["baseline", "baseline_name"]] = None
    else:
        cells.loc[cells["metric"] != column.metric, ["baseline", "baseline_name"]] = None
    return cells


def _reached(
    value: float, status: str, curve: Sequence[Mapping[str, Any]] | None, higher: bool, steps: int
) -> tuple[str, float | None]:
    """(status, updates after which a run first reaches a value); a run that does not has the status `not by 600`."""
    if status != "done":
        return status, None
    if not curve:
        return "no curve", None
    for point in curve:
        if point["val"] >= value if higher else point["val"] <= value:
            return status, point["step"]
    return f"not by {steps}", None


def by_sources(columns: dict[str, Cells]) -> list[tuple[dict[str, str], dict[str, Cells]]]:
    """For each choice of data, {column: source}: the choice, and the cells of each column on it or on unknown data.

    For each source there is one choice, which takes it in every column that has it.
    """
    sources = {column: sorted(set(cells["source"]) - {UNKNOWN_SOURCE}) for column, cells in columns.items()}
    choices = []
    for source in sorted(set().union(*sources.values())) or [NO_SOURCE]:
        choice = {column: source if source in there else (*there, NO_SOURCE)[0] for column, there in sources.items()}
        if choice not in choices:
            choices.append(choice)
    return [
        (choice, {c: cells[cells["source"].isin([choice[c], UNKNOWN_SOURCE])] for c, cells in columns.items()})
        for choice in choices
    ]


def describe_sources(sources: dict[str, str]) -> str:
    """`full data`, or `synthetic (ListOps, Image); slice:imdb-2k (Text)`."""
    columns = grouped((source, column) for column, source in sources.items() if source != NO_SOURCE)
    if len(columns) == 1:
        return f"{next(iter(columns))} data"
    return "; ".join(f"{source} ({', '.join(names)})" for source, names in columns.items()) or "no data"
