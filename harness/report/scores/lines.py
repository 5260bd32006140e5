"""Figures of lines: `conf/figure/<name>.yaml` with `kind: lines` -> the lines of each panel.

A line shows how a score changes. Either the columns of a table are its points, each at a place that the yaml gives
(`points`: a line for each row), or the rows are, at their score in another column (`against`: a line for each model,
through its rows, and a panel for each of `columns`), which may be a measured cost. Each budget has panels of its own. A
point is the mean over seeds of the unchanged recipe; its bar reaches from the lowest to the highest seed.

With `front`, a panel has the Pareto front: the points with a better score than all points at the same place or before.
A table with several sizes of its models has a panel only where one of them was run at two sizes.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from harness.config.table_rows import row_name
from harness.records.collect import Cells
from harness.records.measurements import Measurements
from harness.report.scores import messages
from harness.report.scores.measurements import bench_scores
from harness.report.scores.messages import Numbers
from harness.report.scores.scores import chances, limits_of
from harness.report.scores.select import select
from harness.report.scores.tuning import Selected
from harness.report.spec.figure import LineFigure
from harness.report.spec.table import TableSpec
from harness.report.stats.grouping import grouped

ALL_NAMED = 10  # models: as many have their colour and name in a picture with a front, of more those that stand out
NAMED = 6  # rows that are not run: more of them are counted
DIGITS = 4  # behind the point: what all machines agree on
Panel = dict[str, Any]  # of series, as `harness.report.plots.style` says
Points = list[tuple[float, Any, str]]  # place, scores of the seeds (a pandas series), label


def panels(
    figure: LineFigure, cells: Cells, measurements: Measurements | None = None, selected: Selected | None = None
) -> list[Panel]:
    """One panel at least; an empty one says which command fills it. `cells`: the frame of all records. `measurements`:
    those of do=bench. `selected`: as `select` returns it for the figure's table, if that is known."""
    every = [
        panel
        for protocol, columns in (selected or select(cells, figure.table)).items()
        for panel in _panels_of_protocol(figure, protocol, columns, measurements or {})
    ]
    filled = [panel for panel in every if panel["series"]]
    if not filled:
        notes = [f"Not run yet: python run.py table={figure.table.name} budget=reduced"]
        return [_line_panel(figure, "", [], None, notes + [note for panel in every[:1] for note in panel["notes"][1:]])]
    if waiting := [panel["title"] for panel in every if not panel["series"]]:
        filled[-1]["notes"].append(f"Without a picture, for lack of runs: {'; '.join(waiting)}.")
    return filled


def _line_panel(figure: LineFigure, title: str, series: list[dict], chance: float | None, notes: list[str]) -> Panel:
    panel = {"title": title, "x": figure.x_label, "y": figure.y_label, "log_x": True, "log_y": False}
    return panel | {"series": series, "notes": notes} | ({} if chance is None else {"chance": chance})


def _panels_of_protocol(
    figure: LineFigure, protocol: str, columns: Mapping[str, Cells], measurements: Measurements
) -> Iterator[Panel]:
    part = figure.table.for_protocol(protocol)
    budgets = sorted({budget for name in (*figure.points, *figure.columns) for budget in columns[name]["budget"]})
    for budget in budgets:
        # the scores by the unchanged recipe
        done = {name: cells[(cells["status"] == "done") & (cells["setting"] == "")] for name, cells in columns.items()}
        measured = {name: cells[(cells["budget"] == budget) & cells["score"].notna()] for name, cells in done.items()}
        if figure.points:
            yield _by_columns(figure, part, budget, measured)
        else:
            places, how = _places(figure, part, measured, measurements)
            for name in figure.columns:
                yield _by_rows(figure, part, budget, name, measured, places, how)


def _places(
    figure: LineFigure, part: TableSpec, measured: Mapping[str, Cells], measurements: Measurements
) -> tuple[dict[str, float], str]:
    """{row: its place on the x axis}, and how a cost was measured; empty for a score of cells."""
    point = part.columns[figure.against].bench
    if point is not None:
        scores, how = bench_scores(point, part.rows, measurements)
        return {score.row: score.estimate.mean for score in scores if score.by_seed}, how
    scored = measured[figure.against].groupby("row")["score"].mean()
    return {row: float(place) for row, place in scored.items()}, ""


def _by_columns(figure: LineFigure, part: TableSpec, budget: str, columns: Mapping[str, Cells]) -> Panel:
    """A line for each row, through the columns."""
    lines = {}
    places = sorted(figure.points.items(), key=lambda item: item[1])
    for row in part.rows:
        scores = [(x, columns[name].loc[columns[name]["row"] == row, "score"], "") for name, x in places]
        if points := [point for point in scores if len(point[1])]:
            lines[row] = points
    panel = _filled(figure, part, f"{budget} budget", lines, _chance(columns, figure.points))
    if found := {row for name in figure.points for row in columns[name]["row"]} - {*part.rows}:
        panel["notes"].append(f"Only on the page of the table: {', '.join(map(row_name, sorted(found)))}.")
    name = next(iter(figure.points))
    said = messages.of_curves(panel["series"], _numbers(part, name), {place: name for name, place in places})
    return panel | {"message": said, **_limits(part, name)}


