"""The learning rates that searches chose, from the records of their trials (`harness.config.search`).

Cells of a row count at the chosen rate alone, as if it were the recipe's. A row without a complete search is shown at
the recipe's rate, and so is, marked, a row without a cell at the chosen rate. Tests leave such rows out where the
budget states a search: the recipe's rate was found on another model.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from harness.config import search as searches
from harness.config.compose import compose, folders, options, search_path
from harness.config.option_files import contents, option_for
from harness.config.search import RATE, TRIAL, Choice, Search, learning_rate
from harness.config.table_rows import Settings
from harness.errors import UsageError
from harness.records.baselines import floor, is_at_floor
from harness.records.collect import Cells
from harness.report.render import wording
from harness.report.stats.grouping import grouped
from harness.report.stats.seeds import MIN_SEEDS

Selected = Mapping[str, Mapping[str, Cells]]  # protocol -> column -> its cells
SEARCHED = {RATE, TRIAL}  # keys of `changed` that a search sets
EDGE, OUTDONE, AT_FLOOR = "*", "§", "‡"  # mark scores; those with one of the first two carry no verdict
_searches: dict[str, Search | None] = {}  # by the option of a budget for a task
_last: list[Cells] = []  # the last frame, and what counts of it


@dataclass(frozen=True)
class Tuning:
    """The learning rate of a row in a column. `rate`: the chosen one; `recipe`: the recipe's, which most rows share.

    `outdone`: at the recipe's rate, the worst seed is ahead of the best one at the chosen rate, so that the search, of
    one or a few seeds, did not choose well. Only rows with MIN_SEEDS at both rates count.
    """

    rate: float
    recipe: float
    choice: Choice
    outdone: bool = False

    @property
    def is_recipe(self) -> bool:
        return self.rate == self.recipe

    @property
    def trials(self) -> dict[float, float]:
        """Learning rate -> what the search compared, the higher the better."""
        return {learning_rate(self.recipe, rate): score for rate, score in self.choice.scores.items()}

    @property
    def score(self) -> float:
        """What the search compared, of the chosen rate, as in a record."""
        return self.choice.sign * self.choice.scores[self.choice.rate]

    @property
    def marks(self) -> str:
        return EDGE * self.choice.on_edge + OUTDONE * self.outdone


class Unfinished:
    """A search without a choice."""


def tuned(cells: Cells) -> Cells:
    """`tuned_rows` of a frame, which is kept for the next table of the same frame."""
    if not _last or _last[0] is not cells:
        _last[:] = [cells, tuned_rows(cells)]
    return _last[1]


def tuned_rows(cells: Cells) -> Cells:
    """The cells that count, with a column `tuning`: the Tuning of their row, its Unfinished search, or None without
    one. `untuned`: the row has no cell at the chosen rate, so this one is at the recipe's. `search_done`: the budget
    states no search, or a search chose the rate.
    """
    trial = [bool(config["train"].get("trial")) for config in cells["config"]]
    if not any(trial):
        return with_search_done(cells.assign(tuning=None, untuned=False))
    keys = ("task", "protocol", "budget", "model", "changed", "source")
    rows = grouped(
        ((*names, without_search(changed), source), number)
        for number, (*names, changed, source) in enumerate(zip(*(cells[key] for key in keys), strict=True))
    )
    kept: list[int] = []
    tunings: list[Tuning | Unfinished | None] = []
    untuned: set[int] = set()
    changed, rates = list(cells["changed"]), list(map(_rate, cells["config"]))
    for (task, _, budget, *_), numbers in rows.items():
        trials = [number for number in numbers if trial[number]]
        tuning = _tuning(cells.iloc[trials], budget_search(budget, task)) if trials else None
        others = [number for number in numbers if not trial[number]]
        chosen = []
        if isinstance(tuning, Tuning):
            at_rate = grouped((rates[number], number) for number in others)
            chosen = at_rate.get(tuning.rate, [])
            if not chosen:
                chosen = at_rate.get(tuning.recipe, [])
                untuned.update(chosen)
            elif not tuning.is_recipe:
                tuning = replace(tuning, outdone=_is_ahead(cells, at_rate.get(tuning.recipe, []), chosen))
            for number in chosen:
                changed[number] = without_search(changed[number])
        # a rate that a user typed is a setting of the row, as without a search
        is_tuned = isinstance(tuning, Tuning)
        # cells at these rates are of an earlier choice; without a choice, those at the recipe's rate count
        tried = {rates[number] for number in trials} if tuning is not None else set()
        of_row = [number for number in others if is_tuned or RATE in dict(changed[number])]
        typed = [number for number in others if number not in of_row or rates[number] not in tried]
        kept += [*chosen, *typed]
        tunings += [tuning] * len(chosen) + [None if is_tuned else tuning] * len(typed)
    cells = cells.assign(changed=changed, untuned=[number in untuned for number in range(len(cells))])
    return with_search_done(cells.iloc[kept].assign(tuning=tunings).sort_index())


def with_search_done(cells: Cells) -> Cells:
    keys = zip(*(cells[key] for key in ("budget", "task", "tuning", "untuned")), strict=True)
    return cells.assign(
        search_done=[
            not why_no_verdict(None if untuned else tuning) or budget_search(budget, task) is None
            for budget, task, tuning, untuned in keys
        ],
        marks=["" if untuned or not isinstance(tuning, Tuning) else tuning.marks
               for tuning, untuned in zip(cells["tuning"], cells["untuned"], strict=True)],
    )  # fmt: skip


def why_no_verdict(tuning: "Tuning | Unfinished | None") -> str:
    """Why a row, {}, may carry no verdict, such as a place, where the budget states a search; empty if it may.

    A rate that suits one row, such as that chosen on softmax attention for all, decides between no rows.
    """
    if not isinstance(tuning, Tuning):
        return wording.NO_CHOICE
    if tuning.choice.on_edge:
        return wording.ON_EDGE
    return wording.OUTDONE if tuning.outdone else ""


def without_search(changed: Settings) -> Settings:
    return tuple(pair for pair in changed if pair[0] not in SEARCHED)


def _rate(config: Mapping[str, Any]) -> float | None:
    return config["train"].get("optimizer", {}).get("lr")


def _is_ahead(cells: Cells, some: Sequence[int], others: Sequence[int]) -> bool:
    """Whether the worst test score of some cells is ahead of the best one of others, with MIN_SEEDS of each."""
    sides = [cells.iloc[numbers] for numbers in (some, others)]
    sides = [side[(side["status"] == "done") & side["score"].notna()] for side in sides]
    if min(map(len, sides)) < MIN_SEEDS:
        return False
    first, second = (side["score"] * (1 if side["higher_is_better"].iloc[0] else -1) for side in sides)
    return bool(first.min() > second.max())


def _tuning(trials: Cells, search: Search | None) -> Tuning | Unfinished | None:
    """The choice among the trials of one row; None for a budget without a search, and without a trial at the recipe's
    rate."""
    if search is None:
        return None
    keys = ("config", "changed", "seed", "trial")
    every = list(zip(*(trials[key] for key in keys), strict=True))
    recipe = next((_rate(config) for config, changed, *_ in every if RATE not in dict(changed)), None)
    if recipe is None:
        return None
    results = {(_rate(config), seed): trial for config, _, seed, trial in every}
    _, choice = searches.decide(search, lambda rate, seed: results.get((learning_rate(recipe, rate), seed)))
    return Unfinished() if choice is None else Tuning(learning_rate(recipe, choice.rate), recipe, choice)


@functools.cache
def budget_search(budget: str, task: str) -> Search | None:
    """The search that a budget states for a task; None for names without a readable configuration.

    It is composed once for all tasks whose option of the budget states no search of its own.
    """
    if any(name not in dict(options(group)) for group, name in (("budget", budget), ("task", task))):
        return None
    option = option_for("budget", budget, task, folders())
    if not any("search" in str(content) for content in contents(f"budget/{option}", folders())):
        option = budget
    if option not in _searches:
        try:
            _searches[option] = searches.search_of(compose([f"budget={budget}", f"task={task}"], search_path()))
        except (OmegaConfBaseException, HydraException, UsageError, FileNotFoundError):
            return None  # of this task alone
    return _searches[option]


def tuned_columns(selected: Mapping[str, Cells], budget: str, kind: type = Tuning) -> dict[str, dict[str, Any]]:
    """{column: {row: its Tuning}} of the selected cells of one protocol at this budget. `kind`: Unfinished for the
    searches without a choice."""
    tunings = {}
    for name, cells in selected.items():
        of_budget = cells[(cells["budget"] == budget) & (cells["setting"] == "")]
        pairs = zip(of_budget["row"], of_budget["tuning"], strict=True)
        if rows := {row: tuning for row, tuning in pairs if isinstance(tuning, kind)}:
            tunings[name] = rows
    return tunings


def rows_at_floor(cells: Cells, fits: Mapping[str, Mapping[str, Any]]) -> set[str]:
    """The rows whose search did no better than the best simple predictor. `fits`: of the predictors, by name."""
    of_rows = zip(cells["row"], cells["setting"], cells["tuning"], strict=True)
    tunings = {row: tuning for row, setting, tuning in of_rows if setting == "" and isinstance(tuning, Tuning)}
    lower = {row: tuning for row, tuning in tunings.items() if tuning.choice.sign < 0}
    return {
        row
        for row, tuning in lower.items()
        if is_at_floor(tuning.score, tuning.choice.error, floor(fits, tuning.choice.by))
    }
