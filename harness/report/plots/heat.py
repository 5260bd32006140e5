"""The heat map of a table of every model: its rows by the columns that rank, each score from control to reference."""

from collections.abc import Sequence
from typing import Any

from harness.report.pages.answer import ColumnAnswer
from harness.report.scores.places import SHARE

CAPTION = "0: the control of a column, 1: its reference; grey: not run."
DIGITS = 2  # of the numbers in the squares


def data(title: str, answers: Sequence[ColumnAnswer]) -> dict[str, Any]:
    """As `rates.draw` takes it: rows with the most scores first, of these the highest means, the control last. Of the
    columns of one ability, the first one that ranks its rows is shown; a single one has no heat map."""
    columns: dict[str, dict[str, float]] = {}
    abilities: set[str] = set()
    sides: set[str] = set()
    for answer in answers:
        name, spec, tests = answer.group.column, answer.spec, answer.tests
        ability = spec.columns[name].ability or name
        if tests.ranks and answer.group.budget == spec.budget and ability not in abilities:
            abilities.add(ability)
            sides |= {tests.control.row, tests.reference.row}
            low, high = tests.control.estimate.mean, tests.reference.estimate.mean
            scores = [(score.row, score.estimate.mean) for score in answer.group.scores if score.is_plain]
            columns[name] = {row: round((mean - low) / (high - low), DIGITS) + 0.0 for row, mean in scores}
    by_row = {row: [of_rows.get(row) for of_rows in columns.values()] for row in set().union(*columns.values())}

    def key(row: str) -> tuple[bool, int, float, str]:
        scores = [score for score in by_row[row] if score is not None]
        return not any(scores), -len(scores), -sum(scores) / len(scores), row

    rows = sorted(by_row, key=key)
    near = {
        name: [score >= 1 - SHARE for row, score in of_rows.items() if row not in sides]
        for name, of_rows in columns.items()
    }
    hardest = min(near, key=lambda name: sum(near[name]) / max(1, len(near[name])), default="")
    reached = f"{sum(near.get(hardest, ()))} of {len(near.get(hardest, ()))} models"
    grid = {"columns": list(columns), "values": [by_row[row] for row in rows], "limits": [0, 1]}
    return {
        "title": f"{hardest}: {reached} come within a tenth of the reference, fewer than in other columns",
        "subtitle": f"{title} · {CAPTION}",
        "rows": rows,
        "panels": [{"title": "", "bold": [], "chosen": [], "failed": []} | grid] if len(columns) > 1 else [],
    }
