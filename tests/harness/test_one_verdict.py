"""What the committed records say, over all tables: one verdict per column, monotone places, a size line for each score,
and figures with the rows of their page."""

import functools

import pytest
from helpers.committed import cells, results_of
from helpers.pages import CONF, PAPER

from harness.config.model_names import row_name
from harness.config.table_rows import settings_key
from harness.report import spec_files
from harness.report.scores import lines
from harness.report.scores.places import Place
from harness.report.spec.figure import LineFigure
from harness.report.spec.table import TableSpec

TABLES = [
    name for name in spec_files.available([CONF]) if isinstance(spec_files.load_table(name, CONF, PAPER), TableSpec)
]
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("committed")]


@functools.cache
def columns():
    """(table, column of its yaml, group) of every column with a score from records."""
    return [
        (name, result.spec.columns[group.column], group)
        for name in TABLES
        for result in results_of(name)
        for group in (*result.paper, *result.others, *result.own)
        if any(score.by_seed and not score.counted for score in group.scores)
        and result.spec.columns.get(group.column) is not None
        and result.spec.columns[group.column].bench is None
    ]


def test_no_two_pages_disagree_on_a_column_of_the_same_records():
    verdicts = {}
    for name, column, group in columns():
        rows = {frozenset(score.cells): group.comparison.places.get(score.key) for score in group.scores}
        measured = (column.task, column.metric, column.evaluation, column.reaches, settings_key(column.set))
        key = (*measured, group.budget, group.data, frozenset(rows))
        first, verdict = verdicts.setdefault(key, (name, (group.comparison.ranks, rows)))
        assert verdict == (group.comparison.ranks, rows), f"{group.column}: {first} and {name}"
    assert len(verdicts) < len(columns()), "some columns are on two pages"


def test_tied_for_best_is_monotone_in_the_mean():
    for name, _, group in columns():
        sign = 1 if group.resolved.higher_is_better else -1
        means = {score.key: sign * score.estimate.mean for score in group.scores if score.by_seed}
        places = group.comparison.places.items()
        tied = [means[key] for key, place in places if place is Place.TIED]
        others = [means[key] for key, place in places if place is not Place.TIED]
        assert not tied or not others or min(tied) >= max(others), f"{name}: {group.column}"


def test_every_score_has_its_size_line():
    assert all(
        group.sizes and all(size.ours for size in group.sizes) for _, column, group in columns() if column.metric
    )


def test_a_figure_through_columns_draws_or_names_every_row_of_its_page():
    for name in spec_files.available([CONF], "figure"):
        figure = spec_files.load_figure(name, CONF, PAPER)
        if not isinstance(figure, LineFigure) or not figure.points:
            continue
        groups = [group for result in results_of(figure.table.name) for group in result.measured]
        shown = {score.row for group in groups if group.column in figure.points for score in group.scores}
        for panel in lines.panels(figure, cells()):
            drawn, notes = {line["name"] for line in panel["series"]}, " ".join(panel["notes"])
            assert {row for row in shown - drawn if row_name(row) not in notes} == set(), name
