"""What a column of a table tells, in sentences for the top of its page and in one line."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from harness.report.render.words import counted, listed, span
from harness.report.scores.comparison import BASELINE, Comparison
from harness.report.scores.groups import Group, ProtocolResults
from harness.report.scores.places import Place
from harness.report.scores.scores import Score
from harness.report.spec.table import TableSpec

SHOWN_ROWS = 2  # of a place, in a sentence
LARGEST_R = 100


@dataclass(frozen=True)
class ColumnAnswer:
    """A column under one protocol, at one budget, on one choice of data.

    `protocol` is empty if the table has only one, and `data` if the column has only one choice of data.
    """

    spec: TableSpec
    group: Group
    protocol: str
    data: str = ""

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
    def pairs(self) -> str:
        return f"{self.tests.resolved} of {self.tests.possible}"

    @property
    def rows_above(self) -> int:
        """The number of rows whose mean is better than that of the strongest simple predictor."""
        limit, higher = self.group.strongest.estimate.mean, self.group.resolved.higher_is_better
        means = [score.estimate.mean for score in self._distinct]
        return sum(mean > limit if higher else mean < limit for mean in means)

    @property
    def rows_ahead(self) -> int:
        """The number of rows that a test finds better than the strongest simple predictor."""
        row = self.group.strongest.row
        return sum(row in self.tests.ahead.get(score.key, ()) for score in self._distinct)

    @property
    def _distinct(self) -> list[Score]:
        """The rows that are tested: a row that repeats another row's computation does not count again."""
        return [score for score in self.group.scores if score.by_seed and not self.spec.same_as(score.row)]

    def baseline(self) -> str:
        """`no row reaches the 6-gram baseline (5.08)`, or how many rows beat it by a test; empty without a baseline."""
        if (strongest := self.group.strongest) is None:
            return ""
        name = f"the {baseline_name(strongest.row)} baseline ({strongest.number(self.decimals)})"
        if not self.rows_above:
            return f"no row reaches {name}"
        return f"rows that a test finds ahead of {name}: {self.rows_ahead} of {self.tests.rows}"

    @property
    def why_not(self) -> str:
        """Why the column has no test or cannot rank rows; empty if it ranks them."""
        if not self.tests.pairs:
            return f"has no test, because {self.tests.untested}"
        return f"cannot rank rows, because {self.tests.why_not}" if self.tests.ranks_nothing else ""

    @property
    def verdict(self) -> str:
        """`LAVO (52.7) leads`, `A and B (100.0) are tied for best`, the rows of which neither can be said, and the
        reference where it is behind. For a column without `why_not`."""
        tests, tied, unclear = self.tests, self._at(Place.TIED), self._at(Place.UNCLEAR)
        if tests.best is None:
            return f"no row is the best one, because {tests.untested}"
        searched = counted(tests.rows - len(tests.unsearched), "row")
        among = f" among the {searched} with a searched learning rate" if tests.unsearched else ""
        verb = "are tied for best" if len(tied) > 1 else "has the best mean" if unclear else "leads"
        parts = [f"{self._rows(tied or [s for s in self.group.scores if s.key == tests.best])} {verb}{among}"]
        parts += [f"unclear: {self._rows(unclear)}"] if unclear else []
        if tests.reference and tests.reference not in (*tied, *unclear):
            parts.append(f"reference {self._score(tests.reference)}")
        return "; ".join(parts)

    @property
    def short(self) -> str:
        return f"{self.name}: {self.why_not or self.verdict}."

    def _at(self, place: Place) -> list[Score]:
        return [score for score in self.group.scores if self.tests.places.get(score.key) is place]

    @property
    def decimals(self) -> int:
        return self.group.resolved.decimals

    def _rows(self, scores: Sequence[Score]) -> str:
        """`vanilla and LAVO (50.00 to 49.90)`; equal means once."""
        means = span(f"{score.estimate.mean:.{self.decimals}f}" for score in scores)
        return f"{listed([score.label for score in scores], SHOWN_ROWS)} ({means})"

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


def baseline_name(row: str) -> str:
    """`6-gram` for the row `baseline: 6-gram`."""
    return row.removeprefix(BASELINE)


def column_lines(answered: Sequence[ColumnAnswer]) -> tuple[list[str], list[list[str]]]:
    """The header and one line per column."""
    header = ["column", "budget", "rows", "seeds", "control", "R", "pairs resolved"]
    lines = [[a.name, a.group.budget, f"{a.tests.rows}", a.seeds, a.control, a.resolution, a.pairs] for a in answered]
    return header, lines
