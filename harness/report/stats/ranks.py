"""Ranks of rows over several abilities, with the uncertainty that comes from the choice of tasks and seeds.

    scaled score   (score - control) / (reference - control) of a column, with the means of their seeds
    column         mean over seeds
    ability        mean over its columns: variants of one ability count once
    row            mean over abilities; it orders the rows

The mean orders the rows, not the interquartile mean: with few abilities, a quarter at each end is just the ability that
separates the rows and the one that nearly all solve.

Intervals and ranges of ranks come from a stratified bootstrap (Agarwal et al., 2021, arXiv 2108.13264): abilities are
drawn with replacement, columns within each, seeds within each column. The seeds of control and reference are drawn too,
apart from those of the rows, so that the reference has an interval as any other row. All rows share their draws.

R rows, T columns, S seeds, A abilities
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from harness.report.stats.grouping import grouped
from harness.report.stats.seeds import LEVEL

DRAWS = 2000
SEED = 0
DIGITS = 9  # means that agree to this many decimals count as equal, on every machine


@dataclass(frozen=True)
class SeedScores:
    """`scores` (R, T, S), `control` and `reference` (T, S) in the units of their columns; `abilities`: of each column.

    Raises ValueError for other shapes, missing scores, and a column whose control equals its reference.
    """

    columns: tuple[str, ...]
    abilities: tuple[str, ...]
    scores: np.ndarray
    control: np.ndarray
    reference: np.ndarray

    def __post_init__(self) -> None:
        for name in ("scores", "control", "reference"):
            object.__setattr__(self, name, np.asarray(getattr(self, name), dtype=float))
        if self.scores.ndim != 3 or not self.scores.size:
            raise ValueError(f"scores are (rows, columns, seeds), not {self.scores.shape}")
        shape = self.scores.shape[1:]
        if {self.control.shape, self.reference.shape} != {shape}:
            raise ValueError(f"control and reference are (columns, seeds), {shape}: {self.control.shape} is not")
        if {len(self.columns), len(self.abilities)} != {shape[0]}:
            raise ValueError(f"{shape[0]} columns have as many names and abilities, not {len(self.abilities)}")
        if not all(np.isfinite(part).all() for part in (self.scores, self.control, self.reference)):
            raise ValueError("a score is missing: only complete rows have ranks")
        if (self.control.mean(1) == self.reference.mean(1)).any():
            raise ValueError("control and reference of a column are equal: it has no scale")

    @property
    def scaled(self) -> np.ndarray:
        """(R, T, S): 0 is the mean of the control, 1 that of the reference."""
        low, high = self.control.mean(1)[:, None], self.reference.mean(1)[:, None]
        return (self.scores - low) / (high - low)

    @property
    def by_ability(self) -> dict[str, list[int]]:
        """Ability -> the numbers of its columns, in their order."""
        return grouped((ability, number) for number, ability in enumerate(self.abilities))


@dataclass(frozen=True)
class RankedRow:
    """`mean` over abilities; `interval` and `ranks`: from and to, in 95 % of the draws. Rank 1 is the best.

    `rank_without`: ability -> rank without it; empty where all columns are one ability. `middle`: the interquartile
    mean over abilities and seeds. `worst`: the lowest of the row's column scores, in `worst_column`.
    """

    row: str
    mean: float
    interval: tuple[float, float]
    rank: int
    ranks: tuple[int, int]
    rank_without: Mapping[str, int]
    middle: float
    worst: float
    worst_column: str


def rank_rows(rows: Sequence[str], scores: SeedScores, draws: int = DRAWS) -> list[RankedRow]:
    """Rank rows by their mean over abilities, best first. Rows with equal means share the best of their ranks.

    Raises ValueError for another number of rows.
    """
    if len(rows) != len(scores.scores):
        raise ValueError(f"scores are of {len(scores.scores)} rows, not {len(rows)}")
    scaled, abilities = scores.scaled, scores.by_ability
    # of each ability the mean of its columns, seed by seed: (R, A, S)
    of_ability = np.stack([scaled[:, columns].mean(1) for columns in abilities.values()], axis=1)
    means = of_ability.mean((1, 2)).round(DIGITS)
    middles = interquartile_mean(of_ability.reshape(len(rows), -1)).round(DIGITS)
    drawn = bootstrap(scores, draws).round(DIGITS)
    edges = ((1 - LEVEL) / 2, (1 + LEVEL) / 2)
    low, high = np.quantile(drawn, edges, axis=1)
    first, last = np.quantile(ranks(drawn), edges, axis=1, method="inverted_cdf")
    rank = ranks(means[:, None])[:, 0]
    without = ranks_without_one(of_ability.mean(2))
    of_column = scaled.mean(2).round(DIGITS)
    worst = of_column.argmin(1)
    ranked = [
        RankedRow(
            row=row,
            mean=float(means[i]),
            interval=(float(low[i]), float(high[i])),
            rank=int(rank[i]),
            ranks=(int(first[i]), int(last[i])),
            rank_without=dict(zip(abilities, without[i].tolist(), strict=False)),
            middle=float(middles[i]),
            worst=float(of_column[i, worst[i]]),
            worst_column=scores.columns[worst[i]],
        )
        for i, row in enumerate(rows)
    ]
    return sorted(ranked, key=lambda row: (row.rank, row.row))


def interquartile_mean(scores: np.ndarray) -> np.ndarray:
    """Mean along the last axis (.., K) without the K // 4 lowest and the K // 4 highest."""
    from scipy.stats import trim_mean

    return trim_mean(scores, 0.25, axis=-1)


