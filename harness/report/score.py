"""What our records say of one model in one column: seeds that ended, seeds that failed, and how that is written."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.config.cell import flatten
from harness.config.table_rows import said
from harness.errors import UsageError
from harness.records.collect import differences
from harness.report.spec import Spec
from harness.report.statistics import Estimate, apart, estimate

if TYPE_CHECKING:
    import pandas as pd

NO_SCORE = "no test score"
LEAK = "[test leak]"


@dataclass(frozen=True)
class Score:
    """A row in one configuration. `seeds`: seed -> score in the table's unit; `failures`: status -> seeds."""

    row: str  # label of the paper's row, or the name of a model that its table lacks
    setting: str  # what was set beyond the row, or sets it apart from other configurations; empty for what it means
    seeds: dict[int, float]
    failures: dict[str, int]
    leak: bool = False
    parameters: int | None = None
    examples_per_s: float | None = None
    peak_memory_mb: float | None = None

    @property
    def estimate(self) -> Estimate | None:
        return estimate(list(self.seeds.values())) if self.seeds else None

    @property
    def broken(self) -> str:
        """`oom`, `2 nan, 1 failed`; empty if every seed ended well."""
        if len(self.failures) == 1 and not self.seeds and sum(self.failures.values()) == 1:
            return next(iter(self.failures))
        return ", ".join(f"{count} {status}" for status, count in sorted(self.failures.items()))

    @property
    def status(self) -> str:
        if not self.failures:
            return "done"
        return f"{len(self.seeds)} done, {self.broken}" if self.seeds else self.broken

    def text(self, decimals: int) -> str:
        """`61.23 ± 0.45 (3)`; failures are named, never averaged over."""
        ours = self.estimate
        if ours is None:
            return self.broken
        spread = "" if ours.half_width is None else f" ± {ours.half_width:.{decimals}f}"
        count = f"{ours.n}; {self.broken}" if self.failures else f"{ours.n}"
        return f"{ours.mean:.{decimals}f}{spread} ({count}){' ' + LEAK if self.leak else ''}"


def stated(cells: "pd.DataFrame", spec: Spec, configs: Mapping[str, dict[str, Any]]) -> "pd.DataFrame":
    """The cells with `changed` as the table's columns say it: what a column sets counts as set, also where the recipe
    means it anyway."""
    keys: dict[str, dict[str, set[str]]] = {}
    for place in spec.columns.values():
        for key, value in place.set.items():
            keys.setdefault(place.task, {}).setdefault(key, set()).add(str(value))
    changed = []
    for ident, task, already in zip(cells["id"], cells["task"], cells["changed"], strict=True):
        flat = flatten(configs[ident]) if task in keys else {}
        used = {key: str(flat.get(key)) for key in keys.get(task, {})}
        more = {f"{key}={value}" for key, value in used.items() if value in keys[task][key]}
        changed.append(_in_order(words(already) | more) if more else already)
    return cells.assign(changed=changed)


def of_column(cells: "pd.DataFrame", spec: Spec, column: str) -> "pd.DataFrame":
    """The cells that measure a column, out of `stated` ones, with two columns more: `row`, the label of the row whose
    cell it is or the name of a model that the table lacks, and `setting`, what was set beyond what row and column mean.

    A cell that broke off before its task was built has no metric yet. What sets a column apart from another one of its
    task is no setting but decides which of the two it is. One cell may measure several columns: `score` is this one's,
    and the baseline, which is known for one metric, is dropped from the others.
    """
    place, claims = spec.columns[column], spec.claims(spec.columns[column].task)
    siblings = [other for other in spec.columns.values() if other.task == place.task]
    metric = cells["metric"].isna() | cells["metric"].isin({other.metric for other in siblings})
    cells = cells[(cells["task"] == place.task) & metric]
    own = words(said(place.set))
    others = [words(said(other.set)) for other in siblings]
    kept, rows, settings = [], [], []
    for index, model, changed in zip(cells.index, cells["model"], cells["changed"], strict=True):
        owners, label = claims.get((model, changed), []), spec.label(model)
        mine = [row for row, name in owners if name == column]
        ours = own <= words(changed) and not any(own < other <= words(changed) for other in others)
        if mine:
            row, setting = mine[0], ""
        elif owners or not ours:
            continue
        else:
            beyond = ", ".join(word for word in changed.split(", ") if word not in own)
            row, setting = (model, beyond) if label is None else (label, beyond or "the plain recipe")
        kept.append(index)
        rows.append(row)
        settings.append(setting)
    cells = cells.loc[kept].assign(row=rows, setting=settings)
    cells["score"] = [tested.get(place.metric) for tested in cells["tested"]]
    cells.loc[cells["metric"] != place.metric, ["baseline", "baseline_name"]] = None
    return cells


