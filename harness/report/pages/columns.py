"""One page with every column that was run: control, resolution, and the rows above the strongest simple predictor."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from harness.report.pages.answer import ColumnAnswer
from harness.report.render.markdown import escape
from harness.report.scores.comparison import BASELINE
from harness.report.stats.seeds import significant

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
    strongest, above = NONE, NONE
    if group.strongest is not None:
        label = group.strongest.row.removeprefix(BASELINE)
        strongest = f"{escape(label)} {group.strongest.number(answer.decimals)}"
        above = f"{rows_above(answer)} of {tests.rows}"
    link = f"[{escape(name)}]({name}.md)"
    names = (link, escape(answer.name), group.budget, str(tests.rows))
    return [*names, p_of_control(answer), answer.resolution, strongest, above]


def p_of_control(answer: ColumnAnswer) -> str:
    tests = answer.tests
    if tests.reference is None or tests.control is None:
        return NONE
    pair = tests.pair(tests.reference.key, tests.control.key)
    if pair is None:
        return NONE
    return "< 0.001" if pair.p_holm < 0.001 else significant(pair.p_holm, 2)


def rows_above(answer: ColumnAnswer) -> int:
    """The number of rows whose mean is better than that of the strongest baseline."""
    higher, limit = answer.group.resolved.higher_is_better, answer.group.strongest.estimate.mean
    means = [score.estimate.mean for score in answer.group.scores if score.by_seed]
    return sum(mean > limit if higher else mean < limit for mean in means)
