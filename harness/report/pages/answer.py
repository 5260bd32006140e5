"""The findings of a table: sentences for the top of its page, and one line per column."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from harness.report.scores.comparison import ENOUGH, Comparison, below_enough
from harness.report.scores.groups import Group, ProtocolResults
from harness.report.scores.scores import Score
from harness.report.scores.tiers import LOW_POWER
from harness.report.spec.table import TableSpec
from harness.report.stats.seeds import MIN_SEEDS

SHOWN_ROWS = 6  # of a tier, in a sentence
LARGEST_R = 100


@dataclass(frozen=True)
class ColumnAnswer:
    """A column under one protocol, at one budget, on one choice of data."""

    spec: TableSpec
    group: Group
    protocol: str  # empty if the table has one alone
    data: str = ""  # empty if the column stands on one choice of data alone

    @property
    def tests(self) -> Comparison:
        return self.group.comparison

    @property
    def name(self) -> str:
        inside = ", ".join(filter(None, (self.protocol, self.data)))
        return f"{self.group.column} ({inside})" if inside else self.group.column

    @property
    def seeds(self) -> str:
        low, high = self.tests.seeds
        return f"{low}" if low == high else f"{low} to {high}"

    @property
    def control(self) -> str:
        """`no mixing 24.40`, or the reason why there is no number."""
        if self.tests.control:
            return self._score(self.tests.control)
        return "none" if self.spec.control_of(self.group.column) is None else "not run"

    @property
    def resolution(self) -> str:
        value = self.tests.resolution
        if value is None:
            return "–"
        return f"> {LARGEST_R}" if value > LARGEST_R else f"{value:.1f}"

    @property
    def has_enough(self) -> bool:
        """Whether the resolution of the column is high enough, and its reference apart from its control."""
        return self.tests.ranks

    @property
    def stated_resolution(self) -> str:
        """`R = 4.7`, or `R > 100`."""
        return f"R {self.resolution}" if self.resolution.startswith(">") else f"R = {self.resolution}"

    @property
    def pairs(self) -> str:
        return f"{self.tests.resolved} of {self.tests.possible}"

    @property
    def sentence(self) -> str:
        """The best rows, the resolved pairs, and the resolution with its reference and control."""
        tests, parts = self.tests, []
        best = [score for score in self.group.scores if tests.tiers.get(score.key) == 1]
        unclear = [score for score in self.group.scores if score.key in tests.low_power]
        if not tests.resolved:
            parts.append(f"no test separates the best row, {self._score(self._best)}, from another")
        else:
            parts.append(f"best {'row' if len(best) == 1 else 'tier'} {self._rows(best)}")
            if unclear:
                parts.append(f"{LOW_POWER}: {self._rows(unclear)}")
        if tests.runs:
            counts = [tests.runs.counts[score.key] for score in self.group.scores if score.key in tests.runs.counts]
            every = sum(solved == runs for solved, runs in counts)
            parts.append(f"{every} of {len(counts)} rows solve it with every seed (from {self._threshold} on)")
        parts.append(f"{self.pairs} pairs resolved")
        if tests.resolution is not None:
            parts.append(f"{self.stated_resolution} ({self._score(tests.reference)}, {self._score(tests.control)})")
        return f"{self.name}: {'; '.join(parts)}."

    @property
    def _best(self) -> Score:
        return next(score for score in self.group.scores if score.key == self.tests.best)

    @property
    def _threshold(self) -> str:
        return f"{self.tests.runs.threshold:.{self.decimals}f}"

    @property
    def verdict(self) -> str:
        """The sentence of a single column: its best rows, or that it ranks nothing."""
        return _ranks_nothing([self], ()) if self.tests.ranks_nothing else self.sentence

    @property
    def decimals(self) -> int:
        return self.group.resolved.decimals

    def _rows(self, scores: Sequence[Score]) -> str:
        """`vanilla and LAVO (50.00 to 49.90)`"""
        means = [f"{score.estimate.mean:.{self.decimals}f}" for score in scores]
        span = means[0] if len(means) == 1 else f"{means[0]} to {means[-1]}"
        return f"{listed([score.row for score in scores])} ({span})"

    def _score(self, score: Score) -> str:
        runs = self.tests.runs
        solved = f", {'/'.join(map(str, runs.counts[score.key]))} solved" if runs and score.key in runs.counts else ""
        return f"{score.row} {score.estimate.mean:.{self.decimals}f}{solved}"


def answers(results: Sequence[ProtocolResults]) -> list[ColumnAnswer]:
    """The columns of a table that rank rows: means first, then the columns themselves."""
    columns = []
    for result in results:
        protocol = f"protocol {result.spec.protocol}" if len(results) > 1 else ""
        groups = [*result.other_means, *result.others, *result.paper, *result.own]
        groups = [group for group in groups if group.comparison.rows]
        counts = Counter((group.column, group.budget) for group in groups)
        for group in groups:
            data = group.data if counts[group.column, group.budget] > 1 else ""
            columns.append(ColumnAnswer(result.spec, group, protocol, data))
    return columns


def sentences(results: Sequence[ProtocolResults]) -> tuple[str, ...]:
    """For each budget: columns that rank nothing, what is resolved at which cost, then the best tier of each column."""
    lines = []
    for budget, columns in _by(answers(results), lambda answer: answer.group.budget):
        hidden = _parts_of_means(columns)
        nothing = [answer for answer in columns if answer.tests.ranks_nothing]
        for why, answered in _by(nothing, lambda answer: answer.spec.why_not_apart(answer.group.column)):
            lines.append(_ranks_nothing(answered, hidden) + (f" Why: {why}." if why else ""))
        hours = [result.hours[budget] for result in results if budget in result.hours]
        lines.append(f"{budget[0].upper()}{budget[1:]} budget: {_overall(columns)}{_cost_sentence(hours)}")
        shown = [answer for answer in columns if answer not in nothing and answer.name not in hidden]
        lines += [answer.sentence for answer in shown if answer.tests.pairs]
        untested = [answer for answer in columns if not answer.tests.pairs]
        if untested:
            lines.append(f"{_column_names(untested)}: no test, because fewer than two rows have {MIN_SEEDS} seeds.")
        unknown = [answer for answer in columns if answer.tests.resolution is None and answer not in untested]
        for why, answered in _by(unknown, lambda answer: answer.tests.missing):
            lines.append(f"{_column_names(answered)}: R is unknown, because {why}.")
    return tuple(lines)


def _column_names(answered: Sequence[ColumnAnswer]) -> str:
    return ", ".join(dict.fromkeys(answer.name for answer in answered))


def _cost_sentence(hours: Sequence[tuple[float, float]]) -> str:
    text = cost(*(sum(part) for part in zip(*hours, strict=True))) if hours else ""
    return f" Cost: {text}." if text else ""


def _ranks_nothing(answered: Sequence[ColumnAnswer], hidden: Collection[str]) -> str:
    low = [answer.tests.resolution for answer in answered if answer.tests.resolution < ENOUGH]
    named = [answer for answer in answered if answer.name not in hidden] or answered
    names = _column_names(named) + (
        f" and {len(answered) - len(named)} parts of means" if len(named) < len(answered) else ""
    )
    subject = "this column ranks" if len(answered) == 1 else "these columns rank"
    reasons = []
    if low:
        ends = dict.fromkeys(below_enough(value) for value in (min(low), max(low)))
        reasons.append(f"R = {' to '.join(ends)}, below {ENOUGH:g}")
    reasons += dict.fromkeys(answer.tests.why_not for answer in answered if answer.tests.resolution >= ENOUGH)
    return f"{names}: the control is not apart: {subject} nothing ({'; '.join(reasons)})."


def _overall(answered: Sequence[ColumnAnswer]) -> str:
    enough, resolved, pairs = _counts(answered)
    columns = "1 column" if len(answered) == 1 else f"{len(answered)} columns"
    apart = f"{enough} of {columns} with R ≥ {ENOUGH:g}"
    return f"{apart}; {resolved} of {pairs} pairs with the best row or the reference resolved."


def _counts(answered: Sequence[ColumnAnswer]) -> tuple[int, int, int]:
    """Columns with enough resolution, pairs of rows that are resolved, and all pairs."""
    resolved = sum(answer.tests.resolved for answer in answered)
    return sum(answer.has_enough for answer in answered), resolved, sum(answer.tests.possible for answer in answered)


def _parts_of_means(answered: Sequence[ColumnAnswer]) -> set[str]:
    """Columns that no paper prints and whose mean has its own sentence."""
    means = {answer.group.column for answer in answered}
    return {
        part
        for answer in answered
        for name, average in answer.spec.averages.items()
        if name in means
        for part in average.parts
        if part in answer.spec.unpublished
    }


def _by(items: Iterable[ColumnAnswer], key: Callable[[ColumnAnswer], str]) -> list[tuple[str, list[ColumnAnswer]]]:
    """Items grouped by key, in the order of the first item of each key."""
    by_key: dict[str, list[ColumnAnswer]] = {}
    for item in items:
        by_key.setdefault(key(item), []).append(item)
    return list(by_key.items())


def listed(names: Sequence[str]) -> str:
    """`A, B and C`; a long list is shortened."""
    if len(names) > SHOWN_ROWS:
        return f"{', '.join(names[: SHOWN_ROWS - 1])} and {len(names) - SHOWN_ROWS + 1} more"
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def cost(core_hours: float, gpu_hours: float) -> str:
    """`1.3 core-hours`, `12 GPU-hours`, both, or nothing."""
    hours = {"GPU-hours": gpu_hours, "core-hours": core_hours}
    return " and ".join(f"{_few_digits(value)} {unit}" for unit, value in hours.items() if value)


def _few_digits(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}" if value >= 0.1 else f"{value:.1g}"


def column_lines(answered: Sequence[ColumnAnswer]) -> tuple[list[str], list[list[str]]]:
    """The header and one line per column."""
    header = ["column", "budget", "rows", "seeds", "control", "R", "pairs resolved"]
    lines = [[a.name, a.group.budget, f"{a.tests.rows}", a.seeds, a.control, a.resolution, a.pairs] for a in answered]
    return header, lines


def totals(answered: Sequence[ColumnAnswer]) -> str:
    """All columns of several tables together."""
    if not answered:
        return "no column has a run yet: python run.py table=all budget=reduced"
    enough, resolved, pairs = _counts(answered)
    columns = f"{enough} of {len(answered)} ({_percent(enough, len(answered))})"
    return (
        f"columns with R ≥ {ENOUGH:g}: {columns}; pairs resolved: {resolved} of {pairs} ({_percent(resolved, pairs)})"
    )


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / max(whole, 1):.0f} %"
