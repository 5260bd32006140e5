"""Answers to claims of papers and to questions on the columns of one table."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from harness.config.table_rows import row_name
from harness.report.pages.answer import ColumnAnswer
from harness.report.pages.evidence import Evidence, Reply, cannot_say
from harness.report.render.words import capitalized, listed
from harness.report.scores import judge
from harness.report.scores.groups import Group
from harness.report.scores.judge import Judged, Verdict, plain_score
from harness.report.scores.lines import front
from harness.report.scores.paired import UNPAIRED
from harness.report.scores.scores import Score
from harness.report.scores.solved import SOLVED
from harness.report.spec.finding import Asked, Compared, Kept, Leaders, SameOrder, WithState
from harness.report.stats.grouping import grouped
from harness.report.stats.ordering import agreement
from harness.report.stats.seeds import MIN_SEEDS, p_value

SHOWN_FRONT = 8  # rows of a front, in a sentence


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
    judged = _unless_unsearched(judged, evidence, asked, rows)
    scores = [score for row in rows if (score := plain_score(group, row))]
    facts = [*_pair_facts(judged, group), *_scale(group), *evidence.facts(asked, scores)]
    facts += evidence.in_print(asked, rows)
    return _reply(judged, [f"{score.name} {_number(group, score)}" for score in scores], facts)


def kept(asked: Kept, evidence: Evidence) -> Reply:
    evidence.require_rows(asked, [asked.row])
    last, first = (evidence.answer(asked, column).group for column in (asked.column, asked.first))
    judged = judge.kept(last, first, asked.row, asked.relation == "as good", asked.margin)
    judged = _unless_unsearched(judged, evidence, asked, [asked.row])
    scores = [(group, plain_score(group, asked.row)) for group in (first, last)]
    stated = [f"{asked.row} {_number(group, score)} at {group.column}" for group, score in scores if score]
    tested = [score for _, score in scores[-1:] if score]
    return _reply(judged, stated, [*_pair_facts(judged, last), *_scale(last), *evidence.facts(asked, tested)])


def leaders(asked: Leaders, evidence: Evidence) -> Reply:
    answer = evidence.answer(asked)
    tests = answer.tests
    facts = [
        f"Seeds: {answer.seeds} per row.",
        *evidence.facts(asked, [s for s in answer.group.scores if s.by_seed]),
    ]
    if not tests.pairs or tests.ranks_nothing:
        return cannot_say(answer.finding.rstrip("."), facts)
    text = answer.short.removeprefix(f"{answer.name}: ")
    return Reply(evidence.at_rate(asked) + text, None, tuple(facts), regime=answer.baseline())


def with_state(asked: WithState, evidence: Evidence) -> Reply:
    """Kendall's tau between the score and the cost over the rows, and the rows that no row with less cost reaches."""
    sizes, answer = evidence.sizes(asked), evidence.answer(asked)
    if sizes is None:
        return evidence.no_run(asked, asked.cost)
    group, scores = answer.group, _plain_scores(answer)
    costs = {score.row: score.estimate.mean for score in sizes.scores if score.is_plain and score.row in scores}
    means = {row: score.estimate.mean for row, score in scores.items() if row in costs}
    order = agreement(means, costs)
    facts = [f"Rows: {order.rows}, without the control.", *evidence.facts(asked, [scores[row] for row in means])]
    if order.tau is None:
        return cannot_say(f"Kendall's τ {order.note}", facts)
    if answer.tests.ranks_nothing:
        return cannot_say(answer.finding.rstrip("."), facts)
    points, decimals = [(costs[row], mean, row) for row, mean in means.items()], group.resolved.decimals
    best = front(points, bool(group.resolved.higher_is_better), decimals)
    named = [f"{row} ({mean:.{decimals}f} with {cost:,.0f})" for cost, mean, row in best]
    text = (
        f"{evidence.at_rate(asked)}on the front, from the smallest {asked.cost}: {listed(named, SHOWN_FRONT)}; "
        f"Kendall's τ of {asked.column} with {asked.cost} is {order.tau:.2f} over {order.rows} rows ({_p(order.p)})."
    )
    return Reply(capitalized(text), None, tuple(facts))


