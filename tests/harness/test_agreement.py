"""The page of agreement with the papers: tau, its interval, and p-values corrected over all columns."""

import dataclasses
import math

import numpy as np
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


def line(order, **changes):
    (column,) = answered(SAME)
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


def test_the_interval_is_as_wide_as_the_noise_of_the_seeds():
    """Rows whose means differ by 1.96 standard errors change places in 2.5 % of the draws."""
    generator, n = np.random.default_rng(0), 40
    noise = generator.normal(size=(2, n))
    noise = (noise - noise.mean(1, keepdims=True)) / noise.std(1, ddof=1, keepdims=True)  # standard error 1 / sqrt(n)
    shift = 1.96 * math.sqrt(2 / n)
    for factor, crosses in ((0.85, True), (1.15, False)):
        ours = {"a": [0.0] * n, "b": list(10 + noise[0]), "c": list(10 + factor * shift + noise[1])}
        low, high = bootstrap_interval(ours, {"a": 1.0, "b": 2.0, "c": 3.0})
        assert high == 1.0 and (low < 1.0) == crosses


def test_the_same_order_is_counted_and_corrected_for_all_columns():
    (column,) = answered(SAME)
    lines = agreement.lines_of([("lavo/t11", [column]), ("lavo/t11", [column]), ("llp/t6", ())])
    beside = lines[0].beside
    assert (beside.order.tau, beside.order.rows) == (1.0, 4) and beside.interval == (1.0, 1.0)
    assert beside.order.p == pytest.approx(2 / 24) and lines[0].corrected == pytest.approx(4 / 24)
    assert lines[0].verdict == agreement.UNCLEAR and beside.separable == (1, 6)
    first, power, noise = agreement.sentences(lines)
    assert first == (
        "After correction, the order of the rows agrees with the paper's in 0 of 2 columns and disagrees in 0. "
        "In the other 2, no test tells it from a random order."
    )
    assert "In 2 of these columns, even the paper's own order would not pass" in power and "at most 4 shared" in power
    assert noise.endswith("known in 2 of 2 columns, where at most 2 of 12 pairs of rows differ by more than it.")


def test_what_agrees_and_what_disagrees_is_named():
    p = [0.001, 0.004, 0.03, 0.5]
    orders = [Agreement(0.9, p[0], 7), Agreement(-0.8, p[1], 7), Agreement(0.7, p[2], 7), Agreement(0.1, p[3], 7)]
    lines = [line(order, corrected=corrected) for order, corrected in zip(orders, holm(p), strict=True)]
    assert [entry.verdict for entry in lines] == ["agrees", "disagrees", "not told apart", "not told apart"]
    first = agreement.sentences(lines)[0]
    assert "agrees with the paper's in 1 of 4 columns (lavo/t11 ListOps) and disagrees in 1 (lavo/t11 ListOps)" in first
    assert line(Agreement(None, None, 2, "too few")).verdict == "too few rows"
    assert line(Agreement(None, None, 5, "ties")).verdict == "all tied"


def test_a_column_whose_control_is_not_apart_is_said_to_rank_nothing(tmp_path):
    (column,) = answered(SAME | {"no_mixing": 0.3})
    ((path, text),) = agreement.pages([("lavo/t11", [column])], tmp_path).items()
    assert path == tmp_path / "agreement.md"
    assert (
        "In 1 of these columns the control is not clearly behind the reference: our scores cannot rank rows there."
        in text
    )
    (row,) = [entry for entry in text.splitlines() if entry.startswith("| [lavo/t11]")]
    assert (
        "1.00 | 1.00 to 1.00 | 0.083 | 0.083 | 1 of 6 | not told apart | not clearly behind: cannot rank rows |" in row
    )


def test_only_published_columns_at_a_smaller_budget_are_compared(tmp_path):
    at_paper = answer.answers(
        groups.group_scores(select.select(frame(seeds("lavo", "lra/listops", [0.4, 0.5, 0.6])), T11), T11)
    )
    assert at_paper and agreement.lines_of([("lavo/t11", at_paper)]) == []
    assert agreement.pages([("lavo/t11", at_paper)], tmp_path) == {}