def _by_rows(
    figure: LineFigure,
    part: TableSpec,
    budget: str,
    name: str,
    columns: Mapping[str, Cells],
    places: Mapping[str, float],
    how: str,
) -> Panel:
    """A line for each model, through its rows by their places; it is called what their labels begin with."""
    labels = grouped((row.model, label) for label, row in part.rows.items())
    scores = {row: columns[name].loc[columns[name]["row"] == row, "score"] for row in part.rows if row in places}
    by_model = grouped(
        (part.rows[row].model, (places[row], of_row, row)) for row, of_row in scores.items() if len(of_row)
    )
    lines = {
        _shared_name(labels[model]): sorted(points, key=lambda point: point[0]) for model, points in by_model.items()
    }
    several = len({row.model for row in part.rows.values()}) < len(part.rows)
    if figure.front and several and all(len(points) < 2 for points in lines.values()):
        lines = {}  # one size of each is in the picture of another table
    chance, numbers = _chance(columns, [name]), _numbers(part, name, figure.against)
    panel = _filled(figure, part, f"{name}, {budget} budget", lines, chance) | _limits(part, name)
    panel["notes"] += [f"{figure.against}: {how}."] if how else []
    if len({part.unit_of(column) for column in figure.columns}) > 1:
        panel["y"] = f"{part.unit_of(name)}, {'higher' if numbers.higher else 'lower'} is better"
    if not figure.front:
        return panel
    marks = dict(zip(columns[name]["row"], columns[name]["marks"], strict=True))  # of rows without a verdict
    points = [
        point
        for line in panel["series"]
        for point in zip(line["x"], line["y"], line["labels"], strict=True)
        if not marks.get(point[2])
    ]
    best = front(points, numbers.higher, numbers.decimals)
    goal = messages.threshold(panel["series"], chance, numbers)
    panel["front"] = best
    for line in panel["series"]:
        solves = [goal is None or (y >= goal if numbers.higher else y <= goal) for y in line["y"]]
        stands_out = line["role"] == "reference" or any(solves) or any(p[2] in line["labels"] for p in best if p[0])
        line["shown"] = stands_out or len(panel["series"]) <= ALL_NAMED
    return panel


def _numbers(part: TableSpec, name: str, against: str | None = None) -> Numbers:
    resolved = part.resolve(name)
    unit = part.unit_of(against) if against else ""
    return Numbers(resolved.decimals, resolved.unit, bool(resolved.higher_is_better), unit)


def _limits(part: TableSpec, name: str) -> dict[str, list[float]]:
    """The scale of a score that has two ends, such as an accuracy."""
    ends = limits_of(part.columns[name])
    return {"limits": [*ends]} if all(map(math.isfinite, ends)) else {}


def _shared_name(labels: Sequence[str]) -> str:
    """`GLA` for `GLA, keys x 0.125` and `GLA, keys x 0.25`; the first label where they share no part before a comma."""
    parts = zip(*(label.split(", ") for label in labels), strict=False)
    shared = itertools.takewhile(lambda part: len(set(part)) == 1, parts)
    return ", ".join(part[0] for part in shared) or labels[0]


def front(
    points: Iterable[tuple[float, float, str]], higher_is_better: bool, decimals: int = DIGITS
) -> list[tuple[float, float, str]]:
    """The points (place, score, label) with a better score than all points at the same place or before.

    Scores that are printed alike, with these decimals, are equal.
    """
    sign = 1 if higher_is_better else -1
    kept: list[tuple[float, float, str]] = []
    for point in sorted(points, key=lambda point: (point[0], -sign * point[1], point[2])):
        if not kept or sign * round(point[1], decimals) > sign * round(kept[-1][1], decimals):
            kept.append(point)
    return kept


def _filled(
    figure: LineFigure, part: TableSpec, title: str, lines: Mapping[str, Points], chance: float | None
) -> Panel:
    """`lines`: (place, scores of the seeds, label) of the points of each line; the label tells points apart."""
    series = []
    for name, points in lines.items():
        line = {"name": name, "model": part.rows[points[0][2] or name].model}
        line["role"] = "reference" if name in figure.reference else ""
        line["x"] = [round(x, DIGITS) for x, _, _ in points]
        for key, statistic in (("y", "mean"), ("low", "min"), ("high", "max")):
            line[key] = [round(float(getattr(scores, statistic)()), DIGITS) for _, scores, _ in points]
        line["labels"] = [label for _, _, label in points]
        series.append(line)
    seeds = {len(scores) for points in lines.values() for _, scores, _ in points}
    span = " to ".join(str(count) for count in sorted({min(seeds), max(seeds)})) if seeds else "no"
    notes = [f"Mean of {span} seeds; bars from the lowest to the highest."]
    drawn = {label or name for name, points in lines.items() for _, _, label in points}
    if missing := [row for row in part.rows if row not in drawn]:
        many = f"{len(missing)} of {len(part.rows)} rows"
        notes.append(f"Not run yet: {', '.join(missing) if len(missing) <= NAMED else many}.")
    return _line_panel(figure, title, series, chance, notes)


def _chance(columns: Mapping[str, Cells], names: Iterable[str]) -> float | None:
    """The mean score of guessing in those of these columns where it is known."""
    by_column = [next(iter(of_data.values())) for name in names if (of_data := chances(columns[name]))]
    return round(sum(by_column) / len(by_column), DIGITS) if by_column else None
