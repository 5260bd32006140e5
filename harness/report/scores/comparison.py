"""The tests of one group of scores: pairs, places, the resolution of the column, and rows below a baseline."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from harness.config.table_rows import row_name
from harness.report.render import wording
from harness.report.scores import paired
from harness.report.scores.paired import Key, Pair
from harness.report.scores.places import Place, find_places
from harness.report.scores.scores import Score
from harness.report.scores.solved import SolvedRuns, compare_solved, solved_runs
from harness.report.spec.table import TableSpec
from harness.report.stats.grouping import grouped
from harness.report.stats.seeds import LEVEL, MIN_SEEDS

ENOUGH = 4.0  # the resolution from which a column ranks its rows
BASELINE = "baseline: "


@dataclass(frozen=True)
class Comparison:
    """`pairs`: the tested ones; `places`: from the best mean down; `below`: row -> the baselines that beat it; `ahead`:
    row -> the baselines that it beats.

    `unsearched`: the rows without a verdict, because no search found their learning rate, although the budget states a
    search (`harness.report.scores.tuning.why_no_verdict`). They have no place, and no hypothesis is about them, but
    that of reference and control.

    `resolution`: |reference - control| over the half width of the 95 % interval of their own paired difference. It is
    None if something is missing, and `missing` says what.
    """

    pairs: tuple[Pair, ...] = ()
    places: Mapping[Key, Place] = field(default_factory=dict)
    best: Key | None = None  # the row that all others are tested against
    below: Mapping[Key, tuple[str, ...]] = field(default_factory=dict)
    ahead: Mapping[Key, tuple[str, ...]] = field(default_factory=dict)
    rows: int = 0  # with a score
    seeds: tuple[int, int] = (0, 0)  # fewest and most of these rows
    control: Score | None = None
    reference: Score | None = None
    resolution: float | None = None
    missing: str = ""
    runs: SolvedRuns | None = None  # where shares of solved runs are compared
    control_ahead: bool = False  # its mean is better than that of the reference
    equal_seeds: bool = False  # every row has the same score with each of its seeds
    unsearched: tuple[Key, ...] = ()

    @property
    def untested(self) -> str:
        """Why no row is tested against the best one; empty if rows are."""
        if self.pairs and self.best is not None:
            return ""
        if self.pairs:
            return wording.NOT_SEARCHED
        return wording.EQUAL_SEEDS if self.equal_seeds else wording.FEW_ROWS

    @property
    def possible(self) -> int:
        """The number of pairs of a row with the best one or the reference, tested or not."""
        others = max(self.rows - 1, 0)
        two_sides = self.reference is not None and self.best != self.reference.key
        return max(2 * others - 1, 0) if two_sides else others

    @property
    def resolved(self) -> int:
        return sum(pair.is_resolved for pair in self.pairs)

    @property
    def is_apart(self) -> bool:
        """Whether a test separates the reference from the control, and the reference is ahead.

        This pair is fixed in advance and tested first, so that its p-value needs no correction for the others, which
        are tested only after it (a fixed sequence keeps the family-wise error; Westfall and Krishen 2001).
        """
        pair = self.pair(self.reference.key, self.control.key) if self.reference and self.control else None
        return pair is not None and pair.p < 1 - LEVEL and not self.control_ahead

    @property
    def ranks(self) -> bool:
        """Whether the column may rank its rows: R >= ENOUGH, its reference and control are apart, and the learning
        rates of both were searched, if the budget states a search."""
        ends = {score.key for score in (self.reference, self.control) if score}
        return self.is_clear and not ends & set(self.unsearched)

    @property
    def is_clear(self) -> bool:
        """Whether the control is clearly behind the reference."""
        return self.resolution is not None and self.resolution >= ENOUGH and self.is_apart

    @property
    def ranks_nothing(self) -> bool:
        return self.resolution is not None and not self.ranks

    @property
    def why_not(self) -> str:
        """Why the column cannot rank rows, in a clause; empty if it does or R is unknown."""
        return "" if not self.ranks_nothing else wording.NOT_SEARCHED if self.is_clear else wording.NOT_BEHIND

    def pair(self, first: Key, second: Key) -> Pair | None:
        """The test of two rows, with the difference of the first from the second."""
        pair = next((pair for pair in self.pairs if set(pair.rows) == {first, second}), None)
        if pair is None or pair.rows == (first, second):
            return pair
        return replace(pair, rows=(first, second), difference=-pair.difference)


def compare_group(spec: TableSpec, column: str, ranked: Sequence[Score], baselines: Sequence[Score]) -> Comparison:
    """The tests of a group with ranked scores."""
    measured = [score for score in ranked if score.by_seed]
    if not measured:
        return Comparison(missing="no run")
    higher = spec.resolve(column).higher_is_better
    plain = {score.row: score for score in measured if not score.setting}  # in the recipe's configuration
    named = {side: spec.row_of(side, column) for side in ("control", "reference")}
    ends = (plain.get(row) for row in named.values())
    solved_from = spec.columns[column].solved_from if column in spec.columns else None  # an average has none
    tests = compare_scores(measured, higher, *ends, solved_from)
    resolution, missing = _resolution(named, plain, tests.pairs)
    below, ahead = _against_baselines(measured, baselines, higher) if higher is not None else ({}, {})
    compared = replace(tests, below=below, ahead=ahead, resolution=resolution, missing=missing)
    return replace(compared, places={}) if compared.ranks_nothing else compared  # a place is a rank


def compare_scores(
    ranked: Sequence[Score],
    higher: bool | None,
    control: Score | None,
    reference: Score | None,
    solved_from: float | None = None,
) -> Comparison:
    """The tests and places of rows with a score, best first. `higher`: whether a higher score is better."""
    runs = None if higher is None else solved_runs(ranked, control, reference, higher, solved_from)
    ends = [score.key for score in (control, reference) if score]
    searched = [score for score in ranked if score.search_done]
    hypotheses = None if len(searched) == len(ranked) else {*ends, *(score.key for score in searched)}
    enough = [score for score in ranked if len(score.by_seed) >= MIN_SEEDS]
    tested = [score for score in enough if score.search_done]
    equal_seeds = len(enough) > 1 and all(score.is_fixed for score in enough)
    best = _best_row(tested, reference, runs)
    keys = [score.key if score else None for score in (best, reference)]
    pairs = [] if equal_seeds else paired.compare_rows(ranked, *keys, hypotheses)
    if runs:
        pairs = compare_solved(pairs, runs, *reversed(keys))
    distance = reference.estimate.mean - control.estimate.mean if reference and control else None
    counts = [len(score.by_seed) for score in ranked]
    return Comparison(
        pairs=tuple(pairs),
        places=find_places(searched, pairs, best, None if distance is None else abs(distance)),
        best=keys[0],
        rows=len(ranked),
        seeds=(min(counts), max(counts)),
        control=control,
        reference=reference,
        runs=runs,
        control_ahead=bool(distance) and higher is not None and (distance > 0) != higher,
        equal_seeds=equal_seeds,
        unsearched=tuple(score.key for score in ranked if not score.search_done),
    )


def _best_row(ranked: Sequence[Score], reference: Score | None, runs: SolvedRuns | None) -> Score | None:
    """The row that others are tested against, of those with a test, best first; None without one.

    Of several with the best mean, or the largest share of solved runs, it is the reference, which is named in advance,
    so that its tests need no correction for the choice; or else the one with most seeds.
    """
    scores = [runs.share(score.key) if runs else score.estimate.mean for score in ranked]
    top = (max(scores) if runs else scores[0]) if scores else None
    tied = [row for row, score in zip(ranked, scores, strict=True) if score == top]
    return max(tied, key=lambda row: (row is reference, len(row.by_seed)), default=None)


def _resolution(
    named: Mapping[str, str | None], scores: Mapping[str, Score], pairs: Sequence[Pair]
) -> tuple[float | None, str]:
    """The resolution of a column, or what it lacks. `named`: the rows of `control` and `reference`."""
    for role, row in named.items():
        if row is None:
            return None, wording.NO_ROLE.format(role)
        if row not in scores:
            return None, wording.ROLE_NOT_RUN.format(role, row)
    if not pairs:
        return None, wording.NO_SEEDS
    keys = {scores[row].key for row in named.values()}
    pair = next((pair for pair in pairs if set(pair.rows) == keys), None)
    if pair is None:
        few = [f"the {role} ({row_name(row)})" for role, row in named.items() if len(scores[row].by_seed) < MIN_SEEDS]
        return None, wording.FEW_SEEDS_OF_ROLES.format(" and ".join(few)) if few else wording.FEW_IN_COMMON
    if pair.half_width == 0 and pair.difference:
        return None, wording.NO_INTERVAL
    return abs(pair.difference) / (pair.half_width or 1.0), ""


def _against_baselines(
    scores: Sequence[Score], baselines: Sequence[Score], higher: bool
) -> tuple[dict[Key, tuple[str, ...]], dict[Key, tuple[str, ...]]]:
    """Rows significantly worse than a baseline on the same examples, and rows significantly better; with fewer than
    MIN_SEEDS seeds, simply worse or better.

    That a row beats a baseline is a claim: its p-value is corrected for all rows tested against this baseline.
    """
    scored = [baseline for baseline in baselines if baseline.by_seed]
    pairs = paired.compare_with_baselines(scores, scored)
    tests = {pair.rows: pair for pair in pairs}
    by_baseline = grouped((pair.rows[1], pair) for pair in pairs)
    corrected = {
        pair.rows: p
        for of_baseline in by_baseline.values()
        for pair, p in zip(of_baseline, paired.holm([pair.p for pair in of_baseline]), strict=True)
    }
    below: dict[Key, tuple[str, ...]] = {}
    ahead: dict[Key, tuple[str, ...]] = {}
    for score in scores:
        for baseline in scored:
            if set(score.data.values()) != set(baseline.data.values()):
                continue
            difference = score.estimate.mean - baseline.estimate.mean
            test = tests.get((score.key, baseline.key))
            # without measured noise there is no test, as with fewer seeds
            is_tested = test is not None and test.half_width > 0
            is_behind = (difference < 0) == higher
            side, p = (below, test and test.p) if is_behind else (ahead, corrected.get((score.key, baseline.key)))
            if difference and (not is_tested or p < 1 - LEVEL):
                side[score.key] = (*side.get(score.key, ()), baseline.row)
    return below, ahead
