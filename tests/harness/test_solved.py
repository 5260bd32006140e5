"""Columns whose seeds solve a task or fail: their interval, their tests, and the pages that show them."""

from dataclasses import replace

import pytest
from scipy import stats

from harness.report.scores.comparison import compare_scores
from harness.report.scores.exact_tests import closed_test
from harness.report.scores.paired import compare_rows
from harness.report.scores.places import Place, find_places
from harness.report.scores.scores import Score
from harness.report.scores.solved import SOLVED, compare_solved, share_interval, solved_runs

PERCENT = (0.0, 100.0)
# the needle at 3 seeds: Mamba has 5.3, 91.3 and 8.4


def row(label, values, limits=PERCENT):
    seeds = range(len(values))
    return Score(label, "", dict(enumerate(values)), {}, data=dict.fromkeys(seeds, "d"), limits=limits)


def test_a_row_whose_seeds_are_on_both_sides_makes_a_column_of_solved_runs():
    control, reference = row("control", [6.0, 6.1, 6.2]), row("reference", [100.0, 100.0, 99.9])
    mamba = row("Mamba", [5.3, 91.3, 8.4])
    runs = solved_runs([reference, mamba, control], control, reference, True)
    assert runs.counts == {reference.key: (3, 3), mamba.key: (1, 3), control.key: (0, 3)}
    assert runs.threshold == pytest.approx((6.1 + 99.966667) / 2) and runs.between == "control and reference"
    assert solved_runs([reference, row("x", [90.0, 60.0, 99.0]), control], control, reference, True) is None
    assert solved_runs([row("Mamba", [5.3, 91.3, 8.4], (0.0, float("inf")))], control, reference, True) is None
    mixed = row("control", [5.0, 95.0, 4.0])
    assert solved_runs([reference, mamba, mixed], mixed, reference, True).counts[mixed.key] == (1, 3)
    alone = solved_runs([mamba], None, None, True)
    assert (alone.threshold, alone.between) == (50.0, "the limits of the scale")
    near = row("reference", [6.0, 6.2, 6.4])  # the control is not apart: no floor and no ceiling
    assert solved_runs([mamba, near], control, near, True).threshold == 50.0
    stated = solved_runs([reference, mamba, control], control, reference, True, solved_from=8.4)
    assert (stated.threshold, stated.between) == (8.4, "") and stated.counts[mamba.key] == (2, 3)
    assert solved_runs([reference, mamba, control], control, reference, True, solved_from=95.0) is None


def test_rows_with_scores_between_the_ends_are_compared_by_their_means():
    """Noisy recall: a window and LLP recall 64 % with every seed, and RetNet's seeds differ."""
    control, reference = row("control", [12.0, 12.1, 12.2]), row("reference", [100.0, 100.0, 99.9])
    split, solving = row("RetNet", [79.9, 93.0, 40.8]), [row(name, [100.0, 99.5, 99.8]) for name in "abcdefg"]
    window = row("window", [64.0, 65.1, 64.4])
    assert solved_runs([reference, *solving, split, control], control, reference, True).counts[split.key] == (2, 3)
    assert solved_runs([reference, *solving[:5], split, window, control], control, reference, True) is None
    stated = solved_runs([reference, split, window, control], control, reference, True, solved_from=50.0)
    assert stated.counts[window.key] == (3, 3)


def test_a_lower_score_may_be_the_better_one():
    errors = [row("good", [1.0, 2.0, 1.5]), row("mixed", [2.0, 95.0, 99.0]), row("bad", [99.0, 98.0, 99.5])]
    runs = solved_runs(errors, errors[2], errors[0], False)
    assert [solved for solved, _ in runs.counts.values()] == [3, 1, 0]


@pytest.mark.parametrize("count", [3, 5, 7])
def test_the_interval_of_a_share_stays_in_its_scale_and_covers(count):
    for share in (0.5, 0.8, 0.95):
        intervals = [share_interval(solved, count) for solved in range(count + 1)]
        assert all(0 <= low < high <= 1 for low, high in intervals)
        inside = [low <= share <= high for low, high in intervals]
        chances = stats.binom.pmf(range(count + 1), count, share)
        assert chances @ inside >= 0.95
    without = [stats.binomtest(solved, 3).proportion_ci(0.95, method="wilson") for solved in range(4)]
    missed = sum(
        p for p, ci in zip(stats.binom.pmf(range(4), 3, 0.8), without, strict=True) if not ci.low < 0.8 < ci.high
    )
    assert missed == pytest.approx(0.104, abs=1e-3)  # why the correction is there


