"""What a report of several tables prints at its end: columns that can rank, resolved pairs and cost."""

from collections.abc import Sequence

from harness.records.collect import Cells
from harness.report.pages.answer import ColumnAnswer
from harness.report.render.words import cost
from harness.report.scores.comparison import ENOUGH


def lines(answers: Sequence[ColumnAnswer], cells: Cells) -> list[str]:
    """`answers`: the columns of these tables; `cells`: the frame of all records, each once, trials of searches too."""
    if not answers:
        return ["no column has a run yet: python run.py table=all budget=reduced"]
    tests = [answer.tests for answer in answers]
    shares = {
        f"columns with R ≥ {ENOUGH:g}": (sum(test.is_clear for test in tests), len(tests)),
        "that rank rows": (sum(test.ranks for test in tests), len(tests)),
        "pairs resolved": (sum(test.resolved for test in tests), sum(test.possible for test in tests)),
    }
    hours = cost(*(float(cells[key].astype(float).sum()) for key in ("core_hours", "gpu_hours")))
    return [
        "; ".join(
            f"{name}: {part:,} of {whole:,} ({100 * part / max(whole, 1):.0f} %)"
            for name, (part, whole) in shares.items()
        ),
        *([f"cost of {len(cells):,} records: {hours}"] if hours else []),
    ]
