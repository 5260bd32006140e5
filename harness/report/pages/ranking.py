"""The ranks of a table of `every` model: the ranked rows and columns, and their section of the page.

Each score is rescaled so that the column's control is 0 and its reference is 1; columns of different units can then be
averaged. Only complete rows are ranked: those with every seed of the table in each ranked column. A column whose
control is not apart ranks nothing and is left out. While runs are missing, the row or column that lacks the largest
share of them is removed, until nothing is missing. The page names all that is left out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from harness.report.render.layout import Block, Section, Table, tidy_row
from harness.report.scores.groups import Group, ProtocolResults
from harness.report.scores.scores import Score
from harness.report.stats.ranks import DRAWS, RankedRow, rank_rows

if TYPE_CHECKING:
    from harness.report.spec.table import TableSpec

MIN_ROWS = 3  # control and reference, which are 0 and 1, and another one
MIN_COLUMNS = 2
NOT_APART = "the control is not apart"
RANKS = "ranks"  # column of the long CSV
HOW = (
    "Ranks: a score is 0 at the control and 1 at the reference of its column. The mean of a row is interquartile: of "
    "the middle half of its scores in all ranked columns and seeds. Its interval and the range of its rank are those "
    f"of 95 % of {DRAWS:,} bootstrap draws: columns with replacement, then seeds within each (Agarwal et al., 2021). "
    "What n seeds add to such an interval is too narrow by the factor √((n - 1) / n).",
    "Ranked are the columns whose control is apart and the rows that have every seed of the table in each of them. "
    "While runs are missing, the row or column that lacks the largest share of them is taken away, one after another, "
    "until nothing is missing.",
)


@dataclass(frozen=True)
class Ranking:
    """`columns` and `rows`: what is ranked, rows best first. `left_out`: column -> why. `missing`: each other row with
    a score in a ranked column -> the ranked columns that it lacks, or lacks seeds of. `scores`: (row, ranked column) ->
    score from 0, the control, to 1, the reference, the mean of the table's seeds that there are. `data`: of columns.
    """

    columns: tuple[str, ...]
    rows: tuple[RankedRow, ...]
    left_out: Mapping[str, str]
    missing: Mapping[str, tuple[str, ...]]
    scores: Mapping[tuple[str, str], float]
    data: Mapping[str, str]


def ranking(spec: "TableSpec", results: Sequence[ProtocolResults]) -> Ranking:
    """The ranks of a table at its own budget. Without enough complete rows nothing is ranked."""
    import numpy as np

    groups = _groups_by_column(spec, results)
    left_out = {name: why for name in _ranking_columns(spec) if (why := _why_not(spec, groups.get(name)))}
    apart = [name for name in groups if name not in left_out]
    complete = {name: {s.row for s in groups[name].scores if _is_complete(spec, s)} for name in apart}
    columns, rows = complete_block(complete)
    count = len(set().union(*complete.values()))
    left_out |= {name: f"{len(complete[name])} of {count} rows have it" for name in apart if name not in columns}
    relative = {
        (score.row, name): _relative(spec, groups[name], score)
        for name in columns
        for score in groups[name].scores
        if _is_plain(score) and _seed_values(spec, score)
    }
    scores = {pair: sum(values) / len(values) for pair, values in relative.items()}
    lacking = {
        row: tuple(name for name in columns if row not in complete[name])
        for row in sorted({row for row, _ in scores} - set(rows))
    }
    cube = [[relative[row, name] for name in columns] for row in rows]
    ranked = rank_rows(rows, np.array(cube)) if rows else []
    in_order = {name: left_out[name] for name in spec.columns if name in left_out}
    data = {name: groups[name].source for name in columns}
    return Ranking(tuple(columns), tuple(ranked), in_order, lacking, scores, data)


def _ranking_columns(spec: "TableSpec") -> list[str]:
    return [name for name, column in spec.columns.items() if column.ranks]


def _groups_by_column(spec: "TableSpec", results: Sequence[ProtocolResults]) -> dict[str, Group]:
    """Each column at the table's budget, in the table's order; of several choices of data the one with most rows."""
    by_column: dict[str, list[Group]] = {}
    for group in (group for result in results for group in (*result.own, *result.others)):
        if group.budget == spec.budget:
            by_column.setdefault(group.column, []).append(group)
    columns = [name for name in _ranking_columns(spec) if name in by_column]
    return {name: min(by_column[name], key=lambda group: (-len(group.scores), group.data)) for name in columns}


def _why_not(spec: "TableSpec", group: Group | None) -> str:
    """Why a column cannot rank; empty if it can."""
    if group is None or not any(score.by_seed for score in group.scores):
        return "no run"
    tests = group.comparison
    if tests.resolution is None:
        return tests.missing
    if tests.ranks_nothing:
        return f"{NOT_APART} ({tests.why_not})"
    for score in (tests.control, tests.reference):
        if not _is_complete(spec, score):
            return f"{score.row} has not all {len(spec.seeds)} seeds"
    return ""


def _is_plain(score: Score) -> bool:
    """A score of the recipe's own configuration."""
    return bool(score.by_seed) and not score.setting


def _is_complete(spec: "TableSpec", score: Score) -> bool:
    return _is_plain(score) and set(spec.seeds) <= set(score.by_seed)


