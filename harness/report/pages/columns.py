"""One page with every column that was run: control, resolution, and the rows above the strongest simple predictor."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from harness.report.pages.answer import ColumnAnswer, baseline_name
from harness.report.render.markdown import escape
from harness.report.stats.seeds import p_value

HEADER = ("table", "column", "budget", "rows", "p of reference and control", "R", "strongest baseline", "rows above it")
INTRODUCTION = """\
Every column that ranks rows, at every budget. p: of the paired difference between reference and control, corrected for
all tests of the column. R: that difference over the half-width of its interval; a column with R below 4 ranks nothing.
The strongest baseline is the simple predictor with the best score on the validation split; its score here is that on
the test split. The last column counts the rows with a better mean."""
NONE = "–"


def page(tables: Iterable[tuple[str, Sequence[ColumnAnswer]]]) -> str:
    """Markdown. `tables`: name and answered columns of each table."""
    lines = [
        "<!-- Made from the records by `python run.py do=report table=all`; changes are lost. -->",
        "# All columns: control, resolution, strongest baseline",
        "",
        INTRODUCTION,
        "",
        f"| {' | '.join(HEADER)} |",
        f"| --- | --- | --- |{' ---: |' * 3} --- | ---: |",
    ]
    lines += [f"| {' | '.join(line_of(name, answer))} |" for name, answers in tables for answer in answers]
    return "\n".join(lines) + "\n"


def pages(tables: Iterable[tuple[str, Sequence[ColumnAnswer]]], folder: Path) -> dict[Path, str]:
    """{path: Markdown}; none if no column was run."""
    answered = [(name, answers) for name, answers in tables if answers]
    return {folder / "columns.md": page(answered)} if answered else {}


def line_of(name: str, answer: ColumnAnswer) -> list[str]:
    """The entries of one column, as in HEADER."""
    tests, group = answer.tests, answer.group
    strongest, above = "not fitted", NONE
    if group.strongest is not None:
        strongest = f"{escape(baseline_name(group.strongest.row))} {group.strongest.number(answer.decimals)}"
        above = f"{answer.rows_above} of {tests.rows}"
    link = f"[{escape(name)}]({name}.md)"
    names = (link, escape(answer.name), group.budget, str(tests.rows))
    return [*names, p_of_control(answer), answer.resolution, strongest, above]


def p_of_control(answer: ColumnAnswer) -> str:
    """Corrected, if the pair is a hypothesis of the column; without a test the reason."""
    tests = answer.tests
    pair = tests.pair(tests.reference.key, tests.control.key) if tests.reference and tests.control else None
    if pair is None:
        return escape(tests.untested or tests.missing or "no test")
    return p_value(pair.shown_p)
