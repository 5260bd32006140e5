"""Grids of several columns side by side: short ones to be read first, those of our own columns, parts of means."""

from collections.abc import Iterable, Sequence

from harness.report.pages.entries import EMPTY, muted, row_entry, score_entry, short_entry
from harness.report.pages.notes import (
    label_with_fit,
    shared_notes,
    signs_line,
    solved_notes,
)
from harness.report.render.layout import Block, TableEntry
from harness.report.scores.groups import Group
from harness.report.scores.scores import Score
from harness.report.spec.table import TableSpec
from harness.report.stats.grouping import grouped

PREDICTOR = "strongest simple predictor"


def short_block(spec: TableSpec, groups: Sequence[Group], where: str) -> Block:
    """Mean of each row in several columns, in the order of the first one, and the strongest predictors."""
    lines = [line for group in groups for line in group.lines if line.score and not line.is_baseline]
    body = [
        (row_entry(spec, *key), *(short_entry(spec, group, score) for group, score in _of_row(groups, key)))
        for key in dict.fromkeys(line.score.key for line in lines)
    ]
    if any(group.strongest for group in groups):
        texts = [group.strongest.number(group.resolved.decimals) if group.strongest else "–" for group in groups]
        body.append(tuple(map(muted, (PREDICTOR, *texts))))
    header = ["model", *(TableEntry(group.in_grid(group.resolved.heading), group.resolved.notes) for group in groups)]
    return Block(where, header, body, lines=signs_line(body))


def parts_block(spec: TableSpec, mean: Group) -> list[Block]:
    """The columns of an average that the paper does not print; no block if none was measured.

    At the paper's budget every row of the table has a line, at other budgets only the rows that were run.
    """
    parts = [group for group in mean.parts.values() if not group.resolved.is_printed]
    if not any(group.scores for group in parts):
        return []
    measured = {score.row for group in parts for score in group.scores}
    rows = [row for row in spec.rows if row in measured or mean.comparable]
    body = []
    for row in [*rows, *sorted(measured - set(rows))]:
        settings = {score.setting for group in parts for score in group.scores if score.row == row}
        body += [
            (row_entry(spec, row, name), *_side_by_side(spec, parts, row, name)) for name in sorted(settings or {""})
        ]
    body += _baseline_rows(parts)
    notes = shared_notes({group.resolved.short_name: group.data_notes for group in parts})
    lines = [*notes, *solved_notes(parts)]
    if not mean.scores and not mean.comparable:
        lines.append(no_average([mean.column]))
    names = [part.resolved.short_name if mean.data_name else part.in_grid(part.resolved.short_name) for part in parts]
    header = ["model", *map(TableEntry, names, (part.resolved.notes for part in parts))]
    return [Block(f"Parts of {mean.resolved.heading}{mean.on_data} · {mean.where}", header, body, lines=lines)]


def own_block(spec: TableSpec, groups: Sequence[Group], where: str) -> Block:
    """Columns that no paper prints, side by side, with one line per row that was run or measured.

    A number that all seeds share is shown alone, any other with its interval and the number of seeds.
    """
    order = {row: number for number, row in enumerate(spec.rows)}
    keys = sorted({score.key for group in groups for score in group.scores})
    keys.sort(key=lambda key: order.get(key[0], len(order)))
    body = [(row_entry(spec, *key), *_side_by_side(spec, groups, *key, fixed_alone=True)) for key in keys]
    body += _baseline_rows(groups, only_named=True)
    header = [TableEntry(group.in_grid(group.resolved.heading), group.resolved.notes) for group in groups]
    lines = shared_notes({group.column: group.data_notes for group in groups if spec.columns[group.column].metric})
    lines += solved_notes(groups)
    columns = {group.column: spec.columns[group.column] for group in groups}
    lines += [f"{name} = {column.formula}." for name, column in columns.items() if column.formula is not None]
    measured = [(group, point) for group in groups if (point := columns[group.column].bench) is not None]
    settings = grouped(
        (f"do=bench, {point.what} at {point.length:,} tokens: {group.data}.", group.column) for group, point in measured
    )
    lines += [f"{', '.join(names)}: {setting}" for setting, names in settings.items()]
    return Block(where, ["model", *header], body, lines=lines)


def _side_by_side(
    spec: TableSpec, groups: Sequence[Group], row: str, setting: str, fixed_alone: bool = False
) -> list[TableEntry]:
    """The scores of one row in several columns. `fixed_alone`: show a number that all seeds share without a count."""
    return [
        score_entry(spec, score, group, alone=fixed_alone and score.is_fixed and not score.failures) if score else EMPTY
        for group, score in _of_row(groups, (row, setting))
    ]


def _of_row(groups: Sequence[Group], key: tuple[str, str]) -> list[tuple[Group, Score | None]]:
    return [(group, {score.key: score for score in group.scores}.get(key)) for group in groups]


def _baseline_rows(groups: Sequence[Group], only_named: bool = False) -> list[list[TableEntry]]:
    """One line per baseline. Without recorded baselines, one line with the score of a guess, unless `only_named`."""
    lines: dict[str, dict[str, str]] = {}
    for group in groups:
        for score in group.baselines:
            lines.setdefault(score.row, {})[group.column] = score.number(group.resolved.decimals)
    names = sorted({name for group in groups for name in group.chance_names})
    if names and not lines and not only_named:
        guesses = {group.column: group.resolved.unsigned(group.chance) for group in groups if group.chance is not None}
        lines[f"baseline: {', '.join(names)}"] = guesses
    return [
        [muted(label_with_fit(row, groups)), *(muted(line.get(group.column, "–")) for group in groups)]
        for row, line in lines.items()
    ]


def no_average(names: Iterable[str]) -> str:
    return f"Not averaged, because no row has a score in every column: {', '.join(names)}."
