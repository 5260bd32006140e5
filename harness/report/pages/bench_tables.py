"""Measurements of do=bench as pages and on the terminal."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.config.table_rows import labelled
from harness.report.render.layout import Block
from harness.report.render.markdown import block_lines, escape
from harness.report.render.words import listed
from harness.report.scores.measurements import block_note, describe_setting, size_of, slope
from harness.report.stats.grouping import grouped
from harness.report.stats.growth import crossover
from harness.report.stats.seeds import significant

SHOWN_MODELS = 3  # in the title of a page
MEDIANS = "Medians, in brackets the speedup over the peer; exponents are fitted to the upper half of the lengths."
TITLES = {"forward": "Forward", "train": "Forward and backward", "decode": "One token, decoded"}
TITLES |= {"token": "One token of a text", "generate": "A whole text"}
Series = list[dict[str, Any]]


def pages(measurements: Mapping[str, dict[str, Any]], tables: Path) -> dict[Path, str]:
    """{path: Markdown page} of all measurements."""
    return {tables / "bench" / f"{name}.md": page(measured) for name, measured in measurements.items()}


def show_measurement(measured: dict[str, Any]) -> None:
    from harness.report.render.terminal import console, show_block

    page = console()
    for timed, series in measures(measured):
        show_block(Block(f"{title_of(timed)}: {describe_setting(measured)}", *grid(measured, series)), page)
    for line in (MEDIANS, *measurement_notes(measured)):
        page.print(line, markup=False, soft_wrap=True)


def measures(measured: dict[str, Any]) -> Iterator[tuple[str, dict[str, Series]]]:
    """(name of a measure, {model: its points by length, or by the values of an axis}).

    Generation has one measure per mode and batch size: `generate-recompute-16`.
    """
    keys = [(point["what"], point.get("mode"), point.get("batch")) for point in measured["points"]]
    names = ("-".join(str(part) for part in key if part is not None) for key in keys)
    for timed, points in grouped(zip(names, measured["points"], strict=True)).items():
        yield timed, {name: [p for p in points if p["model"] == name] for name in measured["models"]}


def names_of(measured: Mapping[str, Any]) -> dict[str, str]:
    """{label of a model in a measurement: its name for people}"""
    rows = measured.get("rows", {})
    return {label: labelled(label, model_of(label, rows)) for label in measured["models"]}


def model_of(label: str, rows: Mapping[str, Any]) -> str:
    return rows[label]["model"] if label in rows else label.partition(" (")[0]


def title_of(timed: str) -> str:
    """`A whole text, recompute, batch 16`"""
    name, *series = timed.split("-")
    return ", ".join([TITLES.get(name, name), *series[:1], *(f"batch {batch}" for batch in series[1:])])


def grid(measured: dict[str, Any], series: dict[str, Series]) -> tuple[list[str], list[list[str]]]:
    """Header and rows: time per length with its ratio to the peer, slopes, memory at the longest length, crossover."""
    peer = measured["settings"]["peer"]
    lengths = [size_of(point) for point in next(iter(series.values()))]
    base = {size_of(point): point["ms"] for point in series.get(peer, []) if "ms" in point}
    header = ["model", *(f"{n:,}" for n in lengths), "time ~ n^", "memory ~ n^", "MiB at the longest"]
    names = names_of(measured)
    header.append(f"beats {names.get(peer, peer)} from")
    rows = []
    for name, points in series.items():
        cells = [names[name]]
        for point in points:
            if "ms" not in point:
                cells.append(point["status"].split(":")[0])
                continue
            compared = size_of(point) in base and name != peer
            ratio = f" ({significant(base[size_of(point)] / point['ms'], 2)}×)" if compared else ""
            mark = "" if point["status"] == "ok" else "~"
            cells.append(f"{mark}{milliseconds(point['ms'])}{ratio}")
        good = [point for point in points if point["status"] == "ok"]
        # exponents over the upper half of the lengths; empty for fewer than two points
        exponents = [slope(good, key).value for key in ("ms", "memory_mb")]
        slopes = ["" if value is None else f"{value:z.2f}" for value in exponents]
        both = [point for point in good if size_of(point) in base]
        sizes, ours = [size_of(p) for p in both], [p["ms"] for p in both]
        at = crossover(sizes, ours, [base[n] for n in sizes]) if name != peer else None
        rows.append([*cells, *slopes, significant(good[-1]["memory_mb"]) if good else "", f"{at:,.0f}" if at else ""])
    return header, rows


def milliseconds(value: float) -> str:
    return f"{significant(value)} ms" if float(f"{value:.3g}") < 1000 else f"{significant(value / 1000)} s"


def measurement_notes(measured: dict[str, Any]) -> list[str]:
    lines: list[str] = []
    if disturbed := sum(point.get("disturbed", 0) for point in measured["points"]):
        lines.append(f"{disturbed} samples were taken while other processes used this machine.")
    if cold := sum(point.get("cold", 0) for point in measured["points"]):
        lines.append(f"{cold} samples may be too long: the kernel gave the process new memory meanwhile.")
    if any("ms" in point and point["status"] != "ok" for point in measured["points"]):
        lines.append("~: not measured at this length; how it came about stands below.")
    lines += [f"{title_of(timed)}: {meaning}." for timed, meaning in measured.get("timed", {}).items()]
    kernels = measured.get("kernels", {}).items()
    lines += [f"{name}: most of the time in {', '.join(names)}" for name, names in kernels if names]
    lines += [f"{name}: {why}" for name, why in measured.get("absent", {}).items()]
    if measured["settings"].get("layers") is None and not measured["settings"].get("task"):
        for label, name in names_of(measured).items():
            lines += block_note(name, model_of(label, measured.get("rows", {})), measured["models"][label])
    return lines + reasons(measured)


def reasons(measured: dict[str, Any]) -> list[str]:
    """Why points were not measured: one line per reason and length, with its models."""
    missing = [point for point in measured["points"] if point["status"] != "ok"]
    models = grouped(((point["length"], point["status"]), point["model"]) for point in missing)
    everyone = set(measured["models"])
    return [
        f"{'all models' if len({*names}) > 1 and {*names} == everyone else ', '.join(dict.fromkeys(names))} "
        f"at {length:,}: {status}"
        for (length, status), names in models.items()
    ]


def is_drawn(by_label: Mapping[str, Series]) -> bool:
    """Whether a picture shows how a cost grows: a row was measured at two sizes."""
    return any(len({size_of(point) for point in of_row if point["status"] == "ok"}) > 1 for of_row in by_label.values())


def page(measured: dict[str, Any]) -> str:
    """The page of a measurement."""
    lines = ["<!-- Generated by `python run.py do=report` from what do=bench measured; do not edit. -->"]
    lines += [f"# Time and memory: {escape(listed(list(names_of(measured).values()), SHOWN_MODELS))}", ""]
    lines += [f"{escape(describe_setting(measured))}.", ""]
    if any(is_drawn(by_label) for _, by_label in measures(measured)):
        lines += [f"![Time and memory](../../figures/bench/{measured['name']}.png)", ""]
    for timed, series in measures(measured):
        lines += [*block_lines(Block(title_of(timed), *grid(measured, series)), level=2), ""]
    lines.append("- [How to read a measurement](../../../docs/efficiency.md).")
    return "\n".join([*lines, *(f"- {escape(line)}" for line in measurement_notes(measured))]) + "\n"
