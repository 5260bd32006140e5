"""The random numbers of the probes."""

import numpy as np

from tasks.probe.draws import Draws


def test_draws_for_some_examples_are_those_of_all():
    whole, some = Draws(3, 7, range(6)), Draws(3, 7, range(6))
    assert whole.words(2).shape == some.words(2).shape
    chosen = some.at(np.array([False, True, False, False, True, True]))
    assert len(chosen) == 3 and np.array_equal(chosen.words(4), whole.words(4)[[1, 4, 5]])


def test_draws_are_those_of_philox():
    """The first words of numpy's own generator, so that another implementation can be checked against them."""
    draws = Draws(3, 7, [5, 0])
    for call in (1, 2):
        words = draws.words(6)
        for row, number in zip(words, (5, 0), strict=True):
            expected = np.random.Philox(key=[3, 7], counter=[0, number, call, 0]).random_raw(6)
            assert np.array_equal(row, expected)
    assert draws.words(1)[1, 0] == 12710613047979587591


def test_draws_are_uniform_and_distinct():
    draws = Draws(0, 0, range(3000))
    chosen = draws.distinct(6, 4)
    assert all(len(set(row)) == 4 for row in chosen.tolist()) and chosen.min() == 0 and chosen.max() == 5
    for column in chosen.T:
        assert abs(np.bincount(column, minlength=6) - 500).max() < 5 * np.sqrt(500)
    orders = draws.orders(5)
    assert (np.sort(orders, 1) == np.arange(5)).all()
    weighted = draws.weighted(np.array([1, 2, 5]), 2)
    assert (weighted[:, 0] != weighted[:, 1]).all()
    assert abs(np.bincount(weighted[:, 0]) / 3000 - np.array([1, 2, 5]) / 8).max() < 0.04
    assert abs((weighted[weighted[:, 0] == 2, 1] == 1).mean() - 2 / 3) < 0.05
