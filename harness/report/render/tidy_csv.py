"""The long CSV: one row per published or measured number, for whoever computes further."""

import csv
import io

from harness.report.describe import judge
from harness.report.layout import TIDY, Table
from harness.report.score import Score
from harness.report.spec import Spec


def tidy_row(
    spec: Spec,
    label: str,
    column: str,
    score: Score | None,
    *,
    budget: str,
    source: str,
    beside_paper: bool,
    level: float | None,
) -> dict[str, str]:
    """`paper_value`, `delta` and `verdict` are empty unless the run may stand beside the paper's number.

    `level`: the column's chance level, in the table's unit.
    """
    printed = spec.printed.get((label, column)) if beside_paper else None
    ours = score.estimate if score else None
    notes = list(spec.all_notes(label, column)) if printed else []
    notes += ["not in the paper"] * spec.is_ours(label)
    if score is not None:
        notes += ["test leak"] * score.leak
        notes += [score.setting] if score.setting else []
    row = {
        "paper": spec.paper,
        "table": spec.name,
        "row": label,
        "column": column,
        "budget": budget,
        "source": source,
        "paper_value": printed.text if printed else "",
        "ours_mean": _number(ours.mean if ours else None),
        "ours_ci": _number(ours.half_width if ours else None),
        "n": str(ours.n if ours else 0),
        "delta": _number(ours.mean - printed.number if ours and printed else None),
        "verdict": judge(spec, printed, score),
        "chance": _number(level),
        "status": score.status if score else "not run",
        "notes": "; ".join(notes),
    }
    return {key: row[key] for key in TIDY}


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def render(table: Table) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, TIDY, lineterminator="\n")
    writer.writeheader()
    writer.writerows(table.tidy)
    return text.getvalue()
