"""The ranks of a table of `every` model: which of its columns and rows are ranked, and how.

Each score is rescaled so that the column's control is 0 and its reference is 1; columns of different units can then be
averaged. Columns of one ability count once. Left out are columns whose control is not clearly behind the
reference, and columns at the ceiling, where nearly all rows are as good as the reference. Only complete rows are
ranked: those with every seed of the table in each ranked column. While runs are missing, the row or column that lacks
the largest share of them is removed, until nothing is missing. Columns of two abilities stay where there are some.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from harness.report.scores.groups import Group, ProtocolResults
from harness.report.scores.scores import Score
from harness.report.spec.table import TableSpec
from harness.report.stats.grouping import grouped
from harness.report.stats.ranks import DIGITS, RankedRow, SeedScores, rank_rows

MIN_ROWS = 3  # control and reference, which are 0 and 1, and another one
MIN_COLUMNS = 2
LEAST_ABILITIES = 6  # fewer say little of a model as a whole
CEILING_ROWS = Fraction(4, 5)  # a larger share of the rows at the reference: the column is at its ceiling
CEILING_DISTANCE = 0.02  # from the reference, on the scale from control to reference


@dataclass(frozen=True)
class Ranking:
    """`columns` and `rows`: what is ranked, rows best first. `abilities`: ability -> its ranked columns.

    `at_ceiling`: column -> (rows at the reference, all rows). `left_out`: each other column that does not rank -> why.
    `missing`: each other row with a score in a ranked column -> the ranked columns that it lacks, or lacks seeds of.
    `scores`: (row, ranked column) -> score from 0, the control, to 1, the reference, the mean of the table's seeds that
    there are. `data`: of columns.
    """

    columns: tuple[str, ...]
    rows: tuple[RankedRow, ...]
    abilities: Mapping[str, tuple[str, ...]]
    at_ceiling: Mapping[str, tuple[int, int]]
    left_out: Mapping[str, str]
    missing: Mapping[str, tuple[str, ...]]
    scores: Mapping[tuple[str, str], float]
    data: Mapping[str, str]


def ranking(spec: TableSpec, results: Sequence[ProtocolResults]) -> Ranking:
    """The ranks of a table at its own budget. Without enough complete rows nothing is ranked."""
    groups = _groups_by_column(spec, results)
    ranking_columns = [name for name, column in spec.columns.items() if column.ranks]
    left_out = {name: why for name in ranking_columns if (why := _why_not(spec, groups.get(name)))}
    apart = [name for name in groups if name not in left_out]
    at_ceiling = {name: counts for name in apart if (counts := _at_ceiling(spec, groups[name]))}
    apart = [name for name in apart if name not in at_ceiling]
    complete = {name: {s.row for s in groups[name].scores if _is_complete(spec, s)} for name in apart}
    ability_of = ability_by_column(spec, {name: groups[name] for name in apart})
    columns, rows = complete_block(complete, ability_of)
    few = 0 < _count_abilities(columns, ability_of) < LEAST_ABILITIES
    columns, rows = ([], []) if few else (columns, rows)
    count = len(set().union(*complete.values()))
    why = "no other column ranks" if len(apart) == 1 else f"fewer than {LEAST_ABILITIES} abilities rank" if few else ""
    left_out |= {
        name: why or f"complete in {len(complete[name])} of {count} rows" for name in apart if name not in columns
    }
    relative = {
        (score.row, name): _relative(spec, groups[name], score)
        for name in columns
        for score in groups[name].scores
        if score.is_plain and _seed_values(spec, score)
    }
    scores = {pair: sum(values) / len(values) for pair, values in relative.items()}
    lacking = {
        row: tuple(name for name in columns if row not in complete[name])
        for row in sorted({row for row, _ in scores} - set(rows))
    }
    ability_of = ability_by_column(spec, {name: groups[name] for name in columns})
    ranked = [groups[name] for name in columns]
    ranks = rank_rows(rows, _seed_scores(spec, ranked, rows, ability_of)) if rows else ()
    return Ranking(
        columns=tuple(columns),
        rows=tuple(ranks),
        abilities={
            ability: tuple(name for name in columns if ability_of[name] == ability)
            for ability in dict.fromkeys(ability_of.values())
        },
        at_ceiling=at_ceiling,
        left_out={name: left_out[name] for name in spec.columns if name in left_out},
        missing=lacking,
        scores=scores,
        data={name: groups[name].source for name in columns},
    )


def _groups_by_column(spec: TableSpec, results: Sequence[ProtocolResults]) -> dict[str, Group]:
    """Each column at the table's budget, in the table's order; of several choices of data the one with most rows."""
    groups = [group for result in results for group in result.measured if group.budget == spec.budget]
    by_column = grouped((group.column, group) for group in groups)
    return {
        name: min(by_column[name], key=lambda group: (-len(group.scores), group.data))
        for name, column in spec.columns.items()
        if column.ranks and name in by_column
    }


def _why_not(spec: TableSpec, group: Group | None) -> str:
    """Why a column does not rank; empty if it does."""
    if reason := spec.columns[group.column].unranked if group else "":
        return reason
    if group is None or not any(score.by_seed for score in group.scores):
        return "no run"
    tests = group.comparison
    if tests.resolution is None:
        return tests.missing
    if tests.ranks_nothing:
        return tests.why_not
    for score in (tests.control, tests.reference):
        if not _is_complete(spec, score):
            return f"{score.row} has not all {len(spec.seeds)} seeds"
    return ""


def _at_ceiling(spec: TableSpec, group: Group) -> tuple[int, int] | None:
    """(complete rows at the reference, complete rows) of a column at its ceiling; None for any other column."""
    complete = [_relative(spec, group, score) for score in group.scores if _is_complete(spec, score)]
    means = [sum(values) / len(values) for values in complete]
    near = sum(round(abs(mean - 1), DIGITS) <= CEILING_DISTANCE for mean in means)
    return (near, len(means)) if near > CEILING_ROWS * len(means) else None


def ability_by_column(spec: TableSpec, groups: Mapping[str, Group]) -> dict[str, str]:
    """The ability of each column: that of the table's yaml, or the column itself.

    Columns of the same test examples, by the fingerprint of their data, are one ability, named after the first.
    """
    abilities = {name: spec.columns[name].ability or name for name in groups}
    first: dict[str, str] = {}
    for name, group in groups.items():
        fingerprints = {data for score in group.scores for data in score.data.values() if isinstance(data, str)}
        for data in sorted(fingerprints):
            kept, dropped = abilities[first.setdefault(data, name)], abilities[name]
            abilities = {key: kept if value == dropped else value for key, value in abilities.items()}
    return abilities


def _seed_scores(
    spec: TableSpec, groups: Sequence[Group], rows: Sequence[str], ability_of: Mapping[str, str]
) -> SeedScores:
    """The scores of complete rows in these columns."""
    by_row = [{score.row: _seed_values(spec, score) for score in group.scores if score.is_plain} for group in groups]
    return SeedScores(
        columns=tuple(group.column for group in groups),
        abilities=tuple(ability_of[group.column] for group in groups),
        scores=[[values[row] for values in by_row] for row in rows],
        control=[_seed_values(spec, group.comparison.control) for group in groups],
        reference=[_seed_values(spec, group.comparison.reference) for group in groups],
    )


def _is_complete(spec: TableSpec, score: Score) -> bool:
    return score.is_plain and score.search_done and set(spec.seeds) <= set(score.by_seed)


def complete_block(complete: Mapping[str, set[str]], abilities: Mapping[str, str] = {}) -> tuple[list[str], list[str]]:
    """Columns and rows without a gap, out of {column: the rows that have it}; none if too few are left.

    The row or the column with the largest share of gaps goes first; of equal ones a row, the last by its name. If only
    columns of one of the `abilities` are left, those of two are kept, at the cost of rows: the ranks of one ability are
    those of its own table.
    """
    columns, rows = _without_gaps(complete, abilities, 1)
    if columns and _count_abilities(columns, abilities) == 1:
        wider = _without_gaps(complete, abilities, 2)
        columns, rows = wider if wider[0] else (columns, rows)
    return columns, rows


def _count_abilities(columns: Iterable[str], abilities: Mapping[str, str]) -> int:
    return len({abilities.get(name, name) for name in columns})


def _without_gaps(
    complete: Mapping[str, set[str]], abilities: Mapping[str, str], least: int
) -> tuple[list[str], list[str]]:
    """`complete_block` with columns of at least so many abilities."""
    columns, rows = list(complete), sorted(set().union(*complete.values()))
    while columns and rows:
        row_gaps = {row: Fraction(sum(row not in complete[name] for name in columns), len(columns)) for row in rows}
        column_gaps = {
            name: Fraction(len(set(rows) - complete[name]), len(rows))
            for name in columns
            if least == 1 or _count_abilities({*columns} - {name}, abilities) >= least
        }
        worst_row = max(rows, key=lambda row: (row_gaps[row], row))
        worst_column = max(column_gaps, key=column_gaps.get, default=None)
        largest = column_gaps.get(worst_column, Fraction(0))
        if not max(row_gaps[worst_row], largest):
            break
        if row_gaps[worst_row] >= largest:
            rows.remove(worst_row)
        else:
            columns.remove(worst_column)
    if columns:  # what went early may fit what is left
        rows = sorted(set.intersection(*(complete[name] for name in columns)))
        columns = [name for name in complete if set(rows) <= complete[name]]
    return (columns, rows) if len(rows) >= MIN_ROWS and len(columns) >= MIN_COLUMNS else ([], [])


def _seed_values(spec: TableSpec, score: Score) -> list[float]:
    return [score.by_seed[seed] for seed in spec.seeds if seed in score.by_seed]


def _relative(spec: TableSpec, group: Group, score: Score) -> list[float]:
    """The scores of a row, seed by seed: 0 is the mean of the control, 1 that of the reference."""
    pair = (group.comparison.control, group.comparison.reference)
    low, high = (sum(values) / len(values) for values in (_seed_values(spec, side) for side in pair))
    return [(value - low) / (high - low) for value in _seed_values(spec, score)]
