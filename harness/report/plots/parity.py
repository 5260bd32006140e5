"""Published scores against ours at the paper's budget: one picture of all tables, on the page of agreements."""

from collections.abc import Sequence
from pathlib import Path

from harness.report.plots import style
from harness.report.plots.file import Plot
from harness.report.plots.lines import draw
from harness.report.render.layout import Table
from harness.report.render.words import counted
from harness.report.spec.parts import Kind

FEWEST = 3  # points of a picture
TITLE = "Published scores against ours at the paper's budget"
FILE = "parity.png"


def plot(tables: Sequence[Table], figures: Path) -> Plot:
    """A point for each published score with a run that may be compared with it; it is on the line where both agree."""
    rows = [row for table in tables for row in table.tidy if row["kind"] == Kind.SCORE and row["delta"]]
    ours = [float(row["ours_mean"]) for row in rows]
    theirs = [mean - float(row["delta"]) for mean, row in zip(ours, rows, strict=True)]
    series = [
        {"name": f"{row['table']}: {row['row']}, {row['column']}", "model": row["row"], "role": "", "x": [x], "y": [y]}
        for row, x, y in zip(rows, theirs, ours, strict=True)
    ]
    ends = [min(theirs + ours, default=0), max(theirs + ours, default=0)]
    series.append({"name": "equal", "model": "no_mixing", "role": "", "x": ends, "y": ends, "marked": False})
    labels = {"x": "published", "y": "ours", "log_x": True, "log_y": True}
    panel = {"title": "", **labels, "series": series if len(rows) >= FEWEST else [], "notes": []}
    panels = style.with_looks([panel])
    return Plot(
        {"title": f"{TITLE}: {counted(len(rows), 'score')}", "panels": panels}, draw, (figures / FILE,), dpi=130
    )


def section(made: Plot) -> str:
    """Markdown for the end of a page in the folder of tables."""
    shown = f"![{made.data['title']}](../figures/{FILE})"
    why = f"{made.data['title']}. A picture needs {FEWEST}."
    return f"\n## {TITLE}\n\n{why if made.shows_nothing else shown}\n"
