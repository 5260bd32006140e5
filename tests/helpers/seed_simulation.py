"""Simulated tables of equal rows: how often the tests of a column, and its intervals, are wrong.

`python -m helpers.seed_simulation` (in `tests/`) writes the table of docs/statistics.md, between its markers.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from harness.report.scores.comparison import compare_scores
from harness.report.scores.paired import with_noise
from harness.report.scores.scores import Score

DOCS = Path(__file__).parents[2] / "docs" / "statistics.md"
START, END = "<!-- simulation -->", "<!-- end of the simulation -->"
TABLES, BIMODAL_TABLES = 1000, 300
SEEDS, ROWS = (3, 5, 7), (8, 16)
NAMES = {
    "normal": "normal, standard deviation 1",
    "lognormal": "lognormal, σ = 0.5",
    "skewed": "lognormal, σ = 1",
    "bimodal .5": "95 with probability 0.5, else 5; ± 1",
    "bimodal .8": "95 with probability 0.8, else 5; ± 1",
    "bimodal .5 +": "95 with probability 0.5, else 5; ± 1; beside twice as many rows of 5",
}
PERCENT = (0.0, 100.0)


@dataclass(frozen=True)
class Errors:
    """Shares. `families`: tables with a resolved pair; `pairs`, `rows`: 95 % intervals that miss the truth.

    `pairs` is None where no interval of a difference is shown: in columns of solved runs.
    """

    families: float
    pairs: float | None
    rows: float


def draw(name: str, generator: np.random.Generator, rows: int, seeds: int) -> tuple[np.ndarray, float]:
    """Scores (rows, seeds) of equal rows, with others below them, and the true mean or share of solved runs."""
    size = (rows, seeds)
    if name.startswith("bimodal"):
        share = float(name.split()[1])
        failing = np.zeros((2 * rows if name.endswith("+") else 0, seeds), dtype=bool)
        solved = np.concatenate([generator.random(size) < share, failing])
        return np.where(solved, 95.0, 5.0) + generator.normal(size=solved.shape), share
    if name == "normal":
        return 50 + generator.normal(size=size), 50.0
    sigma = {"lognormal": 0.5, "skewed": 1.0}[name]
    return 10 + generator.lognormal(sigma=sigma, size=size), 10 + float(np.exp(sigma**2 / 2))


def simulate(name: str, seeds: int, rows: int, tables: int) -> Errors:
    """Errors over tables whose first row is the reference and whose last row is the control."""
    generator = np.random.default_rng([seeds, rows, *name.encode()])
    families, pair_misses, row_misses = [], [], []
    for _ in range(tables):
        values, truth = draw(name, generator, rows, seeds)
        scores = [
            Score(f"r{index:02}", "", dict(enumerate(row)), {}, data=dict.fromkeys(range(seeds), "d"), limits=PERCENT)
            for index, row in enumerate(values.tolist())
        ]
        scores = with_noise(scores)
        ranked = sorted(scores, key=lambda score: -score.estimate.mean)
        tests = compare_scores(ranked, True, control=scores[-1], reference=scores[0])
        equal = {score.key for score in scores[:rows]}
        families.append(any(pair.is_resolved and equal.issuperset(pair.rows) for pair in tests.pairs))
        if tests.runs is None:
            truth = truth if not name.startswith("bimodal") else 5 + 90 * truth
            pair_misses += [abs(pair.difference) > pair.half_width for pair in tests.pairs]
            row_misses += [not (s.estimate.interval[0] <= truth <= s.estimate.interval[1]) for s in scores[:rows]]
        else:
            intervals = [tests.runs.interval(key) for key in equal]
            row_misses += [not (low <= truth <= high) for low, high in intervals]
    pairs = float(np.mean(pair_misses)) if len(pair_misses) and not name.startswith("bimodal") else None
    return Errors(float(np.mean(families)), pairs, float(np.mean(row_misses)))


def tables_of(name: str) -> int:
    return BIMODAL_TABLES if name.startswith("bimodal") else TABLES


def lines() -> Iterator[str]:
    """The table of the docs, in Markdown."""
    yield "| seeds are | rows | seeds | a pair is resolved | interval of a difference misses | of a row misses |"
    yield "|---|---:|---:|---:|---:|---:|"
    for name, title in NAMES.items():
        for rows in ROWS:
            for seeds in SEEDS:
                errors = simulate(name, seeds, rows, tables_of(name))
                shares = (errors.families, errors.pairs, errors.rows)
                cells = ["–" if share is None else f"{100 * share:.1f} %" for share in shares]
                yield f"| {title} | {rows} | {seeds} | {' | '.join(cells)} |"


def main() -> None:
    table = []
    for line in lines():
        print(line, file=sys.stderr, flush=True)
        table.append(line)
    before, rest = DOCS.read_text(encoding="utf-8").split(START)
    DOCS.write_text(f"{before}{START}\n" + "\n".join(table) + f"\n{END}{rest.split(END)[1]}", encoding="utf-8")


if __name__ == "__main__":
    main()
