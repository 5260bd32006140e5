"""The first lines of a page: on which data, how far the columns can be trusted, and who leads.

`Table.lead` shows those that fit; `answer.sentences` says all of it below the tables.
"""

from collections.abc import Sequence

from harness.report.pages.answer import ColumnAnswer, answers, by, capitalized, counted_columns, listed, parts_of_means
from harness.report.pages.caveats import data_lines, is_shared
from harness.report.scores.groups import ProtocolResults

SHOWN = 3  # names of columns in a sentence


def headline(results: Sequence[ProtocolResults]) -> tuple[str, ...]:
    """The most important line first. Of several budgets, the one with the most columns that rank rows speaks."""
    if not (columns := answers(results)):
        return ()
    budgets = by(columns, lambda answer: answer.group.budget)
    budget, columns = max(budgets, key=lambda part: sum(answer.has_enough for answer in part[1]))
    hidden = parts_of_means(columns)
    shown = [answer for answer in columns if answer.name not in hidden]
    ranking = [answer for answer in shown if answer.has_enough]
    rest = shown if len(shown) == 1 else ranking
    data = data_lines(results) if is_shared(results) else []
    return (*data, _overall(budget, columns), *(answer.short for answer in rest))


def _overall(budget: str, columns: Sequence[ColumnAnswer]) -> str:
    """`Reduced budget, synthetic data, test leak in Text: rows can be ranked in 2 of 3 columns; ...`"""
    groups = [part for answer in columns for part in answer.group.parts.values() or [answer.group]]
    sources = dict.fromkeys(group.source for group in groups)
    leaks = dict.fromkeys(answer.name for answer in columns if any(score.leak for score in answer.group.scores))
    start = f"{capitalized(budget)} budget, {listed(list(sources))} data"
    if leaks:
        start += ", test leak" + (f" in {listed(list(leaks), SHOWN)}" if len(columns) > 1 else "")
    if len(columns) == 1:
        return f"{start}."
    parts = [f"rows can be ranked in {sum(a.has_enough for a in columns)} of {counted_columns(len(columns))}"]
    if below := sum(answer.group.strongest is not None and not answer.rows_above for answer in columns):
        parts.append(f"no row reaches the simple predictors in {below}")
    return f"{start}: {'; '.join(parts)}."
