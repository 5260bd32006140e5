"""The ranks of a table of `every` model on its page: opening sentences, section, and rows of the long CSV."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

from harness.errors import agreeing
from harness.report.pages.ranking import CEILING_DISTANCE, CEILING_ROWS, MIN_COLUMNS, MIN_ROWS, Ranking, ranking
from harness.report.render.layout import Block, Section, Table, tidy_row
from harness.report.render.words import counted, joined, listed, span
from harness.report.scores.comparison import NOT_BEHIND, NOT_SEARCHED
from harness.report.scores.groups import ProtocolResults
from harness.report.spec.table import TableSpec
from harness.report.stats.grouping import grouped
from harness.report.stats.ranks import DRAWS, RankedRow
from harness.report.stats.seeds import LEVEL

RANKS, MIDDLE, WORST = "ranks", "ranks/interquartile mean", "ranks/worst column"  # columns of the long CSV
SHOWN, SHOWN_ABILITIES = 3, 4  # names in a sentence of the top
FEW = 5  # fewer abilities are called few
HOW = (
    "Ranks: a score is 0 at the control and 1 at the reference of its column. An ability is the mean of its columns, "
    "and the mean of a row, which ranks it, is over abilities. Its interval and the range of its rank are those of "
    f"95 % of {DRAWS:,} bootstrap draws: abilities with replacement, columns within each, then seeds, also those of "
    "control and reference (Agarwal et al., 2021). What n seeds add to such an interval is too narrow by the factor "
    "√((n - 1) / n).",
    "Rank without one ability: the range over all abilities that can be left out. Interquartile mean: of the middle "
    "half of the scores of all abilities and seeds; it leaves out what most rows can do and what few can do, and "
    "cannot rank rows. Worst column: the lowest score of a row.",
    "Ranked are the columns that are not at the ceiling and whose control is clearly behind the reference, and the "
    "rows that have every seed of the table in each of them. At the ceiling, more than "
    f"{100 * CEILING_ROWS} % of the rows, the reference included, are within {CEILING_DISTANCE:g} of the reference. "
    "While runs are missing, the row or column that lacks the largest share of them is taken away, one after another, "
    "until nothing is missing.",
)


def with_ranks(table: Table, spec: TableSpec, results: Sequence[ProtocolResults]) -> Table:
    """The page with its ranks in front."""
    ranks = ranking(spec, results)
    lines = sentences(ranks)
    if ranks.rows:
        others = (replace(section, is_appendix=True) for section in table.sections)
        sections = (Section("Ranks", (_ranks_block(spec, ranks),)), *others)
        first = _first_lines(ranks)
    else:
        command = f"python run.py -m table={spec.name} budget={spec.budget}"
        sections = (*table.sections, Section("Ranks", (), (f"To run what is missing: {command}",)))
        first = [_no_ranks()]
    return replace(
        table,
        answer=(*lines, *table.answer),
        headline=(*first, *table.headline),
        sections=sections,
        caption=(*table.caption, *(HOW if ranks.rows else ())),
        tidy=(*table.tidy, *(line for row in ranks.rows for line in _tidy_ranks(spec, ranks, row))),
    )


def _first_lines(ranks: Ranking) -> list[str]:
    """Who is ahead, on which data, and how far that can be trusted, in few words."""
    names = [f"{row.row} ({_mean(row)})" for row in ranks.rows[:SHOWN]]
    data = listed(list(dict.fromkeys(ranks.data.values())))
    ahead = f"Ahead by the mean of {_abilities(ranks)} ({data} data): {', '.join(names)}, of {len(ranks.rows)} rows."
    if len(ranks.abilities) < 2:
        return [ahead, f"{_can_be_first(ranks)} (bootstrap)."]
    places, *_ = _largest_move(ranks)
    moves = f"moves ranks by up to {counted(places, 'place')}" if places else "moves no rank"
    return [ahead, f"{_can_be_first(ranks)} (bootstrap); leaving one ability out {moves}."]


def sentences(ranks: Ranking) -> list[str]:
    """Who is ahead and over what; whether that holds; what counts once; what is left out, and why."""
    lines = [_leaders(ranks), _trust(ranks), _variants(ranks)] if ranks.rows else [_no_ranks()]
    if ranks.at_ceiling:
        columns = [f"{name} ({near} of {rows})" for name, (near, rows) in ranks.at_ceiling.items()]
        lines.append(
            f"Not ranked, because more than {_percent(CEILING_ROWS)} of their rows are within {CEILING_DISTANCE:g} of "
            f"the reference: {listed(columns)}."
        )
    in_short = {
        name: next((reason for reason in (NOT_BEHIND, NOT_SEARCHED) if why.startswith(reason)), why)
        for name, why in ranks.left_out.items()
    }
    by_reason = grouped((why, name) for name, why in in_short.items()).items()
    if parts := [f"{joined(names)}: {why}" for why, names in by_reason]:
        lines.append(f"Left out of the ranks: {'; '.join(parts)}.")
    return [line for line in lines if line]


def _no_ranks() -> str:
    return (
        f"No ranks: fewer than {MIN_ROWS} rows are complete in {MIN_COLUMNS} columns that are not at the ceiling and "
        "whose control is clearly behind the reference, at learning rates that a search chose for each row."
    )


def _leaders(ranks: Ranking) -> str:
    """`Ahead: softmax attention (1.00), before RWKV-4 (0.91) and H3 (0.88), of 16 rows by the mean ...`

    Rows with the same printed mean are ahead together.
    """
    best = [row for row in ranks.rows if _mean(row) == _mean(ranks.rows[0])]
    others = ranks.rows[len(best) : max(SHOWN, len(best) + 1)]
    before = f", before {listed([f'{row.row} ({_mean(row)})' for row in others], SHOWN)}" if others else ""
    return (
        f"Ahead: {listed([row.row for row in best], SHOWN)} ({_mean(best[0])}){before}, of {len(ranks.rows)} rows by "
        f"the mean (control 0, reference 1) of {_abilities(ranks)}: "
        f"{listed(list(ranks.abilities), SHOWN_ABILITIES)}."
    )


def _mean(row: RankedRow) -> str:
    return f"{row.mean:z.2f}"


def _abilities(ranks: Ranking) -> str:
    return counted(len(ranks.abilities), "ability", "abilities")


def _trust(ranks: Ranking) -> str:
    """Which rank moves most if an ability is left out, and who else can be first."""
    draws = f"In {_percent(LEVEL)} of the draws {_can_be_first(ranks)}."
    few = f"Only {_abilities(ranks)}" if len(ranks.abilities) < FEW else _abilities(ranks)
    if len(ranks.abilities) < 2:
        return f"{few}: nothing says how ranks move with the choice of tasks. {draws}"
    places, row, ability = _largest_move(ranks)
    if not places:
        return f"{few}: leaving one out moves no rank. {draws}"
    move = f"{row.row} without {ability}: {row.rank} to {row.rank_without[ability]}"
    return f"{few}: leaving one out moves ranks by up to {counted(places, 'place')} ({move}). {draws}"


def _can_be_first(ranks: Ranking) -> str:
    """`softmax attention and LAVO can be first`"""
    first = [row.row for row in ranks.rows if row.ranks[0] == 1]
    names = f"{len(first)} rows" if len(first) > SHOWN else listed(first, SHOWN)
    return f"{names} {'can be' if len(first) > 1 else 'is'} first"


def _largest_move(ranks: Ranking) -> tuple[int, RankedRow, str]:
    """(places, row, ability that is left out); of several such moves the first."""
    moves = [(abs(rank - row.rank), row, ability) for row in ranks.rows for ability, rank in row.rank_without.items()]
    return max(moves, key=lambda move: move[0])


def _percent(share: Fraction | float) -> str:
    return f"{100 * float(share):g} %"


def _variants(ranks: Ranking) -> str:
    """Which columns count once, together; empty where each column is an ability."""
    together = "; ".join(listed(columns) for columns in ranks.abilities.values() if len(columns) > 1)
    return f"Variants of one ability, which count once: {together}." if together else ""


def _ranks_block(spec: TableSpec, ranks: Ranking) -> Block:
    header = (
        *("rank", "model", "mean", "95 % interval", "rank in 95 % of draws", "rank without one ability"),
        *("interquartile mean", "worst column"),
    )
    rows = [
        (
            f"{row.rank}",
            row.row,
            f"{row.mean:z.3f}",
            " to ".join(f"{end:z.3f}" for end in row.interval),
            _span(row.ranks),
            _span(row.rank_without.values()),
            f"{row.middle:z.3f}",
            f"{row.worst:z.3f} ({row.worst_column})",
        )
        for row in ranks.rows
    ]
    # the name alone where an ability is its only column
    names = {
        ability: ", ".join(f"{n} ({ranks.data[n]})" for n in columns) for ability, columns in ranks.abilities.items()
    }
    over = (f"{a}: {shown}" if ranks.abilities[a] != (a,) else shown for a, shown in names.items())
    lines = [f"Ranked over {'; '.join(over)}."]
    by_columns = grouped((columns, row) for row, columns in ranks.missing.items()).items()
    if lacking := [
        f"{listed(rows)} {agreeing(len(rows), 'lacks', 'lack')} {listed(names)}" for names, rows in by_columns
    ]:
        lines.append(f"Not ranked: {'; '.join(lacking)}.")
    counts = f"{len(ranks.rows)} rows, {_abilities(ranks)}, {len(ranks.columns)} columns, {len(spec.seeds)} seeds"
    return Block(f"{spec.budget} budget · {counts}", header, rows, "rl" + "r" * (len(header) - 2), lines=lines)


def _span(ranks: Iterable[int]) -> str:
    """`2`, `2 to 5`; a dash for none."""
    return span(sorted(ranks)) or "–"


def _tidy_ranks(spec: TableSpec, ranks: Ranking, row: RankedRow) -> Iterator[dict[str, str]]:
    """The mean with its interval and the ranks in the notes, the interquartile mean, the worst
    column."""
    low, high = row.interval
    shared = {"budget": spec.budget, "source": "records", "status": "done", "n": len(spec.seeds)}
    note = (
        f"rank {row.rank}, in 95 % of draws {_span(row.ranks)}, without one ability {_span(row.rank_without.values())}"
    )
    note += f"; {_abilities(ranks)}, {len(ranks.columns)} columns"
    yield tidy_row(spec, row.row, RANKS, ours_mean=row.mean, ours_ci_low=low, ours_ci_high=high, notes=note, **shared)
    yield tidy_row(spec, row.row, MIDDLE, ours_mean=row.middle, **shared)
    yield tidy_row(spec, row.row, WORST, ours_mean=row.worst, notes=row.worst_column, **shared)
