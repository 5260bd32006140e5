"""The score of a row: its seeds that ended, its seeds that failed, their mean, the verdict on the published number."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.errors import UsageError
from harness.records.collect import differences
from harness.report.spec import TableSpec
from harness.report.statistics import Estimate, estimate, intervals_are_disjoint, verdict

if TYPE_CHECKING:
    import pandas as pd

NO_SCORE = "no test score"
LEAK = "[test leak]"


@dataclass(frozen=True)
class Score:
    """A row in one configuration. `by_seed`: seed -> score in the column's unit; `failures`: status -> seeds."""

    row: str  # label of the paper's row, or the name of a model that its table lacks
    setting: str  # what was set beyond the meaning of the row; empty for the recipe
    by_seed: dict[int, float]
    failures: dict[str, int]
    leak: bool = False
    parameters: int | None = None
    examples_per_s: float | None = None
    peak_memory_mb: float | None = None

    @property
    def estimate(self) -> Estimate | None:
        return estimate(list(self.by_seed.values())) if self.by_seed else None

    @property
    def failure_text(self) -> str:
        """`oom`, `2 nan, 1 failed`; empty if every seed ended well."""
        if len(self.failures) == 1 and not self.by_seed and sum(self.failures.values()) == 1:
            return next(iter(self.failures))
        return ", ".join(f"{count} {status}" for status, count in sorted(self.failures.items()))

    @property
    def status(self) -> str:
        if not self.failures:
            return "done"
        return f"{len(self.by_seed)} done, {self.failure_text}" if self.by_seed else self.failure_text

    def text(self, decimals: int) -> str:
        """`61.23 ± 0.45 (3)`; failures are named, never averaged over."""
        ours = self.estimate
        if ours is None:
            return self.failure_text
        spread = "" if ours.half_width is None else f" ± {ours.half_width:.{decimals}f}"
        count = f"{ours.n}; {self.failure_text}" if self.failures else f"{ours.n}"
        return f"{ours.mean:.{decimals}f}{spread} ({count}){' ' + LEAK if self.leak else ''}"


def score_rows(cells: "pd.DataFrame") -> list[Score]:
    """One score for each row and configuration among the selected cells of one column.

    Cells of a row are averaged only if they differ in nothing but the seed. Raises UsageError for two cells that do
    not even differ in that.
    """
    found = []
    for row, of_row in cells.groupby("row", sort=True):
        variants = [variant for _, variant in of_row.groupby("variant", sort=True)]
        settings = [variant["setting"].iloc[0] for variant in variants]
        if len(set(settings)) < len(variants):  # a recipe that was edited since, or a key that a user may set freely
            settings = differences([variant["config"].iloc[0] for variant in variants])
        for setting, variant in sorted(zip(settings, variants, strict=True), key=lambda pair: pair[0]):
            twice = variant[variant["seed"].duplicated(keep=False)]
            if len(twice):
                ids = " and ".join(twice["id"])
                raise UsageError(f"{row}: records {ids} are one cell, with one seed and configuration; remove one")
            found.append(_score(row, setting, variant))
    return found


def _score(row: str, setting: str, cells: "pd.DataFrame") -> Score:
    ended = (cells["status"] == "done") & cells["score"].notna()
    failed = cells["status"][~ended].replace("done", NO_SCORE)
    speed, memory = (cells[key][ended].dropna() for key in ("examples_per_s", "peak_memory_mb"))
    parameters = cells["parameters"].dropna()
    done = cells[ended].sort_values("seed")
    return Score(
        row=row,
        setting=setting,
        by_seed={int(seed): float(score) for seed, score in zip(done["seed"], done["score"], strict=True)},
        failures=dict(Counter(failed)),
        leak=bool(cells["leak"][ended].any()),
        parameters=int(parameters.max()) if len(parameters) else None,
        examples_per_s=float(speed.mean()) if len(speed) else None,
        peak_memory_mb=float(memory.mean()) if len(memory) else None,
    )


def average(columns: Sequence[Sequence[Score]]) -> Score | None:
    """The mean of one row's scores over columns, seed by seed.

    Every column must have a score, in the recipe's configuration alone. A seed counts if it ended in every column.
    None if no seed did.
    """
    if not all(len(scores) == 1 and scores[0].by_seed and not scores[0].setting for scores in columns):
        return None
    parts = [scores[0] for scores in columns]
    shared = sorted(set.intersection(*(set(part.by_seed) for part in parts)))
    if not shared:
        return None
    by_seed = {seed: sum(part.by_seed[seed] for part in parts) / len(parts) for seed in shared}
    failures = dict(sum((Counter(part.failures) for part in parts), Counter()))
    return Score(parts[0].row, "", by_seed, failures, leak=any(part.leak for part in parts))


def rank(scores: Sequence[Score], higher_is_better: bool | None) -> list[Score]:
    """Best first, or lowest first where neither way is better; rows without a score last."""
    sign = -1 if higher_is_better else 1

    def key(score: Score) -> tuple[bool, float, str, str]:
        ours = score.estimate
        return ours is None, sign * ours.mean if ours else 0.0, score.row, score.setting

    return sorted(scores, key=key)


def clear_winner(scores: Sequence[Score], higher_is_better: bool | None) -> Score | None:
    """The best score, if its interval does not overlap the runner-up's and none of its seeds failed."""
    ranked = rank([score for score in scores if score.by_seed], higher_is_better)
    if higher_is_better is None or len(ranked) < 2 or ranked[0].failures:
        return None
    return ranked[0] if intervals_are_disjoint(ranked[0].estimate, ranked[1].estimate) else None


def verdict_of(spec: TableSpec, row: str, column: str, score: Score | None) -> str:
    """reproduced, close, off, failed or not run; empty if the paper prints no number there."""
    published = spec.published.get((row, column))
    if published is None:
        return ""
    if score is not None and score.estimate is None:
        return "failed"
    return verdict(published.number, score.estimate if score else None, spec.tolerances(published.number))
