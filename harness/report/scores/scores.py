"""The score of a row: its finished seeds with their mean, and its failed seeds."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from harness.config.declared import Range, declared_scores, score_range
from harness.config.table_rows import row_name
from harness.errors import UsageError
from harness.records.collect import Cells, differences
from harness.report.spec.parts import Column
from harness.report.stats.grouping import grouped
from harness.report.stats.seeds import Estimate, estimate

NO_SCORE = "no test score"
LEAK = "[test leak]"
COUNTED = "counted"
# columns of a frame that a score is made of
OF_SCORES = (
    *("row", "variant", "setting", "config", "code", "finished", "id", "seed", "status", "score", "fingerprint"),
    *("search_done", "marks", "leak", "parameters", "examples_per_s"),
)
UNLIMITED: Range = (-math.inf, math.inf)


@dataclass(frozen=True)
class Score:
    """A row in one configuration. `by_seed`: seed -> score in the column's unit; `failures`: status -> seeds.

    `examples`: seed -> scores of the test examples in the column's unit, where they were kept; their mean is the score.
    `data`: seed -> fingerprint of the examples. `cells`: ids of the records, failed ones too, or the name of a
    measurement. `counted`: the number follows from the recipe, and nothing was run. `search_done`: a search chose its
    learning rate, where the budget states one, so that it may carry a verdict
    (`harness.report.scores.tuning.why_no_verdict`); `marks`: signs that say what is to be known of the search.
    """

    row: str  # label of the paper's row, or the name of a model that its table lacks
    setting: str  # what was set beyond the meaning of the row; empty for the recipe
    by_seed: dict[int, float]
    failures: dict[str, int]
    leak: bool = False
    parameters: int | None = None
    examples_per_s: float | None = None
    examples: Mapping[int, np.ndarray] = field(default_factory=dict, compare=False, repr=False)
    data: Mapping[int, str] = field(default_factory=dict, compare=False, repr=False)
    cells: tuple[str, ...] = field(default=(), compare=False, repr=False)
    counted: bool = False
    search_done: bool = True
    marks: str = ""
    limits: Range = field(default=UNLIMITED, compare=False, repr=False)  # of the metric

    # typical variance between the seeds of a row of the column, and how well its rows agree on it
    noise: tuple[float, float] = field(default=(0.0, 0.0), compare=False, repr=False)

    @property
    def key(self) -> tuple[str, str]:
        return self.row, self.setting

    @property
    def name(self) -> str:
        return row_name(self.row)

    @property
    def is_plain(self) -> bool:
        """Whether a seed of the recipe's own configuration has ended."""
        return bool(self.by_seed) and not self.setting

    @property
    def label(self) -> str:
        return f"{self.name} ({self.setting})" if self.setting else self.name

    @property
    def estimate(self) -> Estimate | None:
        return estimate(list(self.by_seed.values()), self.limits, self.noise) if self.by_seed else None

    @property
    def failure_text(self) -> str:
        """`oom`, `2 nan, 1 failed`; empty if every seed ended well."""
        if len(self.failures) == 1 and not self.by_seed and sum(self.failures.values()) == 1:
            return next(iter(self.failures))
        return ", ".join(f"{count} {status}" for status, count in sorted(self.failures.items()))

    @property
    def status(self) -> str:
        if self.counted:
            return COUNTED
        if not self.failures:
            return "done"
        return f"{len(self.by_seed)} done, {self.failure_text}" if self.by_seed else self.failure_text

    def text(self, decimals: int) -> str:
        """`61.23 ± 0.45 (3)`, `51.30 to 54.00 (2)`, `122.32 (counted)`; failures are named, never averaged over."""
        ours = self.estimate
        if ours is None:
            return self.failure_text
        count = f"{ours.n}; {self.failure_text}" if self.failures else COUNTED if self.counted else f"{ours.n}"
        return " ".join([f"{self.number(decimals)} ({count})", *self.signs])

    @property
    def signs(self) -> list[str]:
        return [LEAK] * self.leak + [self.marks] * bool(self.marks)

    def number(self, decimals: int) -> str:
        """The mean with its interval, below MIN_SEEDS the range of the seeds; how the runs ended if none has a score.

        An interval that would leave the scale of the metric ends there: `98.00 [91.20, 100.00]`.
        """
        if (ours := self.estimate) is None:
            return self.failure_text
        low, high = (f"{end(self.by_seed.values()):,.{decimals}f}" for end in (min, max))
        if ours.is_clipped and not self.is_fixed:
            return f"{ours.mean:,.{decimals}f} [{', '.join(f'{end:,.{decimals}f}' for end in ours.interval)}]"
        if ours.half_width is not None and not self.is_fixed:
            return f"{ours.mean:,.{decimals}f} ± {ours.half_width:,.{decimals}f}"
        return low if low == high else f"{low} to {high}"

    @property
    def is_fixed(self) -> bool:
        """Equal for all seeds, as a number of parameters."""
        return len(set(self.by_seed.values())) == 1


