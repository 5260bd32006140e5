"""Answers to claims of papers and to questions on the columns of one table."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from harness.config.table_rows import row_name
from harness.report.pages.answer import ColumnAnswer
from harness.report.pages.evidence import Evidence, Reply, cannot_say
from harness.report.render.words import listed
from harness.report.scores import judge
from harness.report.scores.groups import Group
from harness.report.scores.judge import Judged, Verdict, plain_score
from harness.report.scores.scores import Score
from harness.report.scores.solved import SOLVED
from harness.report.scores.tuning import why_no_verdict
from harness.report.spec.finding import Asked, Compared, Kept, Leaders
from harness.report.stats.grouping import grouped
from harness.report.stats.seeds import p_text

WORST_FIRST = (Verdict.FAILS, Verdict.UNKNOWN, Verdict.HOLDS)


def compared(asked: Compared, evidence: Evidence) -> Reply:
    """A claim on every column has the reply of the worst one, named in front."""
    columns = (asked.column, *asked.every)
    replies = [(name, _compared(asked.model_copy(update={"column": name}), evidence)) for name in columns]
    column, reply = min(replies, key=lambda pair: WORST_FIRST.index(pair[1].verdict))
    return replace(reply, text=f"Worst of {len(columns)} columns, {column}: {reply.text}") if asked.every else reply


def _compared(asked: Compared, evidence: Evidence) -> Reply:
    rows = [asked.row, *asked.rivals]
    evidence.require_rows(asked, rows)
    group = evidence.answer(asked).group
    judged = judge.compared(group, asked.row, asked.rivals, asked.relation == "as good", asked.margin)
    scores = [score for row in rows if (score := plain_score(group, row))]
    facts = [*_pair_facts(judged, group), *evidence.rates(asked, scores), *evidence.in_print(asked, rows)]
    return _reply(judged, evidence, asked, scores, [f"{score.name} {_number(group, score)}" for score in scores], facts)


def kept(asked: Kept, evidence: Evidence) -> Reply:
    evidence.require_rows(asked, [asked.row])
    last, first = (evidence.answer(asked, column).group for column in (asked.column, asked.first))
    judged = judge.kept(last, first, asked.row, asked.relation == "as good", asked.margin)
    scores = [(group, score) for group in (first, last) if (score := plain_score(group, asked.row))]
    stated = [f"{asked.row} {_number(group, score)} at {group.column}" for group, score in scores]
    tested = [score for group, score in scores if group is last]
    return _reply(judged, evidence, asked, tested, stated, [*_pair_facts(judged, last), *evidence.rates(asked, tested)])


def leaders(asked: Leaders, evidence: Evidence) -> Reply:
    answer = evidence.answer(asked)
    facts = [f"Seeds: {answer.seeds} per row."]
    facts += evidence.rates(asked, [score for score in answer.group.scores if score.by_seed])
    if answer.why_not:
        return cannot_say(_why_not(answer), facts)
    return Reply(f"{answer.verdict}.", None, tuple(facts), regime=answer.baseline())


def _why_not(answer: ColumnAnswer) -> str:
    """Why a column cannot rank rows, with the reason that its table states."""
    column = answer.spec.columns.get(answer.group.column)
    why = (column and column.why) or answer.spec.why if answer.tests.ranks_nothing else ""
    return f"the column {answer.why_not}" + (f" ({why})" if why else "")


def _reply(
    judged: Judged,
    evidence: Evidence,
    asked: Compared | Kept,
    scores: Sequence[Score],
    stated: Sequence[str],
    facts: Sequence[str],
) -> Reply:
    """The verdict, unless the searches of these rows forbid one."""
    text, why = f"{', '.join(stated)}." if stated else "", judged.why
    if not why:
        tunings = evidence.tables[asked.table].tunings.get(asked.column, {})
        reasons = grouped(
            (reason, score.name)
            for score in scores
            if not score.search_done and (reason := why_no_verdict(tunings.get(score.row)))
        )
        why = "; ".join(reason.format(listed(rows)) for reason, rows in reasons.items())
    if why:
        return cannot_say(why, facts, text, judged.regime)
    return Reply(text, judged.verdict, tuple(facts), regime=judged.regime)


def _number(group: Group, score: Score) -> str:
    """`20.0 ± 0.6`, or the solved runs where tests compare these."""
    runs, decimals = group.comparison.runs, group.resolved.decimals
    solved = runs is not None and score.key in runs.counts
    return f"{score.estimate.mean:.{decimals}f} ({runs.text(score.key)})" if solved else score.number(decimals)


def _pair_facts(judged: Judged, group: Group) -> Iterator[str]:
    """A line for each tested pair."""
    resolved = group.resolved
    unit = f" {resolved.unit}" if resolved.unit else ""
    within = f"; margin {judged.margin:.{resolved.decimals}f}" if judged.margin is not None else ""
    for pair, p in zip(judged.pairs, judged.p, strict=True):
        ours, theirs = (row_name(row) for row, _ in pair.rows)
        if pair.pairing == SOLVED:
            interval, how = "", "Fisher's exact test of the solved runs"
        else:
            interval = f" ± {pair.half_width:.{resolved.decimals}f}" if pair.half_width else ", equal for all seeds"
            how = f"95 % interval, paired by {pair.pairing}"
        difference = f"{ours} minus {theirs}: {resolved.signed(pair.difference)}{interval}{unit}"
        yield f"{difference} ({how}; n = {pair.seeds} seeds; {p_text(p)}{within})."


REPLIES: dict[type[Asked], Callable[..., Reply]] = {Compared: compared, Kept: kept, Leaders: leaders}
