"""The first lines of a page: on which data, how far the columns can be trusted, and who leads; `Table.lead` shows those
that fit."""

from collections import Counter
from collections.abc import Sequence

from harness.report.pages.answer import ColumnAnswer, answers
from harness.report.pages.caveats import data_lines, is_shared
from harness.report.pages.not_run import Waiting
from harness.report.render.words import capitalized, counted, listed
from harness.report.scores.groups import ProtocolResults
from harness.report.stats.grouping import grouped


def headline(results: Sequence[ProtocolResults], waits: Sequence[Waiting]) -> tuple[str, ...]:
    """The most important line first. Of several budgets, the one with the most columns that rank rows is described.

    Empty if no column ranks rows by their scores.
    """
    if not (columns := answers(results)):
        counts = Counter(wait.where.partition(",")[0] for wait in waits).items()
        return tuple(f"No run yet at the {where} ({counted(count, 'column')})." for where, count in counts)
    by_budget = grouped((answer.group.budget, answer) for answer in columns)
    budget, columns = max(by_budget.items(), key=lambda part: sum(answer.tests.ranks for answer in part[1]))
    groups = [part for answer in columns for part in answer.group.parts.values() or [answer.group]]
    sources = listed(list(dict.fromkeys(group.source.partition(":")[0] for group in groups)))
    leaks = [answer.name for answer in columns if any(score.leak for score in answer.group.scores)]
    setting = f"{capitalized(budget)} budget, {sources} data" + (f", test leak in {listed(leaks)}" if leaks else "")
    data = data_lines(results) if is_shared(results) else []
    if len(columns) == 1:
        baseline = columns[0].baseline()
        return (*data, f"{setting}, {columns[0].short}", *([capitalized(f"{baseline}.")] if baseline else []))
    count = sum(answer.tests.ranks for answer in columns)
    first = f"{setting}: {count or 'none'} of {counted(len(columns), 'column')} {'rank' if count > 1 else 'ranks'} rows"
    if below := sum(answer.group.strongest is not None and not answer.rows_ahead for answer in columns):
        first += f"; no row beats the simple predictors in {below}"
    reasons = dict.fromkeys(answer.tests.why_not for answer in columns if answer.tests.ranks_nothing)
    why = [] if count or not reasons else [f"Why: {', or '.join(reasons)}."]
    hidden = _parts_of_means(columns)
    shown = [answer.short for answer in columns if answer.tests.ranks and answer.name not in hidden]
    return (*data, f"{first}.", *why, *shown)


def _parts_of_means(columns: Sequence[ColumnAnswer]) -> set[str]:
    """Columns that no paper prints and whose mean has its own sentence."""
    means = {answer.group.column for answer in columns}
    averages = [(name, mean, answer.spec) for answer in columns for name, mean in answer.spec.averages.items()]
    return {part for name, mean, spec in averages if name in means for part in mean.parts if part in spec.unpublished}
