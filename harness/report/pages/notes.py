"""The notes below a block: which rows are below a simple predictor, and what stands behind the tests of its columns."""

from collections.abc import Mapping, Sequence

from harness.report.render import wording
from harness.report.render.layout import Block, TableEntry
from harness.report.render.words import listed, span
from harness.report.scores.groups import Group
from harness.report.scores.scores import LEAK, Score
from harness.report.scores.tuning import AT_FLOOR, EDGE, OUTDONE
from harness.report.stats.grouping import grouped
from harness.report.stats.seeds import significant

RECIPE = "(recipe)"  # behind a learning rate that no search chose
BELOW = "†"  # marks a score below a baseline
UNCLEAR = "?"
SIGNS = {  # in an entry of a short grid -> what it means
    UNCLEAR: wording.SIGN_UNCLEAR,
    BELOW: wording.SIGN_BELOW,
    LEAK: wording.SIGN_LEAK,
    EDGE: wording.SIGN_EDGE,
    OUTDONE: wording.SIGN_OUTDONE,
    AT_FLOOR: wording.SIGN_AT_FLOOR,
    RECIPE: wording.SIGN_RECIPE,
    "–": wording.SIGN_NO_RUN,
}


def label_with_fit(row: str, groups: Sequence[Group]) -> str:
    """`baseline: 6-gram (819,200 bytes, 0.73 s)`: its row in these columns, with what it was fitted to and how long."""
    fits = [group.fits[row] for group in groups if group.fits.get(row, {}).get("saw")]
    if not fits:
        return row
    duration = span(map(significant, sorted(fit["seconds"] for fit in fits)))
    return f"{row} ({' or '.join(dict.fromkeys(fit['saw'] for fit in fits))}, {duration} s)"


def size_block(groups: Sequence[Group]) -> Block | None:
    """A line per distinct size, ours beside the paper's, with its columns; None without a size."""
    names = dict.fromkeys((size, group.in_grid(group.resolved.short_name)) for group in groups for size in group.sizes)
    rows = [(listed(columns), size.ours, size.paper or "–") for size, columns in grouped(names).items()]
    return Block("Sizes", ("columns", "ours", "the paper's"), rows, "lll") if rows else None


def predictor_notes(groups: Sequence[Group]) -> list[str]:
    """The columns whose simple predictors have no valid file."""
    columns = [group.column for group in groups if group.unmeasured]
    where = f" in {listed(columns)}" if columns and len(groups) > 1 else ""
    return [wording.UNMEASURED.format(where)] if columns else []


def solved_notes(groups: Sequence[Group]) -> list[str]:
    """A line per threshold from which a run counts as solved."""
    thresholds = grouped(
        (f"{runs.threshold:.{group.resolved.decimals}f}{runs.between and f', half way between {runs.between}'}", group)
        for group in groups
        if (runs := group.comparison.runs)
    )
    where = {start: listed([group.column for group in some]) for start, some in thresholds.items()}
    return [f"Solved{f' in {columns}' if len(groups) > 1 else ''}: from {start}." for start, columns in where.items()]


def score_text(group: Group, score: Score) -> str:
    """`20.0 ± 0.6 (5)`, or `20.8 (0/5 solved, 0 to 54 %)` where tests compare solved runs."""
    runs, decimals = group.comparison.runs, group.resolved.decimals
    if not (runs and score.by_seed):
        return score.text(decimals)
    failures = f"; {score.failure_text}" if score.failures else ""
    return " ".join([f"{score.estimate.mean:,.{decimals}f} ({runs.text(score.key)}{failures})", *score.signs])


def signs_line(rows: Sequence[Sequence[TableEntry]]) -> list[str]:
    """One sentence on the signs that stand in these rows; none without a sign."""
    texts = [entry if isinstance(entry, str) else entry.text for row in rows for entry in row[1:]]
    used = [f"{sign}: {meaning}" for sign, meaning in SIGNS.items() if any(sign in text for text in texts)]
    return [f"Signs: {'; '.join(used)}."] if used else []


def shared_notes(notes: Mapping[str, Sequence[str]]) -> list[str]:
    """Each sentence once, after the names of its columns unless it holds for all of them."""
    columns_of = grouped((sentence, column) for column, sentences in notes.items() for sentence in sentences)
    return [
        sentence if len(columns) == len(notes) else f"{', '.join(columns)}: {sentence}"
        for sentence, columns in columns_of.items()
    ]