def test_rows_with_more_seeds_are_judged_by_them():
    """Rows with three seeds differ by chance alone; they do not hide what five seeds of two rows show."""
    solved = [row(f"r{index}", [100.0] * 3) for index in range(9)]
    failed = [row(f"s{index}", [5.0] * 3) for index in range(3)]
    reference, control = row("reference", [100.0] * 5), row("control", [6.0] * 5)
    scores = [reference, *solved, row("mixed", [100.0, 5.0, 5.0]), *failed, control]
    runs = solved_runs(scores, control, reference, True)
    compared = compare_solved(compare_rows(scores, reference.key), runs, reference.key, reference.key)
    pairs = {pair.rows: pair for pair in compared}
    assert pairs[reference.key, control.key].is_resolved
    assert not pairs[reference.key, failed[0].key].is_resolved


def test_three_seeds_of_such_a_column_separate_nothing_and_five_with_many_solved_rows_do():
    def column(count):
        solved = [row(f"r{index}", [100.0] * count) for index in range(11)]
        failed = [row(f"s{index}", [5.0] * count) for index in range(4)]
        return [*solved, row("mixed", [100.0, 5.0, *[5.0] * (count - 2)]), *failed]

    for count, is_resolved in ((3, False), (7, True)):
        scores = column(count)
        runs = solved_runs(scores, scores[-1], scores[0], True)
        pairs = compare_solved(compare_rows(scores, scores[0].key), runs, scores[0].key, scores[0].key)
        by_rows = {pair.rows: pair for pair in pairs}
        apart = by_rows[scores[0].key, scores[-1].key]
        assert apart.is_resolved == is_resolved and apart.pairing == SOLVED
        assert apart.p == pytest.approx(stats.fisher_exact([[count, 0], [0, count]]).pvalue)
        assert all(pair.p_all >= pair.p for pair in pairs)
        equal = by_rows[scores[0].key, scores[1].key]
        assert (equal.p, equal.p_holm) == (1.0, 1.0) and not by_rows[scores[1].key, scores[2].key].is_hypothesis
        places = find_places(scores, pairs, scores[0], 95.0)
        assert places[scores[-1].key] is (Place.BEHIND if is_resolved else Place.UNCLEAR)
        assert places[scores[1].key] is Place.TIED


def test_failing_rows_do_not_hide_one_another_from_the_reference():
    def column(reference_solves):
        reference = row("reference", [100.0] * reference_solves + [5.0] * (5 - reference_solves))
        solved, failed = [row(f"r{i}", [100.0] * 5) for i in range(8)], [row(f"s{i}", [5.0] * 5) for i in range(15)]
        mixed, control = row("mixed", [100.0] * 3 + [5.0] * 2), row("control", [4.0] * 5)
        return [reference, *solved, mixed, *failed, control], control, reference

    scores, control, reference = column(5)
    tests = compare_scores(scores, True, control, reference)
    assert tests.best == reference.key  # named in advance, and no row solves more
    assert {tests.places[score.key] for score in scores[:9]} == {Place.TIED}
    assert tests.places[scores[10].key] is Place.BEHIND
    pair = tests.pair(reference.key, scores[10].key)
    assert pair.p < pair.p_holm < 0.05 < pair.p_all
    assert tests.places[scores[9].key] is Place.UNCLEAR

    unsearched = [replace(score, search_done=score is not scores[10]) for score in scores]
    tests = compare_scores(unsearched, True, control, reference)
    assert not tests.pair(reference.key, scores[10].key).is_hypothesis
    assert tests.places[scores[11].key] is Place.BEHIND

    scores, control, reference = column(4)
    tests = compare_scores(scores, True, control, reference)
    assert tests.best == scores[1].key
    closed = closed_test((4, 5), [tests.runs.counts[score.key] for score in scores[1:]])
    for pair in (pair for pair in tests.pairs if pair.is_hypothesis):
        p = closed[tests.runs.counts[pair.rows[1]]] if pair.rows[0] == reference.key else pair.p_all
        assert pair.p_holm == min(1.0, 2 * p)  # the scores chose the best row: two families


def test_an_interval_ends_where_the_scale_does():
    high = row("high", [99.0, 100.0, 98.0])
    assert high.estimate.is_clipped and high.estimate.interval[1] == 100.0
    assert high.number(1) == f"99.0 [{high.estimate.interval[0]:.1f}, 100.0]"
    inside = row("inside", [50.0, 51.0, 52.0])
    assert not inside.estimate.is_clipped and "±" in inside.number(1)
    assert row("fixed", [100.0] * 3).number(1) == "100.0"