def bootstrap(scores: SeedScores, draws: int = DRAWS) -> np.ndarray:
    """Means (R, draws) of resampled scores: A abilities, as many columns as each has, S seeds of each column.

    The scale of a drawn column has seeds of its own: S of the control and S of the reference.
    """
    total = np.zeros((len(scores.scores), draws))
    for numbers, drawn in _drawn_scores(scores, draws):
        total[:, numbers] += drawn.mean((2, 3))
    return total / len(scores.by_ability)


def _drawn_scores(scores: SeedScores, draws: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The scaled scores (R, some draws, columns of an ability, S) of every row, and the numbers of these draws.

    Each draw occurs A times, once for each ability in it. The same `draws` give the same numbers.
    """
    groups, seeds = [np.array(columns) for columns in scores.by_ability.values()], scores.scores.shape[2]
    generator = np.random.RandomState(SEED)  # the same numbers in every version of numpy
    drawn = generator.randint(len(groups), size=(draws, len(groups)))
    for slot in range(len(groups)):
        for group, columns in enumerate(groups):
            numbers = np.flatnonzero(drawn[:, slot] == group)
            size = (len(numbers), len(columns))
            column = columns[generator.randint(len(columns), size=size)][..., None]  # (draws, columns, 1)
            row_seed, low_seed, high_seed = generator.randint(seeds, size=(3, *size, seeds))
            low = scores.control[column, low_seed].mean(-1, keepdims=True)
            high = scores.reference[column, high_seed].mean(-1, keepdims=True)
            yield numbers, (scores.scores[:, column, row_seed] - low) / (high - low)


def ranks_without_one(of_ability: np.ndarray) -> np.ndarray:
    """The ranks (R, A) by the mean of scores (R, A) without one ability after another; (R, 0) if there is only one."""
    count = of_ability.shape[1]
    if count < 2:
        return np.empty((len(of_ability), 0), dtype=int)
    return ranks(((of_ability.sum(1, keepdims=True) - of_ability) / (count - 1)).round(DIGITS))


def ranks(means: np.ndarray) -> np.ndarray:
    """1 + the number of rows with a higher mean, in each column of (R, draws)."""
    return 1 + (means[None] > means[:, None]).sum(1)
