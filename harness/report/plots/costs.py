"""Cost against length, from what do=bench measured: the figures with `kind: measured`, and a picture of each
measurement.

A panel for time and one for memory, of each run on each machine, both axes logarithmic. A point that was not measured
but extrapolated or added up is hollow. A run without a measurement is a panel that says the command that makes it.
`kind: pending` is a figure that nothing here can draw yet: its one panel says what it needs, and no picture is made.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.report.pages import bench_tables
from harness.report.plots import style
from harness.report.plots.file import SUFFIXES, Plot
from harness.report.plots.lines import draw
from harness.report.scores import messages
from harness.report.scores.measurements import (
    describe_setting,
    has_series,
    label_of,
    measured_for,
    series,
    size_of,
    slope,
)
from harness.report.spec.figure import MeasuredFigure, PendingFigure
from harness.report.stats.growth import exponent

if TYPE_CHECKING:
    from harness.report.plots.file import Sources

DIGITS = 4  # all machines agree on these
STRAIGHT = 0.5  # an exponent is stated where those between neighbouring points differ by no more
FLAT = 0.2  # a smaller exponent is that of a flat line
VALUES = {"ms": "time, ms", "memory_mb": "memory, MiB"}


def data(figure: MeasuredFigure | PendingFigure, sources: "Sources") -> dict[str, Any]:
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


def _run_panels(
    figure: MeasuredFigure, name: str, measurements: Mapping[str, Mapping[str, Any]]
) -> Iterator[dict[str, Any]]:
    run = figure.runs[name]
    measured_runs = measured_for(run, measurements)
    if not measured_runs:
        command = f"Not measured yet: python run.py do=bench figure={figure.name} bench.run={name}"
        needs = {"cuda": "It needs a GPU."}.get(run.needs, run.needs)
        yield _cost_panel(name, "", "", [], list(filter(None, [command, needs])))
    for measured in _fullest(figure, name, measured_runs):
        notes = [f"{describe_setting(dict(measured))}."]
        if not run.paper_size:
            notes.append(f"Not at the paper's size: {run.why}.")
        for mode, batch in run.modes:
            if not has_series(measured, run.what, mode, batch):
                continue
            title = ", ".join(filter(None, [name, mode, f"batch {batch}" if batch else ""]))
            for key, label in VALUES.items():
                lines = _lines_of_run(figure, name, measured, (mode, batch), key)
                yield _cost_panel(title, figure.x_label, label, list(lines), list(notes)) | {"band": key == "ms"}


def _fullest(
    figure: MeasuredFigure, run: str, measured_runs: Sequence[Mapping[str, Any]]
) -> Iterator[Mapping[str, Any]]:
    """The measurements with the most rows on their machine: one of a single model is part of a whole one."""
    rows = figure.rows_of(run).items()
    counts = [sum(label_of(row, name, measured) is not None for name, row in rows) for measured in measured_runs]
    most: dict[str, int] = {}
    machines = [str(measured["hardware"]) for measured in measured_runs]
    for machine, count in zip(machines, counts, strict=True):
        most[machine] = max(count, most.get(machine, 0))
    for measured, machine, count in zip(measured_runs, machines, counts, strict=True):
        if count == most[machine]:
            yield measured


def _lines_of_run(
    figure: MeasuredFigure, run: str, measured: Mapping[str, Any], chosen: tuple[str | None, int | None], key: str
) -> Iterator[dict[str, Any]]:
    for name, row in figure.rows_of(run).items():
        if (label := label_of(row, name, measured)) is None:
            continue
        points = series(measured, label, figure.runs[run].what, *chosen)
        if line := _cost_line(name, str(row.model), name == figure.reference, points, key):
            yield line


def _cost_line(
    name: str, model: str, is_reference: bool, points: Sequence[Mapping[str, Any]], key: str
) -> dict[str, Any] | None:
    """None where nothing was measured above 0, which a logarithm has no place for."""
    shown = [point for point in points if point.get(key, 0) > 0]
    if not shown:
        return None
    line = {
        "name": name,
        "model": model,
        "role": "reference" if is_reference else "",
        "x": [size_of(point) for point in shown],
        "y": [_rounded(point[key]) for point in shown],
        "hollow": [point["status"] != "ok" for point in shown],
        "exponent": _exponent(points, key),
    }
    if key == "ms" and all("ms_quartiles" in point for point in shown):
        line["low"], line["high"] = ([_rounded(point["ms_quartiles"][side]) for point in shown] for side in (0, 1))
    return line


def _exponent(points: Sequence[Mapping[str, Any]], key: str) -> str:
    """Of a cost that grows by a power of the length over all points; empty for a line that is flat or bends."""
    kept = [point for point in points if point.get(key, 0) > 0]
    slopes = [exponent([size_of(a), size_of(b)], [a[key], b[key]]) for a, b in itertools.pairwise(kept)]
    fitted = slope(points, key)
    if len(slopes) < 2 or max(slopes) - min(slopes) > STRAIGHT or fitted.value is None or fitted.value < FLAT:
        return ""
    return f"{fitted.value:z.1f}{fitted.mark}"


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def measurement_data(measured: Mapping[str, Any]) -> dict[str, Any]:
    """Time and memory of each thing that one do=bench timed, quartiles as bands. What is extrapolated is left out."""
    names, rows = bench_tables.names_of(measured), measured.get("rows", {})
    settings, panels = measured["settings"], []
    for timed, by_label in bench_tables.measures(dict(measured)):
        kind, _, mode = timed.partition("-")
        time = "time of a token, ms" if kind in ("decode", "token") else "time, ms"
        memory = "state, MiB" if kind == "decode" else "memory, MiB" if mode else "peak memory, MiB"
        for key, label in (("ms", time), ("memory_mb", memory)):
            lines = []
            for label_of_row, points in by_label.items():
                points = [point for point in points if point["status"] == "ok" and point.get(key, 0) > 0]
                model = bench_tables.model_of(label_of_row, rows)
                if line := _cost_line(names[label_of_row], model, label_of_row == settings.get("peer"), points, key):
                    lines.append(line)
            if not lines:
                continue
            x = (settings.get("axis") or "length, tokens").removeprefix("model.")
            title = bench_tables.title_of(timed)
            panels.append(_cost_panel(title, x, label, lines, []) | {"band": key == "ms", "name": f"{timed}-{key}"})
    setting = describe_setting(dict(measured))
    return _drawn(setting, panels or [_cost_panel("", "", "", [], [f"Nothing was measured: {setting}."])])


def plots(measurements: Mapping[str, Mapping[str, Any]], figures: Path) -> list[Plot]:
    """The picture of every measurement by do=bench."""
    return [measurement_plot(measured, figures) for measured in measurements.values() if measured["kind"] == "bench"]


def measurement_plot(measured: Mapping[str, Any], figures: Path) -> Plot:
    paths = tuple(figures / "bench" / f"{measured['name']}.{suffix}" for suffix in SUFFIXES)
    return Plot(measurement_data(measured), draw, paths, dpi=150)


def write_report(measured: dict[str, Any], tables: Path, figures: Path) -> list[Path]:
    """Write the page and the picture (PNG, PDF) of one measurement by do=bench. Returns their paths."""
    plot = measurement_plot(measured, figures)
    plot.write(plot.paths)
    return [bench_tables.write_page(measured, tables), *plot.paths]