def complete_block(complete: Mapping[str, set[str]]) -> tuple[list[str], list[str]]:
    """Columns and rows without a gap, out of {column: the rows that have it}; none if too few are left.

    The row or the column with the largest share of gaps goes first; of equal ones a row, the last by its name.
    """
    columns, rows = list(complete), sorted(set().union(*complete.values()))
    while columns and rows:
        row_gaps = {row: Fraction(sum(row not in complete[name] for name in columns), len(columns)) for row in rows}
        column_gaps = {name: Fraction(len(set(rows) - complete[name]), len(rows)) for name in columns}
        worst_row, worst_column = max(rows, key=lambda row: (row_gaps[row], row)), max(columns, key=column_gaps.get)
        if not max(row_gaps[worst_row], column_gaps[worst_column]):
            break
        if row_gaps[worst_row] >= column_gaps[worst_column]:
            rows.remove(worst_row)
        else:
            columns.remove(worst_column)
    if columns:  # what went early may fit what is left
        rows = sorted(set.intersection(*(complete[name] for name in columns)))
        columns = [name for name in complete if set(rows) <= complete[name]]
    return (columns, rows) if len(rows) >= MIN_ROWS and len(columns) >= MIN_COLUMNS else ([], [])


def _seed_values(spec: "TableSpec", score: Score) -> list[float]:
    return [score.by_seed[seed] for seed in spec.seeds if seed in score.by_seed]


def _relative(spec: "TableSpec", group: Group, score: Score) -> list[float]:
    """The scores of a row, seed by seed: 0 is the mean of the control, 1 that of the reference."""
    pair = (group.comparison.control, group.comparison.reference)
    low, high = (sum(values) / len(values) for values in (_seed_values(spec, side) for side in pair))
    return [(value - low) / (high - low) for value in _seed_values(spec, score)]


def with_ranks(table: Table, spec: "TableSpec", results: Sequence[ProtocolResults]) -> Table:
    """The page with its ranks in front."""
    ranks = ranking(spec, results)
    sentences = _sentences(ranks)
    if ranks.rows:
        section = Section("Ranks", (_ranks_block(spec, ranks),))
    else:
        command = f"python run.py -m table={spec.name} budget={spec.budget}"
        section = Section("Ranks", (), (*sentences, f"To run what is missing: {command}"))
    return replace(
        table,
        answer=(*sentences, *table.answer),
        sections=(section, *table.sections),
        caption=(*table.caption, *HOW),
        tidy=(*table.tidy, *(_tidy_rank(spec, ranks, row) for row in ranks.rows)),
    )


def _sentences(ranks: Ranking) -> list[str]:
    """The best rows; the columns that are left out; the rows that are not complete."""
    lines = [f"No ranks: fewer than {MIN_ROWS} rows are complete in a column whose control is apart."]
    if ranks.rows:
        best = ", ".join(f"{row.row} ({row.mean:.2f})" for row in ranks.rows if row.ranks[0] == 1)
        lines = [
            f"Ranks of {len(ranks.rows)} complete rows over {len(ranks.columns)} columns; "
            f"in 95 % of the draws these can be the first: {best}."
        ]
    by_reason: dict[str, list[str]] = {}
    for name, why in ranks.left_out.items():
        by_reason.setdefault(why, []).append(name)
    if by_reason:
        parts = (f"{', '.join(names)}: {why}" for why, names in by_reason.items())
        lines.append(f"Left out of the ranks: {'; '.join(parts)}.")
    if ranks.missing:
        rows = (f"{row} ({len(columns)} of {len(ranks.columns)})" for row, columns in ranks.missing.items())
        lines.append(f"Without a rank, with the columns that they lack: {', '.join(rows)}.")
    return lines


def _ranks_block(spec: "TableSpec", ranks: Ranking) -> Block:
    header = ("rank", "model", "interquartile mean", "95 % interval", "rank in 95 % of draws")
    rows = [
        (f"{row.rank}", row.row, f"{row.mean:z.3f}", " to ".join(f"{end:z.3f}" for end in row.interval), _span(row))
        for row in ranks.rows
    ]
    lines = [f"Ranked over {', '.join(f'{name} ({ranks.data[name]})' for name in ranks.columns)}."]
    if lacking := "; ".join(f"{row} lacks {', '.join(columns)}" for row, columns in ranks.missing.items()):
        lines.append(f"Not ranked: {lacking}.")
    title = f"{spec.budget} budget · {len(ranks.rows)} rows, {len(ranks.columns)} columns, {len(spec.seeds)} seeds"
    return Block(title, header, rows, "rlrrr", lines=lines)


def _span(row: RankedRow) -> str:
    low, high = row.ranks
    return f"{low}" if low == high else f"{low} to {high}"


def _tidy_rank(spec: "TableSpec", ranks: Ranking, row: RankedRow) -> dict[str, str]:
    """The interquartile mean, its interval as lowest and highest, the rank in the notes."""
    low, high = row.interval
    note = f"rank {row.rank}, in 95 % of draws {_span(row)}; {len(ranks.columns)} columns"
    numbers = {"ours_mean": row.mean, "ours_min": low, "ours_max": high, "n": len(spec.seeds), "notes": note}
    return tidy_row(spec, row.row, RANKS, budget=spec.budget, source="records", status="done", **numbers)
