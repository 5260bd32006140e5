"""Simple predictors beside the published numbers of a paper's columns: a row, a list, and the first line of the page.

All of them show the strongest predictor of a column (`Group.strongest`) that was fitted to complete data at the paper's
budget, and count the same printed numbers.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from harness.report.pages.answer import baseline_name
from harness.report.pages.entries import EMPTY, muted
from harness.report.pages.grids import PREDICTOR
from harness.report.render.layout import Block, TableEntry
from harness.report.render.words import counted, span
from harness.report.scores.groups import Group, ProtocolResults, ScoreLine
from harness.report.scores.paper_data import PaperData
from harness.report.scores.predictors import is_validated
from harness.report.spec.parts import PublishedNumber
from harness.report.spec.table import TableSpec
from harness.report.stats.grouping import grouped
from harness.report.stats.seeds import significant

TITLE = "Simple predictors on the complete data, at the paper's budget"
HEADER = ("column", "predictor", "score", "fitted to", "seconds", "test examples", "printed rows below", "data")
SHOWN = 3  # columns in the first line
ROW = f"{PREDICTOR} (ours)"
ON_TEST = ", chosen on the test split"  # which the recipe validates on


@dataclass(frozen=True)
class Standing:
    """The strongest predictor of a group among the printed numbers of its column, best first."""

    group: Group
    printed: tuple[PublishedNumber, ...]

    @property
    def below(self) -> int:
        """The number of printed rows whose number is worse."""
        limit, higher = self.group.strongest.estimate.mean, self.group.resolved.higher_is_better
        return sum(number.number < limit if higher else number.number > limit for number in self.printed)

    @property
    def share(self) -> str:
        """`9 of 10` rows; a dash where the paper prints none."""
        return f"{self.below} of {len(self.printed)}" if self.printed else "–"

    @property
    def text(self) -> str:
        return self.group.strongest.number(self.group.resolved.decimals)


def standing(spec: TableSpec, group: Group) -> Standing | None:
    """None for a group without a predictor on complete data."""
    if group.strongest is None or not _data(group):
        return None
    numbers = [spec.published[row, group.column] for row in spec.rows if (row, group.column) in spec.published]
    best_first = sorted(numbers, key=lambda printed: printed.number, reverse=bool(group.resolved.higher_is_better))
    return Standing(group, tuple(best_first))


def predictor_row(spec: TableSpec, groups: Sequence[Group]) -> list[TableEntry] | None:
    """The strongest predictor of each column, to follow the printed rows; None if no column has one."""
    standings = [standing(spec, group) for group in groups]
    if not any(standings):
        return None
    return [muted(ROW), *(muted(each.text) if each else EMPTY for each in standings)]


def predictors_block(spec: TableSpec, groups: Sequence[Group]) -> Block | None:
    """A line per column: what its strongest predictor is, and how many printed rows are below it."""
    standings = [each for group in groups if (each := standing(spec, group))]
    if not standings:
        return None
    return Block(TITLE, HEADER, [_list_row(each) for each in standings], "llrrrrrl")


def first_line(results: Sequence[ProtocolResults]) -> list[str]:
    """In how many columns no printed row reaches the strongest predictor; none without a predictor.

    A column of several protocols counts once, and a mean of printed columns does not count again.
    """
    by_column = grouped(
        (group.column, each)
        for result in results
        for group in result.paper
        if group.column in result.spec.verdict_columns and (each := standing(result.spec, group)) and each.printed
    )
    if not by_column:
        return []
    unreached = [
        name for name, of_column in by_column.items() if all(each.below == len(each.printed) for each in of_column)
    ]
    named = [_against_best(name, by_column[name]) for name in (unreached or list(by_column))]
    examples = ", ".join(named[:SHOWN]) + (", .." if len(named) > SHOWN else "")
    count = counted(len(by_column), "column")
    return [f"No printed row reaches the strongest simple predictor in {len(unreached)} of {count} ({examples})."]


def _against_best(column: str, of_column: Sequence[Standing]) -> str:
    """`ListOps 55.75 against 40.57`: the best printed row, and the predictor under the protocol of this row."""
    higher = of_column[0].group.resolved.higher_is_better
    best = (max if higher else min)(of_column, key=lambda each: each.printed[0].number)
    return f"{column} {best.text} against {best.printed[0].text}"


def tidy_marks(spec: TableSpec, group: Group, line: ScoreLine) -> dict[str, str]:
    """What the long CSV says of a predictor's row: its data, and of the strongest one the printed rows below it."""
    each = standing(spec, group)
    if each is None:
        return {}
    origins = [(one.file["data"]["source"], one.name) for one in _data(group)]
    source, data = ("; ".join(dict.fromkeys(names)) for names in zip(*origins, strict=True))
    is_strongest = line.score == group.strongest
    return {"source": source, "data": data, "notes": f"{ROW}; rows below: {each.share}" if is_strongest else ""}


def _list_row(each: Standing) -> list[str]:
    group = each.group
    parts = list(group.parts.values()) or [group]
    data, fits = _data(group), [part.fits.get(part.strongest.row, {}) for part in parts]
    names = {}
    for part in parts:
        is_chosen = is_validated(part.fits, part.strongest.row, part.paper_data.metric)
        names[baseline_name(part.strongest.row) + ("" if is_chosen else ON_TEST)] = None
    return [
        group.resolved.heading,
        ", ".join(names),
        each.text,
        " or ".join(dict.fromkeys(fit["saw"] for fit in fits if fit.get("saw"))) or "–",
        significant(sum(fit.get("seconds", 0) for fit in fits)),
        span([f"{n:,}" for n in sorted({one.sizes["test"] for one in data})]),
        each.share,
        "; ".join(dict.fromkeys(one.name for one in data)),
    ]


def _data(group: Group) -> list[PaperData]:
    """The data of a column, or of the columns of an average; none unless all have some."""
    data = [part.paper_data for part in group.parts.values()] or [group.paper_data]
    return [] if None in data else data
