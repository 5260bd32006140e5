"""The closed test of solved runs against a reference, beside an enumeration of all sets of rows and all ways."""

import math
from itertools import combinations, product

import numpy as np
import pytest

from harness.report.scores.exact_tests import closed_test, fisher

COLUMNS = [
    ((5, 5), [(0, 5), (5, 5), (0, 3), (3, 5)]),
    ((3, 3), [(0, 3), (0, 3), (2, 3)]),
    ((4, 5), [(1, 5), (0, 4), (5, 5)]),
    ((0, 4), [(4, 4), (3, 4), (4, 4)]),
]


def share_of_ways(reference, rows):
    """p_S of the rows: of all ways to deal the solved runs out, those with a p at most as small as theirs."""
    limit = min(fisher(row, reference) for row in rows) * (1 + 1e-9)
    sizes = [runs for _, runs in (reference, *rows)]
    counted, small = 0, 0
    for solved in product(*(range(size + 1) for size in sizes)):
        if sum(solved) != sum(count for count, _ in (reference, *rows)):
            continue
        ways = math.prod(map(math.comb, sizes, solved))
        counted += ways
        dealt = list(zip(solved, sizes, strict=True))
        if min(fisher(row, dealt[0]) for row in dealt[1:]) <= limit:
            small += ways
    return small / counted


@pytest.mark.parametrize(("reference", "rows"), COLUMNS)
def test_every_set_of_rows_counts(reference, rows):
    sets = [chosen for size in range(1, len(rows) + 1) for chosen in combinations(range(len(rows)), size)]
    shares = {chosen: share_of_ways(reference, [rows[index] for index in chosen]) for chosen in sets}
    corrected = closed_test(reference, rows)
    for index, row in enumerate(rows):
        largest = max(share for chosen, share in shares.items() if index in chosen)
        assert corrected[row] >= largest - 1e-12  # rejects no more than the closed test of all sets
        assert corrected[row] == pytest.approx(largest, abs=2e-3)


def test_a_row_that_differs_less_never_has_a_smaller_p():
    rows = [(solved, 7) for solved in range(8)] * 3
    p = closed_test((7, 7), rows)
    assert [p[solved, 7] for solved in range(8)] == sorted(p.values())
    assert p[7, 7] == pytest.approx(1.0)


@pytest.mark.slow
def test_family_wise_error_of_equal_rows():
    """Equal rows beside some that always fail: a set of rows that are equal to the reference is seldom torn apart."""
    generator = np.random.default_rng(0)
    for share in (0.5, 0.8):
        errors = 0
        for _ in range(200):
            solved = generator.binomial(5, share, 12)
            p = closed_test((int(solved[0]), 5), [*((int(count), 5) for count in solved[1:]), *[(0, 5)] * 6])
            errors += any(p[int(count), 5] < 0.05 for count in solved[1:])
        assert errors / 200 <= 0.07


@pytest.mark.slow
def test_thousands_of_runs_have_a_p_value():
    p = closed_test((500, 500), [(500, 500), (499, 500), (0, 500), (0, 300)])
    assert p[0, 500] < p[0, 300] < 1e-100 and p[500, 500] == p[499, 500] == 1.0
