"""Cost against length, from what do=bench measured: the figures with `kind: measured`, and a picture of each
measurement.

A panel for time and one for memory, of each run on each machine, both axes logarithmic. A point that was not measured
but extrapolated or added up is hollow. A run without a measurement is a panel that says the command that makes it.
`kind: pending` is a figure that nothing here can draw yet: its one panel says what it needs, and no picture is made.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.records.files import write_atomic
from harness.records.measurements import Measurement, Measurements
from harness.report.pages import bench_tables
from harness.report.plots import style
from harness.report.plots.drawing import draw_now
from harness.report.plots.file import SUFFIXES, Plot, Sources
from harness.report.plots.lines import draw
from harness.report.scores import measurements as bench
from harness.report.scores import messages
from harness.report.scores.measurements import Points
from harness.report.spec.figure import MeasuredFigure, PendingFigure
from harness.report.stats.grouping import grouped

DIGITS = 4  # all machines agree on these
VALUES = {"ms": "time, ms", "memory_mb": "memory, MiB"}


def data(figure: MeasuredFigure | PendingFigure, sources: Sources) -> dict[str, Any]:
    if isinstance(figure, PendingFigure):
        notes = [figure.needs, *([f"Command: {figure.command}"] if figure.command else [])]
        panels = [_cost_panel("", "", "", [], notes)]
    else:
        panels = [panel for run in figure.runs for panel in _run_panels(figure, run, sources.measurements)]
        if filled := [panel for panel in panels if panel["series"]]:
            missing = [panel["title"] for panel in panels if not panel["series"]]
            filled[-1]["notes"] += [f"Not measured yet: {', '.join(missing)}."] if missing else []
            panels = filled
    return _drawn(figure.title, panels)


def _drawn(topic: str, panels: list[dict[str, Any]]) -> dict[str, Any]:
    if panels[0]["y"].startswith("time"):
        x = panels[0]["x"]
        size = "tokens" if "token" in x else x
        panels[0]["message"] = messages.of_costs(panels[0]["series"], "ms", size)
    return style.titles(topic, panels) | {"panels": style.with_looks(panels)}


def _cost_panel(title: str, x: str, y: str, lines: Sequence[Mapping[str, Any]], notes: Sequence[str]) -> dict[str, Any]:
    return {"title": title, "x": x, "y": y, "log_x": True, "log_y": True, "series": [*lines], "notes": [*notes]}


def _run_panels(figure: MeasuredFigure, name: str, measurements: Measurements) -> Iterator[dict[str, Any]]:
    run = figure.runs[name]
    measured_runs = bench.measured_for(run, measurements)
    if not measured_runs:
        command = f"Not measured yet: python run.py do=bench figure={figure.name} bench.run={shlex.quote(name)}"
        needs = {"cuda": "It needs a GPU."}.get(run.needs, run.needs)
        yield _cost_panel(name, "", "", [], list(filter(None, [command, needs])))
    for measured in _fullest(figure, name, measured_runs):
        notes = [f"{bench.describe_setting(dict(measured))}."]
        rows = figure.rows_of(name).items()
        labels = {label: there for label, row in rows if (there := bench.label_of(row, label, measured)) is not None}
        if not run.paper_size:
            notes.append(f"Not at the paper's size: {run.why}.")
        for mode, batch in run.modes:
            if not bench.has_series(measured, run.what, mode, batch):
                continue
            title = ", ".join(filter(None, [name, mode, f"batch {batch}" if batch else ""]))
            for key, label in VALUES.items():
                points = {row: bench.series(measured, label, run.what, mode, batch) for row, label in labels.items()}
                models = {row: (row, figure.rows[row].model) for row in points}
                lines = _cost_lines(points, models, figure.reference, key)
                yield _cost_panel(title, figure.x_label, label, lines, notes) | {"band": key == "ms"}


def _fullest(figure: MeasuredFigure, run: str, measured_runs: Sequence[Measurement]) -> Iterator[Measurement]:
    """The measurements with the most rows on their machine: one of a single model is part of a whole one."""
    rows = figure.rows_of(run).items()
    counts = [sum(bench.label_of(row, name, measured) is not None for name, row in rows) for measured in measured_runs]
    machines = [str(measured["hardware"]) for measured in measured_runs]
    of_machine = grouped(zip(machines, counts, strict=True))
    for measured, machine, count in zip(measured_runs, machines, counts, strict=True):
        if count == max(of_machine[machine]):
            yield measured


def _cost_lines(
    points_of: Mapping[str, Points], names: Mapping[str, tuple[str, str]], reference: str | None, key: str
) -> list[dict[str, Any]]:
    """A line for each row with a cost above 0; a logarithm has no place for others. `names`: row -> name and model."""
    lines = []
    for row, points in points_of.items():
        shown = [point for point in points if point.get(key, 0) > 0]
        if not shown:
            continue
        line = {
            "name": names[row][0],
            "model": names[row][1],
            "role": "reference" if row == reference else "",
            "x": [bench.size_of(point) for point in shown],
            "y": [_rounded(point[key]) for point in shown],
            "hollow": [point["status"] != "ok" for point in shown],
        }
        if key == "ms" and all("ms_quartiles" in point for point in shown):
            line["low"], line["high"] = ([_rounded(point["ms_quartiles"][side]) for point in shown] for side in (0, 1))
        lines.append(line)
    return lines


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def measurement_data(measured: Measurement) -> dict[str, Any]:
    """Time and memory of each thing that one do=bench timed at several sizes, quartiles as bands; the page has the
    others. What is extrapolated is left out."""
    names = bench_tables.names_of(measured)
    models = {row: (name, bench_tables.model_of(row, measured.get("rows", {}))) for row, name in names.items()}
    settings, panels = measured["settings"], []
    for timed, by_label in bench_tables.measures(dict(measured)):
        kind, _, mode = timed.partition("-")
        time = "time of a token, ms" if kind in ("decode", "token") else "time, ms"
        memory = "state, MiB" if kind == "decode" else "memory, MiB" if mode else "peak memory, MiB"
        finished = {row: [point for point in points if point["status"] == "ok"] for row, points in by_label.items()}
        for key, label in (("ms", time), ("memory_mb", memory)):
            lines = _cost_lines(finished, models, settings.get("peer"), key)
            if bench_tables.is_drawn(by_label) and lines:
                x = (settings.get("axis") or "length, tokens").removeprefix("model.")
                panel = _cost_panel(bench_tables.title_of(timed), x, label, lines, [])
                panels.append(panel | {"band": key == "ms", "name": f"{timed}-{key}"})
    setting = bench.describe_setting(dict(measured))
    return _drawn(setting, panels or [_cost_panel("", "", "", [], [f"Nothing was measured at two sizes: {setting}."])])


def measurement_plot(measured: Measurement, figures: Path) -> Plot:
    paths = tuple(figures / "bench" / f"{measured['name']}.{suffix}" for suffix in SUFFIXES)
    return Plot(measurement_data(measured), draw, paths, dpi=150)


def write_report(measured: dict[str, Any], tables: Path, figures: Path) -> list[Path]:
    """Write the page of one measurement by do=bench, and its picture (PNG, PDF) if it has one. Returns their paths."""
    drawn = measurement_plot(measured, figures).update(False, draw_now)
    (page,) = bench_tables.pages({measured["name"]: measured}, tables).items()
    write_atomic(*page)
    return [page[0], *drawn]