def limits_of(column: Column) -> Range:
    """The scale of a column's numbers, which no interval leaves. Raises UsageError for a broken declaration."""
    if column.reaches is not None:  # updates
        return 0.0, math.inf
    return score_range(declared_scores(column.task), column.metric or "")


def score_rows(
    cells: Cells, examples: Mapping[str, np.ndarray] | None = None, limits: Range = UNLIMITED
) -> list[Score]:
    """One score for each row and configuration among the selected cells of one column.

    `examples`: id of a cell -> scores of its test examples, where they were kept. `limits`: of the metric's scale.

    Cells of a row are averaged only if they differ in nothing but the seed, and come from the same code. The latest
    code has the row's own setting. Raises UsageError for two cells that do not even differ in their seed.
    """
    if "search_done" not in cells:  # of cells that somebody chose to compare
        cells = cells.assign(search_done=True, marks="")
    values = zip(*(cells[key].tolist() for key in OF_SCORES), strict=True)  # pandas is slow for groups this small
    by_row = grouped((cell["row"], cell) for cell in (dict(zip(OF_SCORES, of_cell, strict=True)) for of_cell in values))
    scores = []
    for row, of_row in sorted(by_row.items()):
        variants = [variant for _, variant in sorted(grouped((cell["variant"], cell) for cell in of_row).items())]
        settings = [variant[0]["setting"] for variant in variants]
        if len(set(settings)) < len(variants):  # a recipe that was edited since, or a key that a user may set freely
            settings = differences([variant[0]["config"] for variant in variants])
        parts = [
            (", ".join(filter(None, [setting, code])), part)
            for setting, variant in zip(settings, variants, strict=True)
            for code, part in by_code(variant)
        ]
        for setting, part in sorted(parts, key=lambda pair: pair[0]):
            seeds = Counter(cell["seed"] for cell in part)
            if twice := [cell["id"] for cell in part if seeds[cell["seed"]] > 1]:
                ids = " and ".join(twice)
                raise UsageError(f"{row}: records {ids} are one cell, with one seed and configuration; remove one")
            scores.append(_score(row, setting, part, examples or {}, limits))
    return scores


def by_code(cells: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, list[Mapping[str, Any]]]]:
    """The cells, rows of a frame, of each code, and what to call it: nothing for the latest one.

    Records that do not name their code stand with the only code that others name. If there are several, they stand
    alone.
    """
    named = grouped((cell["code"], cell) for cell in cells if is_known(cell["code"]))
    if len(named) < 2:
        yield "", list(cells)
        return
    latest = max((cell for cell in cells if is_known(cell["code"])), key=lambda cell: cell["finished"])["code"]
    for code, part in sorted(named.items()):
        yield "" if code == latest else f"code {code[:8]}", part
    if unknown := [cell for cell in cells if not is_known(cell["code"])]:
        yield "unknown code", unknown


