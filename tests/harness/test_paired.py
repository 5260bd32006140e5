"""Paired differences: false and true positive rates on made-up tables, and the variance."""

import numpy as np
import pytest
from scipy import stats

from harness.report.scores.comparison import compare_group, compare_scores
from harness.report.scores.paired import (
    BY_EXAMPLE,
    BY_SEED,
    compare_rows,
    compare_with_baselines,
    holm,
    seed_noise,
)
from harness.report.scores.places import Place, find_places
from harness.report.scores.scores import Score
from harness.report.spec_files import load_table
from tests.helpers.pages import CONF, PAPER


def row(label, x, data="d"):
    """A row with scores x (S, n), or (S,) without examples."""
    x = np.asarray(x, dtype=float)
    means = {seed: float(np.mean(of_seed)) for seed, of_seed in enumerate(x)}
    examples = dict(enumerate(x)) if x.ndim == 2 else {}
    return Score(label, "", means, {}, examples=examples, data=dict.fromkeys(means, data))


def table(generator, rows, seeds, n, noise, shift=()):
    """0/100 scores: some examples are hard for all rows, some for one row, and seeds vary by `noise`."""
    shift = np.pad(np.asarray(shift, dtype=float), (0, rows - len(shift)))[:, None, None]
    level = shift + generator.normal(size=(rows, seeds, 1)) * np.broadcast_to(noise, rows)[:, None, None]
    of_examples = generator.normal(size=(1, 1, n)) + 0.5 * generator.normal(size=(rows, 1, n))
    x = level + of_examples + generator.normal(size=(rows, seeds, n)) > 0.4
    return [row(f"r{index:02}", 100.0 * scores) for index, scores in enumerate(x)]


@pytest.mark.parametrize(
    "rows, noise, least, seeds",
    [(2, 0.2, 0.02, 3), (8, 0.2, 0.02, 5), (8, [0.05] * 7 + [0.5], 0.01, 3), (8, 0.05, 0.005, 5)],
    ids=["two rows", "noise of seeds", "one row of much", "little"],
)
def test_equal_rows_are_found_different_in_one_of_twenty(rows, noise, least, seeds):
    """The rate of false positives of a pair, at 5 %, before the correction.

    Where the seeds hardly differ, the test errs on the safe side: three of them cannot show that.
    """
    generator = np.random.default_rng(seeds)
    tables = 700 if rows == 2 else 60
    p = [pair.p for _ in range(tables) for pair in compare_rows(table(generator, rows, seeds, 300, noise))]
    assert len(p) == tables * rows * (rows - 1) // 2
    assert least < np.mean(np.array(p) < 0.05) < 0.07


@pytest.mark.parametrize("seeds, power", [(3, 0.7), (5, 0.95)])
def test_a_true_difference_is_found(seeds, power):
    """Two rows of ten are 12 points better than the others: exactly 2 x 8 pairs should be resolved."""
    generator, hits, false = np.random.default_rng(1), [], []
    for _ in range(40):
        pairs = compare_rows(table(generator, 10, seeds, 1000, 0.05, shift=[0.5, 0.5]))
        better = {("r00", ""), ("r01", "")}
        for pair in pairs:
            (hits if len(better & set(pair.rows)) == 1 else false).append(pair.is_resolved)
    assert np.mean(hits) > power and np.mean(false) < 0.01


def test_the_variance_is_that_of_a_hierarchical_bootstrap_without_its_bias():
    """Draws of seeds and examples have the variance of seeds, plus that of examples, plus three residual variances."""
    generator = np.random.default_rng(0)
    seeds, n = 6, 80
    d = generator.normal(size=(seeds, 1)) + 2 * generator.normal(size=(1, n)) + 3 * generator.normal(size=(seeds, n))
    draws = []
    for _ in range(20000):
        drawn = generator.multinomial(seeds, [1 / seeds] * seeds), generator.multinomial(n, [1 / n] * n)
        draws.append(drawn[0] @ d @ drawn[1] / (seeds * n))
    rest = d - d.mean(1, keepdims=True) - d.mean(0) + d.mean()
    of_rest = (rest**2).sum() / ((seeds - 1) * (n - 1))
    of_seeds, of_examples = n * d.mean(1).var(ddof=1), seeds * d.mean(0).var(ddof=1)
    biased = ((seeds - 1) / seeds * of_seeds + (n - 1) / n * of_examples) / (seeds * n)
    biased += (seeds - 1) * (n - 1) / (seeds * n) ** 2 * of_rest
    assert np.var(draws) == pytest.approx(biased, rel=0.03)
    (pair,) = compare_rows([row("a", d), row("b", 0 * d)])
    variance = (of_seeds + of_examples - of_rest) / (seeds * n)
    terms = of_seeds**2 / (seeds - 1) + of_examples**2 / (n - 1) + of_rest**2 / ((seeds - 1) * (n - 1))
    freedom = (variance * seeds * n) ** 2 / terms
    assert pair.half_width == pytest.approx(stats.t.ppf(0.975, freedom) * variance**0.5, rel=1e-9)
    assert pair.pairing == BY_EXAMPLE


