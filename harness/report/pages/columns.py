"""One page with every column that ranks rows: control, resolution, and the rows above the strongest simple predictor.

A column without a run stands there with its reason.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from harness.report.pages.answer import ColumnAnswer, baseline_name
from harness.report.pages.not_run import Waiting
from harness.report.pages.notes import why_none_is_strongest
from harness.report.render.markdown import document, escape, grid
from harness.report.stats.grouping import grouped
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
the test split. The last column counts the rows with a better mean. "None chosen": the simple predictors are scored on
the test split alone, so no validation score says which one is the strongest."""
WAITING_HEADER = ("table", "columns", "budget", "why")
NONE, NO_REASON = "–", "no run yet"
Entry = tuple[str, Sequence[ColumnAnswer], Sequence[Waiting]]  # name, answered and waiting columns of a table


def page(tables: Sequence[Entry]) -> str:
    """Markdown."""
    rows = [line_of(name, answer) for name, answers, _ in tables for answer in answers]
    lines = [*grid(HEADER, rows, "lllrrrrlr"), "", INTRODUCTION]
    if waiting := [line for name, _, waits in tables for line in waiting_lines(name, waits)]:
        lines += ["", "## Columns without a run", "", *grid(WAITING_HEADER, waiting, "llll")]
    return document("All columns: control, resolution, strongest baseline", lines)


def pages(tables: Sequence[Entry], folder: Path) -> dict[Path, str]:
    """{path: Markdown}; none if no column was run."""
    return {folder / "columns.md": page(tables)} if any(answers for _, answers, _ in tables) else {}


def line_of(name: str, answer: ColumnAnswer) -> list[str]:
    """The entries of one column, as in HEADER."""
    tests, group = answer.tests, answer.group
    strongest, above = escape(why_none_is_strongest(group)), NONE
    if group.strongest is not None:
        strongest = f"{escape(baseline_name(group.strongest.row))} {group.strongest.number(answer.decimals)}"
        above = f"{answer.rows_above} of {tests.rows}"
    # of reference and control alone, as they are tested first
    pair = tests.pair(tests.reference.key, tests.control.key) if tests.reference and tests.control else None
    p = escape(tests.untested or tests.missing or "no test") if pair is None else p_value(pair.p)
    searched = NONE if group.comparable or not answer.spec.search else str(tests.rows - len(tests.unsearched))
    names = (_link(name), escape(answer.name_and_data), group.budget, str(tests.rows), searched)
    return [*names, p, answer.resolution, strongest, above]


def waiting_lines(name: str, waits: Iterable[Waiting]) -> list[list[str]]:
    """The entries of the columns without a run, as in WAITING_HEADER: a line per protocol and reason."""
    alike = grouped(((wait.where, wait.why), escape(wait.column)) for wait in waits if not wait.rows)
    return [
        [_link(name), " · ".join(columns), where, escape(why or NO_REASON)] for (where, why), columns in alike.items()
    ]


def _link(name: str) -> str:
    return f"[{escape(name)}]({name}.md)"
