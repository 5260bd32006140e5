"""One page of what was not run: tables without any run of ours and figures without numbers, each with its cost and the
command that makes it."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from harness.report.render.markdown import GENERATED, escape, grid
from harness.report.spec.figure import PendingFigure
from harness.report.spec.table import TableSpec

FILE = "not_run.md"
HEAD = f"""\
{GENERATED}
# Not run, with its cost

No number of ours stands in these tables and figures yet. GPU-hours are those of the paper's recipe: one seed of all
rows and columns, as the table's yaml estimates them. The command runs the smaller budget first."""


def pages(
    tables: Iterable[TableSpec], figures: Iterable[tuple[Any, Mapping[str, Any]]], folder: Path
) -> dict[Path, str]:
    """{path: Markdown}; none if all was run. `tables`: those without a run; `figures`: with what they would draw."""
    rows = [_table_row(spec) for spec in tables]
    drawn = [_figure_row(figure, data) for figure, data in figures]
    if not rows and not drawn:
        return {}
    lines = [HEAD, "", *grid(("table", "GPU-hours", "command"), rows, "lrl")]
    if drawn:
        lines += ["", "## Figures", "", *grid(("figure", "needs", "command"), drawn, "lll")]
    return {folder / FILE: "\n".join(lines) + "\n"}


def _table_row(spec: TableSpec) -> tuple[str, str, str]:
    columns = [name for name, column in spec.columns.items() if column.task]
    hours = sum(spec.hours_of([name for name in columns if spec.has(row, name)]) for row in spec.rows)
    cost = f"{hours:,.0f} ({escape(spec.gpu)})" if hours else "–"
    command = f"`python run.py table={spec.name} budget=reduced`"
    return f"[{escape(spec.title)}]({spec.name}.md)", cost, command


def _figure_row(figure: Any, data: Mapping[str, Any]) -> tuple[str, str, str]:
    notes = [note for panel in data["panels"] for note in panel["notes"]]
    commands = [note[note.index("python run.py") :] for note in notes if "python run.py" in note]
    needs = figure.needs if isinstance(figure, PendingFigure) else "runs or measurements of its rows"
    command = f"`{commands[0]}`" if commands else "–"
    return escape(figure.title), escape(needs), command