def test_without_examples_two_rows_have_the_paired_t_test():
    a, b = [61.0, 62.5, 60.0, 64.0], [60.0, 61.0, 60.5, 61.0]
    (pair,) = compare_rows([row("a", a), row("b", b)])
    test = stats.ttest_rel(a, b)
    assert pair.p == pytest.approx(test.pvalue) and pair.difference == pytest.approx(1.25)
    interval = test.confidence_interval(0.95)
    assert pair.half_width == pytest.approx((interval.high - interval.low) / 2)
    assert (pair.pairing, pair.seeds, pair.p_holm) == (BY_SEED, 4, pair.p)


def test_rows_that_lack_examples_are_paired_by_seed_alone():
    x = np.random.default_rng(0).normal(size=(3, 50))
    by_key = {pair.rows: pair for pair in compare_rows([row("a", x), row("b", x + 1), row("c", x.mean(1))])}
    assert by_key[("a", ""), ("b", "")].pairing == BY_EXAMPLE
    assert by_key[("a", ""), ("c", "")].pairing == BY_SEED


def test_rows_without_three_common_seeds_on_the_same_examples_have_no_test():
    a, b, shared = row("a", [61.0, 62.5, 60.0]), row("b", [50.0, 51.0, 50.5], data="other"), row("c", [40.0] * 3)
    later = Score("d", "", {1: 9.0, 2: 8.0, 3: 7.0}, {}, data=dict.fromkeys((1, 2, 3), "d"))
    pairs = compare_rows([a, b, shared, later])
    assert [pair.rows for pair in pairs] == [(a.key, shared.key)]
    places = find_places([a, b, shared, later], pairs, a)
    assert places.keys() == {a.key, shared.key}, "no test says where the others stand"


def test_fewer_than_three_seeds_have_no_test():
    assert compare_rows([row("a", [1.0, 2.0]), row("b", [5.0, 6.0, 7.0])]) == []
    assert find_places([row("a", [1.0, 2.0])], [], None) == {}


def test_seeds_that_agree_by_chance_are_not_believed():
    """The noise of a pair is raised towards that of the other rows, and never lowered."""
    generator = np.random.default_rng(5)
    others = [row(f"r{index}", 40 + generator.normal(size=3)) for index in range(8)]
    steady, wild = row("steady", [40.0, 40.01, 39.99]), row("wild", [20.0, 40.0, 60.0])
    scores = [*others, steady, row("calm", [41.0, 41.0, 41.01]), wild]
    pairs = {frozenset(key for key, _ in pair.rows): pair for pair in compare_rows(scores)}
    alone = compare_rows([steady, row("calm", [41.0, 41.0, 41.01])])[0]
    assert 2 * alone.half_width < pairs[frozenset(("steady", "calm"))].half_width
    ttest = stats.ttest_rel(list(wild.by_seed.values()), list(steady.by_seed.values()))
    assert pairs[frozenset(("wild", "steady"))].p == pytest.approx(ttest.pvalue)
    assert seed_noise(others[:3]).freedom == 0 < seed_noise(others).freedom


@pytest.mark.parametrize("count", [3, 5, 7])
def test_a_constant_difference_is_as_uncertain_as_its_few_seeds(count):
    """p was 0: that of the sign-flip test cannot be below 2 of 2^S."""
    values = np.arange(count, dtype=float)
    (pair,) = compare_rows([row("a", values), row("b", values - 0.5)])
    assert (pair.p, pair.half_width) == (2.0 ** (1 - count), 0.0)
    (pair,) = compare_rows([row("a", [100.0] * count), row("b", [100.0] * count)])
    assert (pair.p, pair.half_width) == (1.0, 0.0)


def test_rows_are_compared_with_a_fixed_predictor():
    x = np.random.default_rng(0).normal(size=(4, 200))
    fixed = Score("last", "", dict.fromkeys(range(4), 1.0), {}, data=dict.fromkeys(range(4), "d"))
    (pair,) = compare_with_baselines([row("a", x.mean(1))], [fixed])
    assert pair.p == pytest.approx(stats.ttest_1samp(x.mean(1), 1.0).pvalue)


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == [1.0, 1.0] and holm([]) == []
    assert holm([0.01, 0.03, 0.001], [2, 1, 2]) == pytest.approx([0.03, 0.03, 0.005]), "the first and last count twice"


