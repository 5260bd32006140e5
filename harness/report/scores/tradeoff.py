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
from math import exp, fsum, isnan, log
from typing import TYPE_CHECKING, Any

from harness.config.model_names import model_names, row_name
from harness.errors import UsageError
from harness.records import ledger
from harness.report.scores.lines import DIGITS, Panel
from harness.report.scores.scores import Score, average, limits_of, score_rows
from harness.report.scores.select import by_sources, describe_sources, select
from harness.report.spec.figure import FigureSpec, LedgerColumn, PaperCosts
from harness.report.spec.table import TableSpec
from harness.report.stats.seeds import MIN_SEEDS

if TYPE_CHECKING:
    import pandas as pd

NOT_IN_PAPER = "*"  # behind the name of a model that the table lacks


def _bubble_panel(figure: FigureSpec, title: str, series: Sequence[dict[str, Any]], notes: Sequence[str]) -> Panel:
    """A bubble is a series of one point, its `size` the memory. Speed and memory of the reference are 1."""
    reference = model_names([figure.reference])[figure.reference]
    panel = {"title": title, "x": f"speed relative to {reference}", "log_x": False, "log_y": False}
    return panel | {"y": f"{figure.accuracy}, {figure.table.unit}", "series": list(series), "notes": list(notes)}


def _bubble(
    name: str,
    model: str,
    role: str,
    accuracy: float,
    speed: float,
    memory: float,
    interval: tuple[float, float] | None = None,
) -> dict[str, Any]:
    """`accuracy`: in the table's unit; `interval`: its 95 % interval if there are seeds enough for one.

    `role`: own, reference, or nothing.
    """
    series = {"name": row_name(name), "model": model, "role": role}
    series |= {key: [round(value, DIGITS)] for key, value in (("x", speed), ("y", accuracy), ("size", memory))}
    if interval is not None:
        series |= {key: [round(end, DIGITS)] for key, end in zip(("low", "high"), interval, strict=True)}
    return series


def panels(figure: FigureSpec, cells: "pd.DataFrame", paper_root: str | os.PathLike[str]) -> list[Panel]:
    """The paper's panel if it has one, then ours; at least one of ours, empty where nothing can stand in it.

    `cells`: the frame of all records.
    """
    theirs = [_paper_panel(figure, figure.paper, paper_root)] if figure.paper else []
    every = list(_measured_panels(figure, cells))
    ours = [panel for panel in every if panel["series"]]
    return theirs + (ours or [_empty_panel(figure, every)])


def _paper_panel(figure: FigureSpec, paper: PaperCosts, root: str | os.PathLike[str]) -> Panel:
    entries = ledger.entries(paper.ledger, root)
    numbers = {}
    for key in ("speed", "memory"):
        column: LedgerColumn = getattr(paper, key)
        key_of_column = (column.column, column.condition)
        printed = [entry for entry in entries if (entry["column"], entry["condition"]) == key_of_column]
        numbers[key] = {entry["row"]: entry["number"] for entry in printed if not isnan(entry["number"])}
        if not numbers[key]:
            raise UsageError(f"figure {figure.name}: {paper.ledger}.csv has no {column.column}, {column.condition}")
    bubbles, absent = [], []
    for label in figure.table.rows:
        if figure.table.is_ours(label):
            continue
        published, row = figure.table.published.get((label, figure.accuracy)), paper.rows.get(label, label)
        if published and row in numbers["speed"] and row in numbers["memory"]:
            model = figure.table.rows[label].model
            costs = numbers["speed"][row], numbers["memory"][row]
            bubbles.append(_bubble(label, model, _role(figure, label, model), published.number, *costs))
        else:
            absent.append(label)
    notes = [f"{paper.source}."]
    if absent:
        notes.append(_names_after("Without speed and memory in the paper", absent))
    return _bubble_panel(figure, "The paper's numbers", bubbles, notes) | {"published": True}


