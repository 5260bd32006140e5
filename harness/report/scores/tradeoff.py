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

from harness.config.table_rows import row_name
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
    reference = row_name(figure.reference)
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
    every = list(_measured_panels(figure, cells))
    if ours := [panel for panel in every if panel["series"]]:
        return theirs + ours
    notes = [
        f"No bubble of ours yet: no row has a score in each of {', '.join(figure.parts)} at one budget, on one machine "
        "and data.",
        f"Command: python run.py table={figure.table.name} budget=reduced",
    ]
    for panel in every:
        title = panel["title"].removeprefix("Ours: ").replace("\n", ", ")
        notes.append(f"So far, {title}: {' '.join(panel['notes'])}")
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
    measured = {column: score_rows(cells, limits=limits_of(part.columns[column])) for column, cells in columns.items()}
    seen = {score.row for scores in measured.values() for score in scores}
    names = [*(label for label in part.rows if label in seen), *sorted(seen - set(part.rows))]
    # of the unchanged recipe alone, if there is such a score
    of_rows = {name: [[s for s in scores if s.row == name] for scores in measured.values()] for name in names}
    by_row = {
        row: [[s for s in scores if not s.setting] or scores for scores in every] for row, every in of_rows.items()
    }
    averages = {name: mean for name, scores in by_row.items() if _has_costs(scores) and (mean := average(scores))}
    reference = part.row_of_model(figure.reference)
    bubbles, reasons = [], {}
    for name in names:
        if name not in averages:
            reasons.setdefault(_reason_left_out(list(measured), by_row[name]), []).append(name)
        elif reference in averages:
            pairs = list(zip(by_row[name], by_row[reference], strict=True))
            costs = (geometric_mean(getattr(a, key) / getattr(b, key) for (a,), (b,) in pairs) for key in COSTS)
            model = part.rows[name].model if name in part.rows else name
            ours, bubble = averages[name].estimate, _bubble(figure, name, model, averages[name].estimate.mean, *costs)
            bubble["name"] += "" if name in part.rows else NOT_IN_PAPER
            if ours.interval is not None:
                bubble |= {key: [round(end, DIGITS)] for key, end in zip(("low", "high"), ours.interval, strict=True)}
            bubbles.append(bubble)
    failed = [f"{row_name(name)} ({mean.failure_text})" for name, mean in averages.items() if mean.failures]
    seeds = sorted(len(mean.by_seed) for mean in averages.values())
    bars = "; bars: 95 % intervals" if max(seeds, default=0) >= MIN_SEEDS else ""
    notes = [
        f"{hardware}.",
        *([f"Seeds: {span(seeds)} per row{bars}.", *HOW] if seeds else []),
        *(note for reason, rows in reasons.items() for note in _named(reason, rows)),
        *_named("Failed seeds, not in the mean", failed),
        *_named(
            "TEST LEAK, checkpoint chosen on the test split", [name for name, mean in averages.items() if mean.leak]
        ),
        *_named(
            f"Not drawn, because the reference {row_name(reference or figure.reference)} has no score",
            [] if reference in averages else averages,
        ),
        *_named("Not run", [label for label in part.rows if label not in seen]),
    ]
    if any(bubble["name"].endswith(NOT_IN_PAPER) for bubble in bubbles):
        notes.append(f"{NOT_IN_PAPER} not in the paper.")
    return _bubble_panel(figure, title, bubbles, notes)


def _has_costs(scores: Sequence[Sequence[Score]]) -> bool:
    return all(getattr(score, key) for part in scores for score in part for key in COSTS)


def _reason_left_out(columns: Sequence[str], scores: Sequence[Sequence[Score]]) -> str:
    """Why a row has no bubble. `scores`: of the row, by column."""
    missing, several = [], []
    for column, of_column in zip(columns, scores, strict=True):
        if not any(score.by_seed for score in of_column):
            failures = ", ".join(score.failure_text for score in of_column if score.failure_text)
            missing.append(f"{column} ({failures})" if failures else column)
        elif len(of_column) > 1 or of_column[0].setting:
            several.append(column)
    if missing:
        return f"Without {', '.join(missing)}"
    if several:
        return f"Changed settings in {', '.join(several)}"
    return "No seed ended in every column" if _has_costs(scores) else "Without speed and memory"


def _named(message: str, names: Iterable[str]) -> list[str]:
    """A note that ends with these names; none without a name."""
    shown = ", ".join(map(row_name, names)).rstrip(".")
    return [f"{message}: {shown}."] if shown else []
