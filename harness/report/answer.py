"""What a table tells, in sentences for the top of its page and as a line for each of its columns."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from harness.report.comparison import ENOUGH, Comparison
from harness.report.groups import Group, ProtocolResults
from harness.report.spec import TableSpec

SHOWN_ROWS = 6  # of a tier, in a sentence
LARGEST_R = 100


@dataclass(frozen=True)
class ColumnAnswer:
    """A column under one protocol, at one budget, on one choice of data."""

    spec: TableSpec
    group: Group
    protocol: str  # empty if the table has one alone

    @property
    def tests(self) -> Comparison:
        return self.group.comparison

    @property
    def name(self) -> str:
        return f"{self.group.column} ({self.protocol})" if self.protocol else self.group.column

    @property
    def seeds(self) -> str:
        low, high = self.tests.seeds
        return f"{low}" if low == high else f"{low} to {high}"

    @property
    def control(self) -> str:
        """`no mixing 24.40`, or what is missing."""
        return self._score(self.tests.control) if self.tests.control else "–"

    @property
    def resolution(self) -> str:
        found = self.tests.resolution
        if found is None:
            return "–"
        return f"> {LARGEST_R}" if found > LARGEST_R else f"{found:.1f}"

    @property
    def pairs(self) -> str:
        return f"{self.tests.resolved} of {self.tests.possible}"

    @property
    def best_tier(self) -> list[str]:
        return [score.row for score in self.group.scores if self.tests.tiers.get(score.key) == 1]

    @property
    def sentence(self) -> str:
        """Which rows are best, what is resolved, and how far the control is from the reference."""
        tests, decimals = self.tests, self.spec.decimals(self.group.column)
        parts = []
        if not tests.pairs:
            parts.append("no test, because fewer than two rows have 3 seeds")
        elif max(tests.tiers.values()) == 1:
            parts.append(f"no test separates the best row from another; {self.pairs} pairs resolved")
        else:
            best = [score for score in self.group.scores if tests.tiers.get(score.key) == 1]
            means = [score.estimate.mean for score in best]
            span = f"{means[0]:.{decimals}f}" + (f" to {means[-1]:.{decimals}f}" if len(best) > 1 else "")
            parts.append(f"best tier {listed([score.row for score in best])} ({span})")
            parts.append(f"{self.pairs} pairs resolved")
        if tests.resolution is None:
            parts.append(f"no R, because {tests.missing}")
        else:
            apart = f"{self._score(tests.reference)}, {self._score(tests.control)}"
            parts.append(f"R = {self.resolution} ({apart})")
        if hours := cost(self.group.core_hours, self.group.gpu_hours):
            parts.append(hours)
        return f"{self.name}: {'; '.join(parts)}."

    def _score(self, score) -> str:
        return f"{score.row} {score.estimate.mean:.{self.spec.decimals(self.group.column)}f}"


def answers(results: Sequence[ProtocolResults]) -> list[ColumnAnswer]:
    """The columns of a table that rank rows: means first, then the columns themselves."""
    found = []
    for result in results:
        protocol = f"protocol {result.spec.protocol}" if len(results) > 1 else ""
        for group in (*result.other_means, *result.others, *result.paper, *result.own):
            if group.comparison.rows:
                found.append(ColumnAnswer(result.spec, group, protocol))
    return found


def sentences(results: Sequence[ProtocolResults]) -> tuple[str, ...]:
    """Columns that rank nothing, what is resolved at which cost, then the best tier of each column."""
    found = answers(results)
    if not found:
        return ()
    lines = []
    for where, here in _by(found, lambda answer: answer.group.where):
        prefix = f"{where[0].upper()}{where[1:]}. "
        nothing = [answer for answer in here if answer.tests.ranks_nothing]
        for why, answered in _by(nothing, lambda answer: answer.spec.why_not_apart(answer.group.column)):
            lines.append(f"{_ranks_nothing(answered)}{f' Why: {why}.' if why else ''}")
        lines.append(prefix + _overall(here))
        hidden = _parts_of_means(here)
        lines += [answer.sentence for answer in here if answer not in nothing and answer.name not in hidden]
    return tuple(lines)


def _ranks_nothing(answered: Sequence[ColumnAnswer]) -> str:
    values = [answer.tests.resolution for answer in answered]
    span = f"{min(values):.1f}" if len(values) == 1 else f"{min(values):.1f} to {max(values):.1f}"
    names = ", ".join(answer.name for answer in answered)
    what = "this column ranks" if len(answered) == 1 else "these columns rank"
    return f"{names}: the control is not apart: {what} nothing (R = {span}, below {ENOUGH:g})."


def _overall(here: Sequence[ColumnAnswer]) -> str:
    pairs, resolved = sum(a.tests.possible for a in here), sum(a.tests.resolved for a in here)
    enough = sum(1 for a in here if a.tests.resolution is not None and a.tests.resolution >= ENOUGH)
    columns = "1 column" if len(here) == 1 else f"{len(here)} columns"
    return f"{enough} of {columns} with R ≥ {ENOUGH:g}; {resolved} of {pairs} pairs of rows resolved."


def _parts_of_means(here: Sequence[ColumnAnswer]) -> set[str]:
    """Columns whose mean has a sentence of its own and that no paper prints."""
    means = {answer.group.column for answer in here}
    return {
        part
        for answer in here
        for name, average in answer.spec.averages.items()
        if name in means
        for part in average.parts
        if part in answer.spec.unpublished
    }


def _by(items: Iterable[ColumnAnswer], key: Callable[[ColumnAnswer], str]) -> list[tuple[str, list[ColumnAnswer]]]:
    """Items by their key, in the order in which the keys come."""
    found: dict[str, list[ColumnAnswer]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return list(found.items())


def listed(names: Sequence[str]) -> str:
    """`A, B and C`; a long list is cut."""
    if len(names) > SHOWN_ROWS:
        return f"{', '.join(names[: SHOWN_ROWS - 1])} and {len(names) - SHOWN_ROWS + 1} more"
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def cost(core_hours: float, gpu_hours: float) -> str:
    """`1.3 core-hours`, `12 GPU-hours`, both, or nothing."""
    hours = {"GPU-hours": gpu_hours, "core-hours": core_hours}
    return " and ".join(
        f"{value:.2g} {unit}" if value < 10 else f"{value:.0f} {unit}" for unit, value in hours.items() if value
    )


def grid(found: Sequence[ColumnAnswer]) -> tuple[list[str], list[list[str]]]:
    """Header and a line for each column."""
    header = ["column", "budget, data", "rows", "seeds", "control", "R", "pairs resolved"]
    lines = [[a.name, a.group.where, f"{a.tests.rows}", a.seeds, a.control, a.resolution, a.pairs] for a in found]
    return header, lines


def totals(found: Sequence[ColumnAnswer]) -> str:
    """All columns of several tables together."""
    if not found:
        return "no column has a run yet: python run.py table=all budget=reduced"
    enough = sum(1 for a in found if a.tests.resolution is not None and a.tests.resolution >= ENOUGH)
    resolved, pairs = sum(a.tests.resolved for a in found), sum(a.tests.possible for a in found)
    shares = [
        f"{part} of {whole} ({100 * part / max(whole, 1):.0f} %)"
        for part, whole in ((enough, len(found)), (resolved, pairs))
    ]
    return f"columns with R ≥ {ENOUGH:g}: {shares[0]}; pairs resolved: {shares[1]}"