def is_known(value: Any) -> bool:
    """Whether a value of a frame is neither None nor NaN."""
    return value is not None and value == value


def _score(
    row: str, setting: str, cells: Sequence[Mapping[str, Any]], examples: Mapping[str, np.ndarray], limits: Range
) -> Score:
    ended = [cell for cell in cells if cell["status"] == "done" and is_known(cell["score"])]
    others = [cell["status"] for cell in cells if cell["status"] != "done" or not is_known(cell["score"])]
    parameters = [cell["parameters"] for cell in cells if is_known(cell["parameters"])]
    speeds = [cell["examples_per_s"] for cell in ended if is_known(cell["examples_per_s"])]
    done = sorted(ended, key=lambda cell: cell["seed"])
    return Score(
        row=row,
        setting=setting,
        by_seed={int(cell["seed"]): float(cell["score"]) for cell in done},
        failures=dict(Counter(NO_SCORE if status == "done" else status for status in others)),
        leak=any(cell["leak"] for cell in ended),
        search_done=all(cell["search_done"] for cell in cells),
        marks=cells[0]["marks"],
        parameters=int(max(parameters)) if parameters else None,
        examples_per_s=float(np.mean(speeds)) if speeds else None,
        examples={int(cell["seed"]): examples[cell["id"]] for cell in done if cell["id"] in examples},
        data={int(cell["seed"]): cell["fingerprint"] for cell in done},
        cells=tuple(id for _, id in sorted((cell["seed"], cell["id"]) for cell in cells)),
        limits=limits,
    )


def chances(cells: Cells) -> dict[str, float]:
    """What a guess that ignores the input scores on each test set: {fingerprint: score}, that of most cells first."""
    with_baseline = cells[cells["baseline"].notna() & cells["fingerprint"].notna()]
    by_data = with_baseline.groupby("fingerprint")["baseline"].agg(["size", "first"]).reset_index()
    by_data = by_data.sort_values(["size", "fingerprint"], ascending=[False, True])
    return {data: float(score) for data, score in zip(by_data["fingerprint"], by_data["first"], strict=True)}


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
    data = {seed: " ".join(str(part.data.get(seed)) for part in parts) for seed in shared}
    cells = tuple(dict.fromkeys(cell for part in parts for cell in part.cells))
    limits = parts[0].limits if len({part.limits for part in parts}) == 1 else UNLIMITED
    marks = "".join(sorted({sign for part in parts for sign in part.marks}))
    shared = {"leak": any(part.leak for part in parts), "search_done": all(part.search_done for part in parts)}
    return Score(parts[0].row, "", by_seed, failures, data=data, cells=cells, limits=limits, marks=marks, **shared)


def rank(scores: Sequence[Score], higher_is_better: bool | None) -> list[Score]:
    """Best first, or lowest first where neither way is better; rows without a score last."""
    sign = -1 if higher_is_better else 1

    def key(score: Score) -> tuple[bool, float, str, str]:
        ours = score.estimate
        return ours is None, sign * ours.mean if ours else 0.0, score.row, score.setting

    return sorted(scores, key=key)


def data_notes(cells: Cells) -> tuple[str, ...]:
    """What the cells of a group were scored on, and whether that was the same."""
    done = cells[cells["status"] == "done"]
    notes = []
    if (count := done["fingerprint"].nunique()) > 1:
        notes.append(f"Caution: these runs used {count} different data sets.")
    kinds = {source.partition(":")[0] for source in done["source"]}  # stand in the title
    if origins := sorted(set(done["origin"].dropna()) - kinds):
        notes.append(f"Data: {', '.join(origins)}.")
    if tested := sorted({int(n) for n in done["n_test"].dropna()}):
        notes.append(f"Test examples: {' or '.join(f'{n:,}' for n in tested)}.")
    return tuple(notes)
