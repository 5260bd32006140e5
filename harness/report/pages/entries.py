"""Entries of the grids on a page: names of rows, and scores with their interval, marks and card."""

from harness.report.pages.notes import BELOW, UNCLEAR, score_text
from harness.report.render.layout import Card, TableEntry
from harness.report.scores.groups import Group
from harness.report.scores.places import Place
from harness.report.scores.scores import Score
from harness.report.spec.table import TableSpec

EMPTY = TableEntry("–", tone="muted")


def short_entry(spec: TableSpec, group: Group, score: Score | None) -> TableEntry:
    """`20.0 ? †`: the mean without interval, with its marks; how runs ended, without a mean."""
    if score is None:
        return EMPTY
    tests, card = group.comparison, card_of(score, group, spec)
    if not score.by_seed:
        return TableEntry(score.failure_text, tone="bad", card=card)
    parts = [f"{score.estimate.mean:,.{group.resolved.decimals}f}", *_marks(group, score), *score.signs]
    return TableEntry(" ".join(parts), bold=tests.places.get(score.key) is Place.TIED, card=card)


def _marks(group: Group, score: Score) -> list[str]:
    """`?` and `†`"""
    tests = group.comparison
    return [UNCLEAR] * (tests.places.get(score.key) is Place.UNCLEAR) + [BELOW] * bool(tests.below.get(score.key))


def score_entry(spec: TableSpec, score: Score, group: Group, alone: bool = False) -> TableEntry:
    """The score with its marks, bold if it is tied for best. `alone`: the mean alone."""
    is_alone = alone and not group.comparison.runs
    text = f"{score.estimate.mean:,.{group.resolved.decimals}f}" if is_alone else score_text(group, score)
    is_tied = group.comparison.places.get(score.key) is Place.TIED
    tone, card = "" if score.by_seed else "bad", card_of(score, group, spec)
    return TableEntry(" ".join([text, *_marks(group, score)]), bold=is_tied, tone=tone, card=card)


def card_of(score: Score, group: Group, spec: TableSpec) -> Card:
    """The number of each seed, by the metric that the column shows."""
    column = spec.columns.get(group.column)
    metric = "" if column is None else column.metric or column.record_field or ""
    measure = f"{metric} of {column.evaluation}" if column is not None and column.evaluation else metric
    by_seed = {seed: f"{value:,.{group.resolved.decimals}f}" for seed, value in score.by_seed.items()}
    return Card(group.resolved.heading, measure, by_seed, score.cells)


def row_entry(spec: TableSpec, row: str, setting: str = "") -> TableEntry:
    """The name of a row. Footnotes are here for a row that the paper lacks, else at the published numbers."""
    text = spec.row_name(row) + (f" ({setting})" if setting else "")
    return TableEntry(text, spec.footnotes_of(row=row) if spec.is_ours(row) else ())


def muted(text: str) -> TableEntry:
    return TableEntry(text, tone="muted")
