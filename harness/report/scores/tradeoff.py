"""Accuracy against speed and memory: `conf/figure/<name>.yaml` -> the bubbles of each panel.

A bubble is a row of a table. The paper's panel takes its three numbers from the ledger. Ours are made of records, by
the rules of the table: a row stands in a panel if it has a score in every column of the accuracy, unchanged, under one
protocol and budget, on the same data and the same machine. Each such combination is a panel of its own, so that a
reduced run is never in the paper's panel.

Speed and memory of ours are examples/s and peak memory as recorded, relative to the reference row of the same panel:
the geometric mean of the ratios over the columns.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isnan
from statistics import geometric_mean
from typing import Any

from harness.config.model_names import model_names, row_name
from harness.errors import UsageError
from harness.records import ledger
from harness.records.collect import Cells
from harness.report.render.words import span
from harness.report.scores.lines import DIGITS, Panel
from harness.report.scores.scores import Score, average, limits_of, score_rows
from harness.report.scores.select import by_sources, describe_sources, select
from harness.report.spec.figure import FigureSpec, PaperCosts
from harness.report.spec.table import TableSpec
from harness.report.stats.seeds import MIN_SEEDS

COSTS = ("examples_per_s", "peak_memory_mb")
HOW = (
    "Speed: training examples/s as recorded; other processes may have shared the machine.",
    "Memory: peak of the process (CPU) or its allocations (GPU).",
)
NOT_IN_PAPER = "*"  # behind the name of a model that the table lacks


def _bubble_panel(figure: FigureSpec, title: str, series: list[dict[str, Any]], notes: list[str]) -> Panel:
    """A bubble is a series of one point, its `size` the memory. Speed and memory of the reference are 1."""
    reference = model_names([figure.reference])[figure.reference]
    panel = {"title": title, "x": f"speed relative to {reference}", "log_x": False, "log_y": False}
    return panel | {"y": f"{figure.accuracy}, {figure.table.unit}", "series": series, "notes": notes}


def _bubble(figure: FigureSpec, row: str, model: str, accuracy: float, speed: float, memory: float) -> dict[str, Any]:
    """`accuracy`: in the table's unit. Its `role` is own, reference, or nothing."""
    role = "own" if row in figure.own else "reference" if model == figure.reference else ""
    numbers = {"x": speed, "y": accuracy, "size": memory}
    lists = {key: [round(value, DIGITS)] for key, value in numbers.items()}
    return {"name": row_name(row), "model": model, "role": role} | lists


def panels(figure: FigureSpec, cells: Cells, paper_root: str | os.PathLike[str]) -> list[Panel]:
    """The paper's panel if it has one, then ours; at least one of ours, empty where nothing can stand in it.

    `cells`: the frame of all records.
    """
    theirs = [_paper_panel(figure, figure.paper, paper_root)] if figure.paper else []
    if ours := [panel for panel in _measured_panels(figure, cells) if panel["series"]]:
        return theirs + ours
    notes = [f"No bubble of ours yet: python run.py table={figure.table.name} budget=reduced"]
    return [*theirs, _bubble_panel(figure, "Ours", [], notes)]


def _paper_panel(figure: FigureSpec, paper: PaperCosts, root: str | os.PathLike[str]) -> Panel:
    entries = ledger.entries(paper.ledger, root)
    costs = []
    for column, condition in ((column.column, column.condition) for column in (paper.speed, paper.memory)):
        printed = [entry for entry in entries if (entry["column"], entry["condition"]) == (column, condition)]
        costs.append({entry["row"]: entry["number"] for entry in printed if not isnan(entry["number"])})
        if not costs[-1]:
            raise UsageError(f"figure {figure.name}: {paper.ledger}.csv has no {column}, {condition}")
    bubbles, absent = [], []
    for label, row in figure.table.rows.items():
        published, name = figure.table.published.get((label, figure.accuracy)), paper.rows.get(label, label)
        if published and all(name in numbers for numbers in costs):
            bubbles.append(_bubble(figure, label, row.model, published.number, *(numbers[name] for numbers in costs)))
        elif not row.ours:
            absent.append(label)
    notes = [f"{paper.source}.", *_named("Without speed and memory in the paper", absent)]
    return _bubble_panel(figure, "The paper's numbers", bubbles, notes) | {"published": True}