def test_hypotheses_are_pairs_with_the_best_row_or_the_reference():
    generator, means = np.random.default_rng(0), (9, 8, 5, 4, 3, 2, 0)
    scores = [row(label, mean + generator.normal(size=4)) for label, mean in zip("abcdefg", means, strict=True)]
    sides = (("a", ""), ("c", ""))
    pairs = compare_rows(scores, *sides)
    tested = [pair for pair in pairs if pair.is_hypothesis]
    assert len(pairs) == 21 and len(tested) == 6 + 5 and not pairs[-1].is_resolved
    assert all(set(pair.rows) & set(sides) for pair in tested)
    counts = [2 if sides[0] in pair.rows else 1 for pair in tested]
    assert [pair.p_holm for pair in tested] == holm([pair.p for pair in tested], counts)
    assert [pair.p_all for pair in pairs] == holm([pair.p for pair in pairs])
    by_reference = [pair.p for pair in compare_rows(scores, sides[1], sides[1]) if pair.is_hypothesis]
    assert len(by_reference) == 6, "the reference is the best row: no row is chosen by its score"
    few = compare_rows(scores[:4], *sides)
    assert all(pair.p_holm == pair.p_all for pair in few if pair.is_hypothesis), "six pairs are fewer hypotheses"


def test_places_are_monotone_and_tied_means_within_the_margin():
    """Linformer had 12.5 beside 100.0 in one tier: three seeds separated nothing (noncausal memorization)."""
    generator, seen = np.random.default_rng(0), set()
    for _ in range(60):
        means = np.sort(generator.choice([100.0, 99.5, 98.0, 93.0, 60.0, 20.0], 6))[::-1]
        rows = [row(f"r{i}", mean + generator.choice([0.01, 1.0, 20.0]) * generator.normal(size=4))
                for i, mean in enumerate(means)]  # fmt: skip
        ranked = sorted(rows, key=lambda score: -score.estimate.mean)
        pairs = compare_rows(ranked, ranked[0].key)
        places = find_places(ranked, pairs, ranked[0], scale=90.0)
        by_rows = {frozenset(pair.rows): pair for pair in pairs}
        order = [places[score.key] is Place.TIED for score in ranked]
        assert order == sorted(order, reverse=True) and order[0], "no tied row is worse than one that is not"
        for score in ranked[1:]:
            pair, place = by_rows[frozenset((ranked[0].key, score.key))], places[score.key]
            seen.add(place)
            if place is Place.TIED:
                assert abs(pair.difference) + pair.half_width <= 9.0
            else:
                assert (place is Place.BEHIND) == pair.is_resolved
    assert seen == set(Place)
    assert Place.TIED not in [*find_places(ranked, pairs, ranked[0]).values()][1:], "no margin is known"


def test_of_several_best_rows_the_reference_is_the_best_one():
    few, many = row("abc", [100.0] * 3), row("longer", [100.0] * 5)
    reference, control = row("reference", [100.0] * 4), row("control", [6.0, 7.0, 6.5, 5.5])
    behind = row("s4d", [26.1, 34.6, 58.2, 36.1, 28.1])
    ranked = [few, many, reference, behind, control]
    compared = compare_scores(ranked, True, control, reference)
    assert compared.best == reference.key
    assert [k for k, place in compared.places.items() if place is Place.TIED] == [few.key, many.key, reference.key]
    assert [k for k, place in compared.places.items() if place is Place.BEHIND] == [behind.key, control.key]
    assert compare_scores([few, many, behind], True, None, None).best == many.key
    assert compare_scores([row("first", [100.0, 100.0, 99.0]), many], True, None, None).best == ("first", "")


# perplexities of llp/t5 on former data, whose records are gone; R was 4.6 by the median half-width of all pairs
NOISY_REFERENCE = {
    "Transformer-XL": (8.1414, 8.0381, 8.1701),
    "Compressive Transformer": (8.1080, 8.0988, 8.2802),
    "softmax attention, RoPE": (11.0986, 12.1012, 11.3757),
    "LLP Transformer (ours)": (12.2254, 12.4757, 12.3412),
    "Routing Transformer": (12.5719, 12.5534, 13.0274),
    "Block Recurrent Transformer": (13.1003, 12.6709, 12.9022),
    "no mixing": (13.1025, 13.0872, 13.2348),
}


def test_a_reference_with_noisy_seeds_is_not_apart_from_its_control():
    rows = [row(label, values) for label, values in NOISY_REFERENCE.items()]
    tests = compare_group(load_table("llp/t5", CONF, PAPER), "PPL", rows, ())
    assert (tests.reference.row, tests.control.row) == ("softmax attention, RoPE", "no mixing")
    assert tests.resolution < 4 and tests.ranks_nothing
    assert not tests.places  # a place is a rank
    pair = tests.pair(tests.reference.key, tests.control.key)
    assert abs(pair.difference) / pair.half_width == pytest.approx(tests.resolution)
