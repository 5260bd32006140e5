"""One page with every column that ranks rows: control, resolution, rows above the strongest simple predictor."""

from collections.abc import Sequence
from pathlib import Path

from harness.report.pages.answer import ColumnAnswer, baseline_name
from harness.report.render.markdown import document, escape, grid
from harness.report.stats.seeds import p_value

HEADER = (
    *("table", "column", "budget", "rows", "searched", "p of reference and control", "R"),
    *("strongest baseline", "rows above it"),
)
INTRODUCTION = """\
Every column of scores, at every budget. p: of the paired difference between reference and control, corrected for
all tests of the column. R: that difference over the half-width of its interval; a column with R below 4
cannot rank rows, and neither can one whose reference or control has no searched learning rate. Searched: the rows
whose learning rate was searched and is not at the end of its grid; a dash where budget or table state no search.
The strongest baseline is the simple predictor with the best score on the validation split; its score here is that on
the test split. A dash: none was fitted, or none has a validation score. The last column counts the rows with a better
mean."""
NONE = "–"
Entry = tuple[str, Sequence[ColumnAnswer]]  # name of a table, its answered columns


def pages(tables: Sequence[Entry], folder: Path) -> dict[Path, str]:
    """{path: Markdown}; none if no column was run."""
    if not (rows := [line_of(name, answer) for name, answers in tables for answer in answers]):
        return {}
    lines = [*grid(HEADER, rows, "lllrrrrlr"), "", INTRODUCTION]
    return {folder / "columns.md": document("All columns: control, resolution, strongest baseline", lines)}


def line_of(name: str, answer: ColumnAnswer) -> list[str]:
    """The entries of one column, as in HEADER."""
    tests, group = answer.tests, answer.group
    strongest, above = NONE, NONE
    if group.strongest is not None:
        strongest = f"{escape(baseline_name(group.strongest.row))} {group.strongest.number(answer.decimals)}"
        above = f"{answer.rows_above} of {tests.rows}"
    # of reference and control alone, as they are tested first
    pair = tests.pair(tests.reference.key, tests.control.key) if tests.reference and tests.control else None
    p = escape(tests.untested or tests.missing or "no test") if pair is None else p_value(pair.p)
    searched = NONE if group.comparable or not answer.spec.search else str(tests.rows - len(tests.unsearched))
    names = (f"[{escape(name)}]({name}.md)", escape(answer.name_and_data), group.budget, str(tests.rows), searched)
    return [*names, p, answer.resolution, strongest, above]