def _in_order(changes: set[str]) -> str:
    """As `harness.config.table_rows.said` has them."""
    return ", ".join(sorted(changes, key=lambda word: word.partition("=")[0]))


def words(changes: str) -> set[str]:
    return set(changes.split(", ")) - {""}


def split(cells: "pd.DataFrame") -> "tuple[pd.DataFrame, pd.DataFrame]":
    """The cells of a column that may stand beside the paper's numbers, and the others.

    A cell that broke off early knows neither its data nor its metric; it puts no number anywhere.
    """
    full = cells["source"].isin(["full", "unknown"])
    at_paper = (cells["budget"] == "paper") & (cells["setting"] == "") & full
    return cells[at_paper], cells[~at_paper]


def scores(cells: "pd.DataFrame", configs: Mapping[str, dict[str, Any]]) -> list[Score]:
    """One score for each row and configuration among the cells of one column.

    Cells of one row are averaged only if they differ in nothing but the seed. Raises UsageError for two cells that
    do not even differ in that.
    """
    found = []
    for row, of_row in cells.groupby("row", sort=True):
        groups = [group for _, group in of_row.groupby("variant", sort=True)]
        settings = [group["setting"].iloc[0] for group in groups]
        if len(set(settings)) < len(groups):  # a recipe that was edited since, or what a user may set freely
            settings = differences([configs[group["id"].iloc[0]] for group in groups])
        for setting, group in sorted(zip(settings, groups, strict=True), key=lambda pair: pair[0]):
            twice = group[group["seed"].duplicated(keep=False)]
            if len(twice):
                ids = " and ".join(twice["id"])
                raise UsageError(f"{row}: records {ids} are one cell, with one seed and configuration; remove one")
            found.append(_score(row, setting, group))
    return found


def _score(row: str, setting: str, group: "pd.DataFrame") -> Score:
    ended = (group["status"] == "done") & group["score"].notna()
    statuses = group["status"][~ended].replace("done", NO_SCORE)
    speed, memory = (group[key][ended].dropna() for key in ("examples_per_s", "peak_memory_mb"))
    parameters = group["parameters"].dropna()
    done = group[ended].sort_values("seed")
    return Score(
        row=row,
        setting=setting,
        seeds={int(seed): float(score) for seed, score in zip(done["seed"], done["score"], strict=True)},
        failures=dict(Counter(statuses)),
        leak=bool(group["leak"][ended].any()),
        parameters=int(parameters.max()) if len(parameters) else None,
        examples_per_s=float(speed.mean()) if len(speed) else None,
        peak_memory_mb=float(memory.mean()) if len(memory) else None,
    )


def average(parts: Sequence[Sequence[Score]]) -> Score | None:
    """The mean over columns, seed by seed; None unless every column has a score, in the recipe's configuration alone.

    A seed counts if it ended in every column; if no seed did, there is no average.
    """
    if not all(len(part) == 1 and part[0].seeds and not part[0].setting for part in parts):
        return None
    only = [part[0] for part in parts]
    shared = sorted(set.intersection(*(set(score.seeds) for score in only)))
    if not shared:
        return None
    seeds = {seed: sum(score.seeds[seed] for score in only) / len(only) for seed in shared}
    failures = dict(sum((Counter(score.failures) for score in only), Counter()))
    return Score(only[0].row, "", seeds, failures, leak=any(score.leak for score in only))


def winner(found: Sequence[Score], higher_is_better: bool) -> Score | None:
    """The best score, if its interval does not overlap the runner-up's and no seed of it failed."""
    sign = 1 if higher_is_better else -1
    ranked = sorted((score for score in found if score.estimate), key=lambda score: -sign * score.estimate.mean)
    if len(ranked) < 2 or ranked[0].failures or not apart(ranked[0].estimate, ranked[1].estimate):
        return None
    return ranked[0]
