"""Fisher's exact test of the solved runs of two rows."""

import functools
import itertools
import math

import numpy as np


def fisher(first: tuple[int, int], second: tuple[int, int]) -> float:
    """The two-sided p-value of two (solved, runs)."""
    return float(fisher_table(first[1], second[1])[first[0], second[0]])


@functools.cache
def fisher_table(first: int, second: int) -> np.ndarray:
    """Fisher's p-values (first + 1, second + 1) of every count of solved runs of two rows.

    The weights of the tables with as many solved runs are integers, so that equal ones are equal.
    """
    ways = [[math.comb(runs, solved) for solved in range(runs + 1)] for runs in (first, second)]
    p = np.empty((first + 1, second + 1))
    for solved in range(first + second + 1):
        tables = [(a, solved - a) for a in range(max(0, solved - second), min(solved, first) + 1)]
        weights = {table: ways[0][table[0]] * ways[1][table[1]] for table in tables}
        ordered = sorted(weights.values())
        sums = dict(zip(ordered, itertools.accumulate(ordered), strict=True))  # of equal weights the last sum
        for table, weight in weights.items():
            p[table] = sums[weight] / sums[ordered[-1]]
    return p
