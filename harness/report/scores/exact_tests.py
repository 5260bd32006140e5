"""Exact tests of solved runs: Fisher's of two rows, and a closed test of rows against a reference named in advance.

If some rows S and the reference are equal, every way to deal their solved runs out to their runs is equally likely.
p_S is the share of ways in which Fisher's p of some row of S and the reference is at most as small as the smallest
observed one. A row is apart from the reference if p_S is small for every S that holds the row (Marcus, Peritz and
Gabriel 1976), so that the family-wise error holds whichever rows are equal:

    p of a row = max over its S of p_S

p_S depends on S by the smallest p, the number of rows with n runs each, and the sum of their solved runs. Ways are
counted by products of polynomials whose coefficients are binomials; a power of x counts solved runs.

It tells more than the test of all pairs: rows that solve no run do not count against one another.
"""

import functools
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from harness.report.stats.grouping import grouped

ROUNDING = 1e-9
MOST_RUNS = 400  # of all rows: beyond it ways are no longer counted, and Bonferroni's correction loses little
Runs = tuple[int, int]  # solved runs, all runs


def closed_test(reference: Runs, rows: Iterable[Runs]) -> dict[Runs, float]:
    """The corrected p-value of each kind of row, by its solved and all runs."""
    kinds = Counter(rows)
    if reference[1] + sum(runs * count for (_, runs), count in kinds.items()) > MOST_RUNS:
        return {row: min(1.0, fisher(row, reference) * kinds.total()) for row in kinds}
    order = sorted(kinds, key=lambda row: fisher(row, reference))
    corrected, largest = {}, 0.0
    for row in order:
        p = fisher(row, reference)
        equal_or_larger = [kind for kind in order if fisher(kind, reference) >= p * (1 - ROUNDING)]
        largest = max(largest, p, _largest_share(reference, row, {kind: kinds[kind] for kind in equal_or_larger}))
        corrected[row] = largest
    return corrected


def _largest_share(reference: Runs, row: Runs, kinds: Mapping[Runs, int]) -> float:
    """The largest p_S of all S of these rows that hold one of `row`, whose p is the smallest.

    kinds: (solved, runs) -> how many rows are so.
    """
    limit = fisher(row, reference) * (1 + ROUNDING)
    rows_of_size = {runs: sum(rows) for runs, rows in grouped((runs, n) for (_, runs), n in kinds.items()).items()}
    sizes = sorted(rows_of_size)
    sums = _sums(row, kinds, sizes)
    powers = [_powers(limit, reference[1], size, rows_of_size[size]) for size in sizes]
    largest = 0.0
    for counts, solved in sums.items():
        total = reference[1] + sum(count * size for count, size in zip(counts, sizes, strict=True))
        none_below = np.zeros(total + 1)  # ways without a p at or below the limit, by all solved runs
        for first in range(reference[1] + 1):
            ways = np.ones(1)
            for power, count in zip(powers, counts, strict=True):
                ways = np.convolve(ways, power[first][count])
            none_below[first : first + len(ways)] += math.comb(reference[1], first) * ways
        for added in solved:
            ways_in_all = math.comb(total, reference[0] + added)
            largest = max(largest, 1 - float(none_below[reference[0] + added]) / ways_in_all)
    return largest


def _sums(row: Runs, kinds: Mapping[Runs, int], sizes: Sequence[int]) -> dict[tuple[int, ...], set[int]]:
    """Rows of each size in S -> the sums of solved runs that such S can have, `row` being among them."""
    sums: dict[tuple[int, ...], set[int]] = {tuple(int(size == row[1]) for size in sizes): {row[0]}}
    for (solved, runs), rows in kinds.items():
        place = sizes.index(runs)
        larger: dict[tuple[int, ...], set[int]] = {}
        for (counts, known), more in itertools.product(sums.items(), range(rows + 1 - ((solved, runs) == row))):
            key = (*counts[:place], counts[place] + more, *counts[place + 1 :])
            larger.setdefault(key, set()).update(value + more * solved for value in known)
        sums = larger
    return sums


def _powers(limit: float, reference_runs: int, size: int, most: int) -> list[list[np.ndarray]]:
    """[solved runs of the reference][rows] -> ways in which no row of this size has a p at or below the limit."""
    table = fisher_table(reference_runs, size)
    powers = []
    for first in range(reference_runs + 1):
        ways = np.array([math.comb(size, solved) * (table[first, solved] > limit) for solved in range(size + 1)], float)
        chain = [np.ones(1)]
        for _ in range(most):
            chain.append(np.convolve(chain[-1], ways))
        powers.append(chain)
    return powers


def fisher(first: tuple[int, int], second: tuple[int, int]) -> float:
    """The two-sided p-value of two (solved, runs)."""
    return float(fisher_table(first[1], second[1])[first[0], second[0]])


@functools.cache
def fisher_table(first: int, second: int) -> np.ndarray:
    """Fisher's p-values (first + 1, second + 1) of every count of solved runs of two rows."""
    from scipy.stats import hypergeom  # takes half a second to import

    p = np.empty((first + 1, second + 1))
    for solved in range(first + second + 1):
        of_first = np.arange(max(0, solved - second), min(solved, first) + 1)
        weights = hypergeom.pmf(of_first, first + second, solved, first)
        p[of_first, solved - of_first] = [weights[weights <= weight * (1 + ROUNDING)].sum() for weight in weights]
    return p.clip(max=1.0)
