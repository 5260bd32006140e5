"""The page of agreement with the papers: tau, its interval, and p-values corrected over all columns."""

import dataclasses

import pytest

from harness.records.collect import frame
from harness.report.pages import agreement, answer
from harness.report.pages.agreement import column_agreement
from harness.report.scores import groups, select
from harness.report.scores.paired import holm
from harness.report.stats.ordering import Agreement, bootstrap_interval
from tests.helpers.pages import T11
from tests.helpers.synthetic import seeds

REDUCED = {"budget": "reduced", "source": "synthetic"}
# the paper's accuracies on ListOps: LAVO 40.57, BigBird 39.25, softmax attention 38.37, Linformer 37.45
SAME = {"lavo": 0.5, "bigbird": 0.4, "vanilla": 0.3, "linformer_skyformer": 0.2, "no_mixing": 0.1}


def answered(scores, noise=0.001):
    records = [
        record
        for model, score in scores.items()
        for record in seeds(model, "lra/listops", [score, score + noise, score - 2 * noise], **REDUCED)
    ]
    return answer.answers(groups.group_scores(select.select(frame(records), T11), T11))


def line(column, order, **changes):
    beside = column_agreement(column.spec, column.group)
    return agreement.Line("lavo/t11", column, dataclasses.replace(beside, order=order), **changes)


def test_the_interval_of_tau_by_hand():
    theirs = {"a": 1.0, "b": 2.0, "c": 3.0}
    apart = {"a": [1.0, 1.1, 0.9], "b": [2.0, 2.1, 1.9], "c": [3.0, 3.1, 2.9], "ours alone": [0.0, 0.0, 0.0]}
    assert bootstrap_interval(apart, theirs) == (1.0, 1.0)
    # b and c have the same seeds: one of their two orders, or a tie, in each draw
    assert bootstrap_interval(apart | {"b": [2.0, 3.0, 2.5], "c": [2.0, 3.0, 2.5]}, theirs) == (
        pytest.approx(1 / 3),
        1.0,
    )
    assert bootstrap_interval(apart | {"b": [2.0, 3.0]}, theirs) is None, "two seeds have no interval"
    assert bootstrap_interval({"a": [1.0, 1.1, 0.9], "b": [2.0, 2.1, 1.9]}, theirs) is None
    equal = {row: [5.0, 5.0, 5.0] for row in theirs}
    assert bootstrap_interval(equal, theirs) is None, "all ties"


def test_the_same_order_is_counted_and_corrected_for_all_columns(tmp_path):
    (column,) = answered(SAME)
    lines = agreement.lines_of([("lavo/t11", [column]), ("lavo/t11", [column]), ("llp/t6", ())])
    beside = lines[0].beside
    assert (beside.order.tau, beside.order.rows) == (1.0, 4) and beside.interval == (1.0, 1.0)
    assert beside.order.p == pytest.approx(2 / 24) and lines[0].corrected == pytest.approx(4 / 24)
    assert lines[0].verdict == agreement.UNCLEAR and beside.separable == (1, 6)
    (flat,) = answered(SAME | {"no_mixing": 0.3})
    ((path, text),) = agreement.pages([("lavo/t11", [flat])], tmp_path).items()
    assert path == tmp_path / "agreement.md"
    assert "| 1 of 6 | not told apart | not clearly behind: cannot rank rows |" in text


def test_what_agrees_and_what_disagrees_is_named():
    (column,), p = answered(SAME), [0.001, 0.004, 0.03, 0.5]
    orders = [Agreement(0.9, p[0], 7), Agreement(-0.8, p[1], 7), Agreement(0.7, p[2], 7), Agreement(0.1, p[3], 7)]
    lines = [line(column, order, corrected=corrected) for order, corrected in zip(orders, holm(p), strict=True)]
    assert [entry.verdict for entry in lines] == ["agrees", "disagrees", "not told apart", "not told apart"]
    assert line(column, Agreement(None, None, 2, "too few")).verdict == "too few rows"


def test_only_published_columns_at_a_smaller_budget_are_compared(tmp_path):
    at_paper = answer.answers(
        groups.group_scores(select.select(frame(seeds("lavo", "lra/listops", [0.4, 0.5, 0.6])), T11), T11)
    )
    assert at_paper and agreement.lines_of([("lavo/t11", at_paper)]) == []
    assert agreement.pages([("lavo/t11", at_paper)], tmp_path) == {}
