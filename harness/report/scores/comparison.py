"""What the tests of one group of scores say: pairs, tiers, the resolution of the column, who is below a baseline."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from harness.report.scores.paired import BY_SEED, UNPAIRED, Key, Pair, compare, compare_with, tiers
from harness.report.scores.scores import Score
from harness.report.spec.table import TableSpec
from harness.report.stats.seeds import LEVEL, MIN_SEEDS

ENOUGH = 4.0  # resolution from which on a column ranks its rows
BASELINE = "baseline: "


@dataclass(frozen=True)
class Comparison:
    """`pairs`: those with a test; `tiers`: 1 is the best; `below`: row -> the baselines that it is worse than.

    `resolution`: |reference - control| over the half width of the 95 % interval of a paired difference (the median over
    the pairs). None if something is missing; `missing` then says what.
    """

    pairs: tuple[Pair, ...] = ()
    tiers: Mapping[Key, int] = field(default_factory=dict)
    below: Mapping[Key, tuple[str, ...]] = field(default_factory=dict)
    rows: int = 0  # with a score
    seeds: tuple[int, int] = (0, 0)  # of these rows, from and to
    control: Score | None = None
    reference: Score | None = None
    resolution: float | None = None
    missing: str = ""

    @property
    def possible(self) -> int:
        """Pairs of rows with a score, tested or not."""
        return self.rows * (self.rows - 1) // 2

    @property
    def resolved(self) -> int:
        return sum(pair.is_resolved for pair in self.pairs)

    @property
    def pairing(self) -> str:
        """How the rows were paired, as a sentence where it is not by seed and example throughout."""
        kinds = [pair.pairing for pair in self.pairs]
        parts = []
        if by_seed := kinds.count(BY_SEED):
            parts.append(f"{by_seed} of {len(kinds)} by seed alone, without scores of the test examples")
        if unpaired := kinds.count(UNPAIRED):
            parts.append(f"{unpaired} of {len(kinds)} not, because seeds or test examples differ")
        return f"Pairs of rows are paired: {'; '.join(parts)}." if parts else ""

    @property
    def ranks_nothing(self) -> bool:
        return self.resolution is not None and self.resolution < ENOUGH

    def pair(self, one: Key, other: Key) -> Pair | None:
        """The test of two rows, as the difference of the first from the second."""
        for pair in self.pairs:
            if pair.rows == (one, other):
                return pair
            if pair.rows == (other, one):
                return replace(pair, rows=(one, other), difference=-pair.difference)
        return None


def compare_group(spec: TableSpec, column: str, ranked: Sequence[Score], baselines: Sequence[Score]) -> Comparison:
    """The tests of a group, whose scores are ranked."""
    measured = [score for score in ranked if score.by_seed]
    if not measured:
        return Comparison(missing="no run")
    higher = spec.higher_is_better(column)
    pairs = compare(measured)
    counts = [len(score.by_seed) for score in measured]
    control, reference = (_score_of(measured, row) for row in (spec.control_of(column), spec.reference_of(column)))
    resolution, missing = _resolution(spec, column, control, reference, pairs)
    return Comparison(
        pairs=tuple(pairs),
        tiers=tiers(measured, pairs),
        below=_below(measured, baselines, higher) if higher is not None else {},
        rows=len(measured),
        seeds=(min(counts), max(counts)),
        control=control,
        reference=reference,
        resolution=resolution,
        missing=missing,
    )


def _score_of(scores: Sequence[Score], row: str | None) -> Score | None:
    """The score of a row in the recipe's configuration."""
    return next((score for score in scores if score.key == (row, "")), None)


def _resolution(
    spec: TableSpec, column: str, control: Score | None, reference: Score | None, pairs: Sequence[Pair]
) -> tuple[float | None, str]:
    """The resolution of a column, or what it lacks."""
    wanted = {"control": (spec.control_of(column), control), "reference": (spec.reference_of(column), reference)}
    for role, (row, score) in wanted.items():
        if row is None:
            return None, f"the table has no {role} in this column"
        if score is None:
            return None, f"the {role} ({row}) was not run"
    if not pairs:
        return None, f"no row has {MIN_SEEDS} seeds"
    distance = abs(reference.estimate.mean - control.estimate.mean)
    half = median(pair.half_width for pair in pairs)
    if half == 0:
        return (float("inf") if distance else 0.0), ""
    return distance / half, ""


def _below(scores: Sequence[Score], baselines: Sequence[Score], higher: bool) -> dict[Key, tuple[str, ...]]:
    """Rows that are significantly worse than a baseline on the same examples; below MIN_SEEDS seeds, simply worse."""
    tests = {pair.rows: pair for pair in compare_with(scores, baselines)}
    found: dict[Key, list[str]] = {}
    for score in scores:
        for baseline in baselines:
            if set(score.data.values()) != set(baseline.data.values()):
                continue
            difference = score.estimate.mean - baseline.estimate.mean
            test = tests.get((score.key, baseline.key))
            if difference and (difference < 0) == higher and (test is None or test.p < 1 - LEVEL):
                found.setdefault(score.key, []).append(baseline.row)
    return {key: tuple(names) for key, names in found.items()}


def clear_winner(ranked: Sequence[Score], comparison: Comparison) -> Score | None:
    """The best row, if a test separates it from the runner-up and none of its seeds failed."""
    measured = [score for score in ranked if score.by_seed]
    if len(measured) < 2 or measured[0].failures:
        return None
    pair = comparison.pair(measured[0].key, measured[1].key)
    return measured[0] if pair is not None and pair.is_resolved else None