def _measured_panels(figure: FigureSpec, cells: Cells) -> Iterator[Panel]:
    """A panel for each protocol, budget, machine and choice of data among the records."""
    for protocol, selected in select(cells, figure.table).items():
        table, columns = figure.table.for_protocol(protocol), {name: selected[name] for name in figure.parts}
        runs = {run for part in columns.values() for run in zip(part["budget"], part["hardware"], strict=True)}
        for budget, hardware in sorted(runs):
            same = {
                name: part[(part["budget"] == budget) & (part["hardware"] == hardware)]
                for name, part in columns.items()
            }
            for sources, measured in by_sources(same):
                title = f"Ours: {budget} budget, protocol {protocol}\n{describe_sources(sources)}"
                yield _measured_panel(figure, table, title, hardware, measured)


def _measured_panel(
    figure: FigureSpec, part: TableSpec, title: str, hardware: str, columns: Mapping[str, Cells]
) -> Panel:
    rows: dict[str, dict[str, list[Score]]] = {}
    for column, cells in columns.items():
        for score in score_rows(cells, limits=limits_of(part.columns[column])):
            rows.setdefault(score.row, {}).setdefault(column, []).append(score)
    # of the unchanged recipe alone, if there is such a score
    plain = {
        name: [[s for s in scores if not s.setting] or scores for scores in of.values()] for name, of in rows.items()
    }
    complete = {name: scores for name, scores in plain.items() if len(scores) == len(columns) and _has_costs(scores)}
    averages = {name: mean for name, scores in complete.items() if (mean := average(scores))}
    reference, bubbles = part.row_of_model(figure.reference), []
    order = [*(row for row in part.rows if row in averages), *sorted(averages.keys() - part.rows.keys())]
    for name in order if reference in averages else ():
        pairs = list(zip(plain[name], plain[reference], strict=True))
        costs = (geometric_mean(getattr(a, key) / getattr(b, key) for (a,), (b,) in pairs) for key in COSTS)
        model = part.rows[name].model if name in part.rows else name
        ours = averages[name].estimate
        bubble = _bubble(figure, name, model, ours.mean, *costs)
        bubble["name"] += "" if name in part.rows else NOT_IN_PAPER
        if ours.interval is not None:
            bubble |= {key: [round(end, DIGITS)] for key, end in zip(("low", "high"), ours.interval, strict=True)}
        bubbles.append(bubble)
    failed = [f"{row_name(name)} ({mean.failure_text})" for name, mean in averages.items() if mean.failures]
    seeds = sorted(len(mean.by_seed) for mean in averages.values())
    bars = "; bars: 95 % intervals" if max(seeds, default=0) >= MIN_SEEDS else ""
    drawn = set(order) if bubbles else set()
    notes = [
        f"{hardware}.",
        *([f"Seeds: {span(seeds)} per row{bars}.", *HOW] if seeds else []),
        *_named("Failed seeds, not in the mean", failed),
        *_named("TEST LEAK, checkpoint chosen on the test split", [n for n, mean in averages.items() if mean.leak]),
        *_named(
            "Not drawn, without a score and its cost in every column", [n for n in (part.rows | rows) if n not in drawn]
        ),
    ]
    if any(bubble["name"].endswith(NOT_IN_PAPER) for bubble in bubbles):
        notes.append(f"{NOT_IN_PAPER} not in the paper.")
    return _bubble_panel(figure, title, bubbles, notes)


def _has_costs(scores: Sequence[Sequence[Score]]) -> bool:
    return all(getattr(score, key) for part in scores for score in part for key in COSTS)


def _named(message: str, names: Iterable[str]) -> list[str]:
    """A note that ends with these names; none without a name."""
    shown = ", ".join(map(row_name, names)).rstrip(".")
    return [f"{message}: {shown}."] if shown else []