def same_order(asked: SameOrder, evidence: Evidence) -> Reply:
    """Kendall's tau between two columns over the rows that have a score in both."""
    other = asked.model_copy(update={"table": asked.other_table or asked.table, "column": asked.other})
    answers = [evidence.answer(column) for column in (asked, other)]
    scores = [_plain_scores(answer) for answer in answers]
    signs = (1 if answer.group.resolved.higher_is_better else -1 for answer in answers)
    pairs = zip(signs, scores, strict=True)
    signed = [{row: sign * score.estimate.mean for row, score in column.items()} for sign, column in pairs]
    order = agreement(*signed)
    shared = [score for row, score in scores[0].items() if row in scores[1]]
    ordered = sorted(shared, key=lambda score: -signed[0][score.row])
    facts = [f"Best first in {asked.column}: {listed([score.name for score in ordered])}."] if shared else []
    facts += evidence.facts(asked, shared)
    if order.tau is None:
        return cannot_say(f"Kendall's τ {order.note}", facts)
    if weak := [answer for answer in answers if answer.tests.ranks_nothing]:
        return cannot_say(weak[0].finding.rstrip("."), facts)
    tau = f"{order.tau:.2f} over {order.rows} rows ({_p(order.p)})"
    return Reply(f"Kendall's τ of {asked.column} with {asked.other} is {tau}.", None, tuple(facts))


def _plain_scores(answer: ColumnAnswer) -> dict[str, Score]:
    """Row -> score, without the control, changed settings, rows of fewer than MIN_SEEDS seeds and those without a
    verdict where the column ranks."""
    scores = [s for s in answer.group.scores if s.is_plain and len(s.by_seed) >= MIN_SEEDS]
    scores = [s for s in scores if s.search_done or not answer.tests.ranks]
    return {score.row: score for score in scores if score != answer.tests.control}


def _reply(judged: Judged, stated: Sequence[str], facts: Sequence[str]) -> Reply:
    text = f"{', '.join(stated)}." if stated else ""
    difference = facts[0] if judged.pairs else ""
    if judged.verdict is Verdict.UNKNOWN:
        reply = cannot_say(judged.why, facts)
        return replace(reply, text=f"{reply.text} {text}".rstrip(), difference=difference, regime=judged.regime)
    return Reply(text, judged.verdict, tuple(facts), difference=difference, regime=judged.regime)


def _unless_unsearched(judged: Judged, evidence: Evidence, asked: Compared | Kept, rows: Sequence[str]) -> Judged:
    if judged.verdict is Verdict.UNKNOWN or not (unsearched := evidence.unsearched(asked, rows)):
        return judged
    by_reason = grouped((why, row) for row, why in unsearched.items())
    why = "; ".join(why.format(listed(named)) for why, named in by_reason.items())
    return replace(judged, verdict=Verdict.UNKNOWN, why=why)


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
            how = f"95 % interval, {pair.pairing if pair.pairing == UNPAIRED else f'paired by {pair.pairing}'}"
        difference = f"{ours} minus {theirs}: {resolved.signed(pair.difference)}{interval}{unit}"
        yield f"{difference} ({how}; n = {pair.seeds} seeds; {_p(p)}{within})."


def _p(p: float) -> str:
    """`p = 0.03`, `p < 0.001`"""
    text = p_value(p)
    return f"p {text}" if text.startswith("<") else f"p = {text}"


def _scale(group: Group) -> list[str]:
    """The score of the strongest simple predictor and the control, which show what the numbers are worth."""
    decimals, tests = group.resolved.decimals, group.comparison
    parts = [f"control {tests.control.name} {tests.control.number(decimals)}"] if tests.control else []
    if group.strongest is not None:
        parts.append(f"strongest simple predictor {group.strongest.number(decimals)}")
    return [f"Beside: {', '.join(parts)}."] if parts else []


REPLIES: dict[type[Asked], Callable[..., Reply]] = {
    Compared: compared,
    Kept: kept,
    Leaders: leaders,
    WithState: with_state,
    SameOrder: same_order,
}