def _measured_panels(figure: FigureSpec, cells: "pd.DataFrame") -> Iterator[Panel]:
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
    figure: FigureSpec, part: TableSpec, title: str, hardware: str, columns: "Mapping[str, pd.DataFrame]"
) -> Panel:
    measured = {column: score_rows(cells, limits=limits_of(part.columns[column])) for column, cells in columns.items()}
    seen = {score.row for scores in measured.values() for score in scores}
    names = [*(label for label in part.rows if label in seen), *sorted(seen - set(part.rows))]
    by_row = {name: [_recipe_scores(scores, name) for scores in measured.values()] for name in names}
    averages = {name: mean for name, cells in by_row.items() if _has_costs(cells) and (mean := average(cells))}
    reference = part.row_of_model(figure.reference)
    bubbles, reasons = [], {}
    for name in names:
        if name not in averages:
            reasons.setdefault(_reason_left_out(measured, by_row[name]), []).append(name)
        elif reference in averages:
            is_in_table = name in part.rows
            label, model = (name, part.rows[name].model) if is_in_table else (f"{row_name(name)}{NOT_IN_PAPER}", name)
            estimate, role = averages[name].estimate, _role(figure, name, model)
            ratios = [_ratio(by_row[name], by_row[reference], key) for key in ("examples_per_s", "peak_memory_mb")]
            bubbles.append(_bubble(label, model, role, estimate.mean, *ratios, estimate.interval))
    notes = [f"{hardware}.", *_cost_notes([averages[name] for name in names if name in averages])]
    notes += [_names_after(reason, rows) for reason, rows in reasons.items()]
    if failed := [f"{row_name(name)} ({mean.failure_text})" for name, mean in averages.items() if mean.failures]:
        notes.append(_names_after("Failed seeds, not in the mean", failed))
    if leaks := [name for name, mean in averages.items() if mean.leak]:
        notes.append(_names_after("TEST LEAK, checkpoint chosen on the test split", leaks))
    if averages and reference not in averages:
        notes.append(
            _names_after(
                f"Not drawn, because the reference {row_name(reference or figure.reference)} has no score", averages
            )
        )
    if idle := [label for label in part.rows if label not in seen]:
        notes.append(_names_after("Not run", idle))
    if any(bubble["name"].endswith(NOT_IN_PAPER) for bubble in bubbles):
        notes.append(f"{NOT_IN_PAPER} not in the paper.")
    return _bubble_panel(figure, title, bubbles, notes)


def _empty_panel(figure: FigureSpec, incomplete: Sequence[Panel]) -> Panel:
    """Ours without a bubble: what is missing, and the command that makes it."""
    table, parts = figure.table.name, ", ".join(figure.parts)
    notes = [
        f"No bubble of ours yet: no row has a score in each of {parts} at one budget, on one machine and data.",
        f"Command: python run.py table={table} budget=reduced",
    ]
    for panel in incomplete:
        title = panel["title"].removeprefix("Ours: ").replace("\n", ", ")
        notes.append(f"So far, {title}: {' '.join(panel['notes'])}")
    return _bubble_panel(figure, "Ours", [], notes)


def _recipe_scores(scores: Sequence[Score], row: str) -> list[Score]:
    """The scores of a row; of the unchanged recipe alone, if there is one."""
    of_row = [score for score in scores if score.row == row]
    return [score for score in of_row if not score.setting] or of_row


def _has_costs(cells: Sequence[Sequence[Score]]) -> bool:
    return all(score.examples_per_s and score.peak_memory_mb for part in cells for score in part)


def _reason_left_out(measured: Mapping[str, Sequence[Score]], cells: Sequence[Sequence[Score]]) -> str:
    """Why a row has no bubble."""
    missing, several = [], []
    for column, scores in zip(measured, cells, strict=True):
        if not any(score.by_seed for score in scores):
            failures = ", ".join(score.failure_text for score in scores if score.failure_text)
            missing.append(f"{column} ({failures})" if failures else column)
        elif len(scores) > 1 or scores[0].setting:
            several.append(column)
    if missing:
        return f"Without {', '.join(missing)}"
    if several:
        return f"Changed settings in {', '.join(several)}"
    return "Without speed and memory" if not _has_costs(cells) else "No seed ended in every column"


def _ratio(cells: Sequence[Sequence[Score]], base: Sequence[Sequence[Score]], key: str) -> float:
    """Geometric mean over the columns."""
    pairs = [(getattr(ours[0], key), getattr(theirs[0], key)) for ours, theirs in zip(cells, base, strict=True)]
    return exp(fsum(log(ours / theirs) for ours, theirs in pairs) / len(pairs))


def _cost_notes(scores: Sequence[Score]) -> list[str]:
    counts = sorted({len(score.by_seed) for score in scores})
    if not counts:
        return []
    span = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else f"{counts[0]}"
    bars = "; bars: 95 % intervals" if counts[-1] >= MIN_SEEDS else ""
    return [
        f"Seeds: {span} per row{bars}.",
        "Speed: training examples/s as recorded; other processes may have shared the machine.",
        "Memory: peak of the process (CPU) or its allocations (GPU).",
    ]


def _names_after(message: str, names: Iterable[str]) -> str:
    return f"{message}: {', '.join(map(row_name, names)).rstrip('.')}."


def _role(figure: FigureSpec, label: str, model: str) -> str:
    if label in figure.own:
        return "own"
    return "reference" if model == figure.reference else ""
