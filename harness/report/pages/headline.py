"""The first lines of a page: on which data, how far the columns can be trusted, and who leads.

`Table.lead` shows those that fit; `answer.sentences` says all of it below the tables.
"""

from collections import Counter
from collections.abc import Sequence

from harness.errors import agreeing
from harness.report.pages.answer import ColumnAnswer, answers, parts_of_means
from harness.report.pages.caveats import data_lines, is_shared
from harness.report.pages.not_run import Waiting
from harness.report.render.words import capitalized, counted, listed
from harness.report.scores.groups import ProtocolResults
from harness.report.stats.grouping import grouped

SHOWN = 3  # names of columns in a sentence


def headline(results: Sequence[ProtocolResults], waits: Sequence[Waiting]) -> tuple[str, ...]:
    """The most important line first. Of several budgets, the one with the most columns that rank rows is described.

    Empty if no column ranks rows by their scores.
    """
    if not (columns := answers(results)):
        counts = Counter(column.budget for column in waits).items()
        return tuple(f"No run yet at the {budget} budget ({counted(count, 'column')})." for budget, count in counts)
    by_budget = grouped((answer.group.budget, answer) for answer in columns)
    budget, columns = max(by_budget.items(), key=lambda part: sum(answer.tests.ranks for answer in part[1]))
    data = data_lines(results) if is_shared(results) else []
    if len(columns) == 1:
        baseline = columns[0].baseline()
        below = [capitalized(f"{baseline}.")] if baseline else []
        return (*data, f"{_setting(budget, columns)}, {columns[0].short}", *below)
    hidden = parts_of_means(columns)
    ranking = [answer for answer in columns if answer.tests.ranks and answer.name not in hidden]
    reasons = dict.fromkeys(answer.tests.why_not_in_short for answer in columns if answer.tests.ranks_nothing)
    count = sum(answer.tests.ranks for answer in columns)
    first = f"{_setting(budget, columns)}: {count or 'none'} of {counted(len(columns), 'column')} "
    first += f"{agreeing(count or 1, 'ranks', 'rank')} rows"
    if below := sum(answer.group.strongest is not None and not answer.rows_ahead for answer in columns):
        first += f"; no row beats the simple predictors in {below}"
    why = [] if count or not reasons else [f"Why: {', or '.join(reasons)}."]
    return (*data, f"{first}.", *why, *(answer.short for answer in ranking))


def _setting(budget: str, columns: Sequence[ColumnAnswer]) -> str:
    """`Reduced budget, slice and synthetic data, test leak in Text`"""
    groups = [part for answer in columns for part in answer.group.parts.values() or [answer.group]]
    sources = dict.fromkeys(group.source.partition(":")[0] for group in groups)
    setting = f"{capitalized(budget)} budget, {listed(list(sources))} data"
    leaks = dict.fromkeys(answer.name for answer in columns if any(score.leak for score in answer.group.scores))
    if not leaks:
        return setting
    return f"{setting}, test leak" + (f" in {listed(list(leaks), SHOWN)}" if len(columns) > 1 else "")
