"""What was not run: one page of the tables without any run of ours and of figures without numbers, each with its cost
and the command that makes it; and the columns of a table that wait for runs, of all rows or of some, and why."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from harness.config.model_names import row_name
from harness.report.render.markdown import document, escape, grid
from harness.report.render.words import joined
from harness.report.scores.groups import ProtocolResults
from harness.report.spec.figure import PendingFigure
from harness.report.spec.table import TableSpec
from harness.report.stats.grouping import grouped

FILE = "not_run.md"
HEAD = """\
No number of ours stands in these tables and figures yet. GPU-hours are those of the paper's recipe: one seed of all
rows and columns, as the table's yaml estimates them. The command runs the smaller budget first."""


def pages(
    tables: Iterable[TableSpec], figures: Iterable[tuple[Any, Mapping[str, Any]]], folder: Path
) -> dict[Path, str]:
    """{path: Markdown}; none if all was run. `tables`: those without a run; `figures`: with what they would draw."""
    rows = [
        (
            f"[{escape(spec.title)}]({spec.name}.md)",
            f"{hours:,.0f} ({escape(spec.gpu)})" if (hours := spec.all_hours()) else "–",
            f"`python run.py table={spec.name} budget=reduced`",
        )
        for spec in tables
    ]
    drawn = [_figure_row(figure, data) for figure, data in figures]
    if not rows and not drawn:
        return {}
    lines = [HEAD, "", *grid(("table", "GPU-hours", "command"), rows, "lrl")]
    if drawn:
        lines += ["", "## Figures", "", *grid(("figure", "needs", "command"), drawn, "lll")]
    return {folder / FILE: document("Not run, with its cost", lines)}


def _figure_row(figure: Any, data: Mapping[str, Any]) -> tuple[str, str, str]:
    notes = [note for panel in data["panels"] for note in panel["notes"]]
    commands = [note[note.index("python run.py") :] for note in notes if "python run.py" in note]
    needs = figure.needs if isinstance(figure, PendingFigure) else "runs or measurements of its rows"
    command = f"`{commands[0]}`" if commands else "–"
    return escape(figure.title), escape(needs), command


class Waiting(NamedTuple):
    """A column that ranks rows. `where`: `reduced budget, protocol google`. `rows`: those without a run; empty if no
    row has one. `why`: `waits:` of the column."""

    column: str
    where: str
    rows: tuple[str, ...]
    why: str


def waiting_columns(results: Iterable[ProtocolResults]) -> list[Waiting]:
    """A column with runs waits only if its table says why, because many rows may be left out on purpose."""
    results, waits = list(results), []
    for result in results:
        spec = result.spec
        where = f"{spec.budget} budget" + (f", protocol {spec.protocol}" if len(results) > 1 else "")
        groups = [group for group in result.measured if group.budget == spec.budget]
        ran = grouped((group.column, score.row) for group in groups for score in group.scores)
        for name, column in spec.columns.items():
            rows = () if spec.every else [row for row in spec.rows if spec.has(row, name)]
            missing = tuple(row for row in rows if row not in ran.get(name, ()))
            if column.ranks and (name not in ran or (column.waits and missing)):
                waits.append(Waiting(name, where, missing if name in ran else (), column.waits))
    return waits


def waiting_sentences(waits: Sequence[Waiting]) -> list[str]:
    """`No run yet at the reduced budget: Text, Pathfinder.`, one sentence per reason, and one per column with rows."""
    alike = grouped(((wait.where, wait.why), wait.column) for wait in waits if not wait.rows)
    said = [(f"No run yet at the {where}: {joined(names)}.", why) for (where, why), names in alike.items()]
    for wait in waits:
        if wait.rows:
            rows = ", ".join(map(row_name, wait.rows))
            said.append((f"{wait.column}: no run yet at the {wait.where} of {rows}.", wait.why))
    return [f"{text} Why: {why}." if why else text for text, why in said]
