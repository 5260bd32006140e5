"""The findings of a table: sentences for the top of its page, and one line per column."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from harness.errors import agreeing
from harness.report.render.words import counted, listed, span
from harness.report.scores.comparison import BASELINE, Comparison
from harness.report.scores.groups import Group, ProtocolResults
from harness.report.scores.places import Place
from harness.report.scores.scores import Score
from harness.report.spec.table import TableSpec

SHOWN_ROWS = 4  # of a place, in a sentence
SHOWN_LEADERS = 2  # in the short sentence on a column
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
    def name_and_data(self) -> str:
        """`PPL · PG-19 bytes (in place of OpenWebText)`"""
        return f"{self.name}{self.group.on_data}"

    @property
    def seeds(self) -> str:
        return span(self.tests.seeds)

    @property
    def control(self) -> str:
        """`no mixing 24.40`, or the reason why there is no number."""
        if self.tests.control:
            return self._score(self.tests.control)
        return "none" if self.spec.row_of("control", self.group.column) is None else "not run"

    @property
    def resolution(self) -> str:
        value = self.tests.resolution
        if value is None:
            return "–"
        return f"> {LARGEST_R}" if value > LARGEST_R else f"{value:.1f}"

    @property
    def stated_resolution(self) -> str:
        """`R = 4.7`, or `R > 100`."""
        return f"R {self.resolution}" if self.resolution.startswith(">") else f"R = {self.resolution}"

    @property
    def pairs(self) -> str:
        return f"{self.tests.resolved} of {self.tests.possible}"

    @property
    def rows_above(self) -> int:
        """The number of rows whose mean is better than that of the strongest baseline."""
        return self._rows_above(self.group.strongest)

    @property
    def rows_ahead(self) -> int:
        """The number of rows that a test finds better than the strongest baseline."""
        return self._rows_ahead(self.group.strongest)

    def baseline(self) -> str:
        """`no row reaches the 6-gram baseline (5.08)`, or how many rows beat it by a test; empty without a baseline.

        A predictor that was fitted to more data than the models saw is named only if a row beats the strongest other.
        """
        strongest, more = self.group.strongest, self.group.strongest_of_all
        if strongest is None:
            return ""
        text = self._compared_with(strongest)
        has_more = more is not None and more.estimate.mean != strongest.estimate.mean  # else it saw as much
        return f"{text}; {self._compared_with(more)}" if has_more and self.rows_ahead else text

    def _compared_with(self, baseline: Score) -> str:
        score = f"({baseline.number(self.decimals)})"
        name = f"the {baseline_name(baseline.row)} baseline {score}"
        if self.group.parts:
            name = f"the mean of the strongest baselines of its parts {score}"
        above, ahead = self._rows_above(baseline), self._rows_ahead(baseline)
        if not above:
            return f"no row reaches {name}"
        by_mean = f" by a test, {above} by {agreeing(above, 'its mean', 'their means')}" if ahead < above else ""
        return f"{ahead or 'none'} of {self.tests.rows} rows {agreeing(ahead or 1, 'beats', 'beat')} {name}{by_mean}"

    def _rows_above(self, baseline: Score) -> int:
        limit, higher = baseline.estimate.mean, self.group.resolved.higher_is_better
        means = [score.estimate.mean for score in self._distinct]
        return sum(mean > limit if higher else mean < limit for mean in means)

    def _rows_ahead(self, baseline: Score) -> int:
        return sum(baseline.row in self.tests.ahead.get(score.key, ()) for score in self._distinct)

    @property
    def _distinct(self) -> list[Score]:
        """The rows that are tested: a row that repeats another row's computation does not count again."""
        return [score for score in self.group.scores if score.by_seed and not self.spec.same_as(score.row)]

    def leaders(self, most: int = SHOWN_ROWS) -> str:
        """`LAVO (52.7) leads`, `A and B (100.0) are tied for best`, and the rows of which neither can be said."""
        tests, tied, unclear = self.tests, self._at(Place.TIED), self._at(Place.UNCLEAR)
        if tests.best is None:
            return f"no row is the best one, because {tests.untested}"
        searched = counted(tests.rows - len(tests.unsearched), "row")
        among = f" among the {searched} with a searched learning rate" if tests.unsearched else ""
        verb = "are tied for best" if len(tied) > 1 else "has the best mean" if unclear else "leads"
        best = [score for score in self.group.scores if score.key == tests.best]
        text = f"{self._rows(tied or best, most)} {verb}{among}"
        return f"{text}; unclear: {self._rows(unclear, most)}" if unclear else text

    @property
    def finding(self) -> str:
        """Who leads and how far the reference is from the control; or why no row is ranked or tested."""
        tests, why = self.tests, self.spec.why_not_apart(self.group.column)
        if not tests.pairs:
            return f"no test, because {tests.untested}."
        if tests.ranks_nothing:
            reason = f" Why: {why}." if why else ""
            return f"the column cannot rank rows, because {tests.why_not}.{reason}"
        if tests.resolution is None:
            return f"{self.leaders()}; R is unknown, because {tests.missing}."
        ends = f"reference {self._score(tests.reference)}, control {self._score(tests.control)}"
        return f"{self.leaders()}; {self.stated_resolution} ({ends})."

    def sentence(self) -> str:
        """How many rows beat the strongest simple predictor, and what the column tells."""
        return f"{self.name}: {'; '.join(filter(None, [self.baseline(), self.finding]))}"

    @property
    def short(self) -> str:
        """Who leads, and the reference if it does not; or why the column has no test or cannot rank rows."""
        tests = self.tests
        if not tests.pairs or tests.ranks_nothing:
            why = tests.why_not_in_short if tests.pairs else tests.untested
            return f"{self.name}: {'cannot rank rows' if tests.pairs else 'no test'}, because {why}."
        named = (Place.TIED, Place.UNCLEAR)
        behind = tests.reference if tests.reference and tests.places.get(tests.reference.key) not in named else None
        beside = f"; reference {self._score(behind)}" if behind else ""
        return f"{self.name}: {self.leaders(SHOWN_LEADERS)}{beside}."

    def _at(self, place: Place) -> list[Score]:
        keys = self.tests.rows_at(place)
        return [score for score in self.group.scores if score.key in keys]

    @property
    def decimals(self) -> int:
        return self.group.resolved.decimals

    def _rows(self, scores: Sequence[Score], most: int = SHOWN_ROWS) -> str:
        """`vanilla and LAVO (50.00 to 49.90)`; equal means once."""
        means = [f"{score.estimate.mean:.{self.decimals}f}" for score in scores]
        ends = means[0] if means[0] == means[-1] else f"{means[0]} to {means[-1]}"
        return f"{listed([score.label for score in scores], most)} ({ends})"

    def _score(self, score: Score) -> str:
        return f"{score.name} {score.estimate.mean:.{self.decimals}f}"


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


def parts_of_means(answered: Sequence[ColumnAnswer]) -> set[str]:
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


def baseline_name(row: str) -> str:
    """`6-gram` for the row `baseline: 6-gram`."""
    return row.removeprefix(BASELINE)


def column_lines(answered: Sequence[ColumnAnswer]) -> tuple[list[str], list[list[str]]]:
    """The header and one line per column."""
    header = ["column", "budget", "rows", "seeds", "control", "R", "pairs resolved"]
    lines = [[a.name, a.group.budget, f"{a.tests.rows}", a.seeds, a.control, a.resolution, a.pairs] for a in answered]
    return header, lines
