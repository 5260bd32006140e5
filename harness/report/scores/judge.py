"""Judges a claim on two rows of a column, or on a row in two columns, by the paired tests of the report."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from harness.config.table_rows import row_name
from harness.report.render import wording
from harness.report.scores.comparison import Comparison
from harness.report.scores.groups import Group
from harness.report.scores.paired import Pair, SeedNoise, holm, tested_pairs
from harness.report.scores.scores import Score
from harness.report.stats.seeds import LEVEL, MIN_SEEDS

SIGNIFICANT = 1 - LEVEL


class Verdict(StrEnum):
    HOLDS = "holds"
    FAILS = "does not hold"
    UNKNOWN = "cannot say"


@dataclass(frozen=True)
class Judged:
    """The verdict on a difference. `why`: what keeps us from saying; empty for a verdict. `p`: corrected for the pairs
    of the claim. `regime`: where the scores are beside the strongest simple predictor."""

    verdict: Verdict
    why: str = ""
    pairs: tuple[Pair, ...] = ()
    p: tuple[float, ...] = ()
    margin: float | None = None  # in the unit of the column
    regime: str = ""


def plain_score(group: Group, row: str) -> Score | None:
    """The score of a row in the recipe's configuration; None without a finished seed."""
    return next((score for score in group.scores if score.row == row and score.is_plain), None)


def compared(group: Group, row: str, rivals: Sequence[str], as_good: bool, share: float) -> Judged:
    """Is `row` ahead of each of `rivals`, or as good as each? `share`: of |reference - control|, the margin."""
    names = [row, *rivals]
    scores = {name: plain_score(group, name) for name in names}
    if absent := [name for name in names if scores[name] is None]:
        return Judged(Verdict.UNKNOWN, wording.NO_RUN.format(_names(absent)))
    if few := [name for name in names if len(scores[name].by_seed) < MIN_SEEDS]:
        return Judged(Verdict.UNKNOWN, wording.FEW_SEEDS.format(_names(few)))
    tests = group.comparison
    pairs = [tests.pair(scores[row].key, scores[rival].key) for rival in rivals]
    if missing := [rival for rival, pair in zip(rivals, pairs, strict=True) if pair is None]:
        why = tests.untested or wording.FEW_IN_COMMON
        return Judged(Verdict.UNKNOWN, wording.NO_TEST.format(row_name(row), _names(missing), why))
    judged = _judged(pairs, group, as_good, share, _no_ranks(tests))
    return replace(judged, regime=_regime(group, list(scores.values())))


def _names(rows: Sequence[str]) -> str:
    return ", ".join(map(row_name, rows))


def kept(group: Group, first: Group, row: str, as_good: bool, share: float) -> Judged:
    """Is `row` in `group` as good as in `first`, or ahead of it there? Both have the same seeds, often the same runs.

    The control has to be behind in `first` alone: the reference may break down in `group`, where the row does not.
    """
    last, before = (plain_score(part, row) for part in (group, first))
    if last is None or before is None:
        return Judged(Verdict.UNKNOWN, wording.NO_RUN.format(row_name(row)))
    if len(set(last.by_seed) & set(before.by_seed)) < MIN_SEEDS:
        return Judged(Verdict.UNKNOWN, wording.FEW_SEEDS.format(row_name(row)))
    # the test examples differ: pairs are by seed
    sides = [replace(score, row=part.column, examples={}, data={}) for score, part in ((last, group), (before, first))]
    (pair,) = tested_pairs([tuple(sides)], SeedNoise())
    judged = _judged([pair], first, as_good, share, _no_ranks(first.comparison))
    return replace(judged, regime=_regime(first, [before]))


def _judged(pairs: Sequence[Pair], group: Group, as_good: bool, share: float, why: str) -> Judged:
    tests, p, margin = group.comparison, tuple(holm([pair.p for pair in pairs])), None
    if as_good and tests.reference and tests.control:
        margin = share * abs(tests.reference.estimate.mean - tests.control.estimate.mean)
    content = {"pairs": tuple(pairs), "p": p, "margin": margin}
    if why:
        return Judged(Verdict.UNKNOWN, why, **content)
    sign = 1 if group.resolved.higher_is_better else -1
    verdicts = [
        _of_pair(sign * pair.difference, pair.half_width, corrected, margin, tests.runs is not None)
        for pair, corrected in zip(pairs, p, strict=True)
    ]
    if Verdict.FAILS in verdicts:
        return Judged(Verdict.FAILS, **content)
    if Verdict.UNKNOWN in verdicts:
        return Judged(Verdict.UNKNOWN, wording.BEYOND_MARGIN if as_good else wording.NOT_SEPARATED, **content)
    return Judged(Verdict.HOLDS, **content)


def _of_pair(ahead: float, half: float, p: float, margin: float | None, shares_alone: bool) -> Verdict:
    """`ahead`: the difference, positive if the row is better. `shares_alone`: tests compare shares of solved runs,
    so that the interval of the difference says nothing."""
    is_apart = p < SIGNIFICANT
    if margin is not None and (ahead - half > -margin if not shares_alone else ahead == half == 0):
        return Verdict.HOLDS
    if is_apart and ahead < 0:
        return Verdict.FAILS
    if margin is None and is_apart and ahead > 0:
        return Verdict.HOLDS
    return Verdict.UNKNOWN


def _no_ranks(tests: Comparison) -> str:
    """Why the control of a column is not clearly behind; empty if it is."""
    if tests.ranks_nothing and not tests.is_clear:
        return wording.RANKS_NOTHING.format(tests.why_not)
    return wording.UNKNOWN_RESOLUTION.format(tests.missing) if tests.resolution is None else ""


def _regime(group: Group, scores: Sequence[Score]) -> str:
    """`below 6-gram (5.93)`: the means of the compared rows beside the strongest simple predictor."""
    strongest, higher = group.strongest, group.resolved.higher_is_better
    if strongest is None:
        return "no simple predictor"
    limit = strongest.estimate.mean
    above = sum(score.estimate.mean > limit if higher else score.estimate.mean < limit for score in scores)
    where = "above" if above == len(scores) else f"{above} of {len(scores)} above" if above else "below"
    return f"{where} {strongest.row.partition(': ')[2]} ({strongest.number(group.resolved.decimals)})"
