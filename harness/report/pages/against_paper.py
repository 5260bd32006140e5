"""Our ordering of the rows of a column against the paper's, as a sentence."""

from collections.abc import Sequence

from harness.report.scores.groups import Group
from harness.report.spec.table import TableSpec
from harness.report.stats.ordering import agreement, told_apart


def ordering(spec: TableSpec, group: Group) -> str:
    """Our ordering against the paper's, over rows of the paper that have a score here in one configuration."""
    single = [score for score in group.scores if score.by_seed and not score.setting]
    ours = {score.row: score.estimate.mean for score in single if score.row in spec.rows}
    theirs = {row: number.number for (row, column), number in spec.published.items() if column == group.column}
    result = agreement(ours, theirs)
    start = "Ordering against the paper's column: Kendall τ"
    if result.tau is None:
        return f"{start} {result.note}."
    shown = f"{start} = {result.tau:.2f} over {result.rows} shared rows (permutation test: p = {result.p:.2g})."
    return f"{shown} {_published_resolution(spec, group.column, sorted(set(ours) & set(theirs)))}"


def _published_resolution(spec: TableSpec, column: str, rows: Sequence[str]) -> str:
    """How many of the paper's own pairs its noise lets one tell apart."""
    errors = [spec.published_error(row, column) for row in rows]
    if any(error is None for error in errors):
        return "The noise of the paper's numbers is not known."
    numbers = [(spec.published[row, column].number, error) for row, error in zip(rows, errors, strict=True)]
    apart, pairs = told_apart(numbers)
    source = "the noise that the table states"
    if spec.published_noise is None:
        source = "the binomial noise of the test set alone"
    return f"The paper's own numbers, of one seed, tell at most {apart} of these {pairs} pairs apart at 5 % ({source})."
