"""The learning rates that searches chose, from the records of their trials (`harness.config.search`).

Cells of a row count at the chosen rate alone, as if it were the recipe's. Cells at the recipe's own rate stand beside
them if another rate was chosen. A row without a complete search is shown at the recipe's rate, and so is, marked, a row
without a cell at the chosen rate. Tests leave such rows out where the budget states a search: the recipe's rate was
found on another model.
"""

import functools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from harness.config import search as searches
from harness.config.compose import compose, folders, options, search_path
from harness.config.resolvers import option_for
from harness.config.search import RATE, TRIAL, Choice, Search
from harness.config.table_rows import Settings
from harness.errors import UsageError
from harness.records.collect import Cells
from harness.report.scores.scores import is_known
from harness.report.spec.parts import Column
from harness.report.spec.table import TableSpec
from harness.report.stats.grouping import grouped
from harness.report.stats.seeds import MIN_SEEDS

Selected = Mapping[str, Mapping[str, Cells]]  # protocol -> column -> its cells
SEARCHED = {RATE, TRIAL}  # keys of `changed` that a search sets
_searches: dict[str, Search | None] = {}  # by the option of a budget for a task


@dataclass(frozen=True)
class Tuning:
    """The learning rate of a row in a column. `rate`: the chosen one; `second`: the second-best one; `recipe`: the
    recipe's, which most rows share."""

    rate: float
    second: float
    recipe: float
    choice: Choice
    trials: Mapping[float, float]  # learning rate -> mean score on the validation split, the higher the better

    @property
    def loss(self) -> float:
        """How much worse the second-best rate scores on the validation split; infinite if its trial failed."""
        second = self.trials[self.second]
        return math.inf if second == searches.FAILED else self.trials[self.rate] - second

    @property
    def is_recipe(self) -> bool:
        return self.rate == self.recipe


@dataclass(frozen=True)
class Unfinished:
    """A search without a choice. `missing`: the learning rates whose trials are not there."""

    missing: tuple[float, ...]


def tuned(cells: Cells, *, at_recipe: bool = False) -> Cells:
    """The cells that count, with a column `tuning`: the Tuning of their row, its Unfinished search, or None without
    one. `untuned`: the row has no cell at the chosen rate, so this one is at the recipe's. `search_done`: the budget
    states no search, or a search chose the rate.

    `at_recipe`: instead, the cells at the recipe's rate of the rows for which another rate was chosen.
    """
    trial = [bool(config["train"].get("trial")) for config in cells["config"]]
    if not any(trial):
        return with_search_done((cells[:0] if at_recipe else cells).assign(tuning=None, untuned=False))
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
        if not isinstance(tuning, Tuning) or (tuning.is_recipe and at_recipe):
            chosen = []
        else:
            at_rate = grouped((rates[number], number) for number in others)
            chosen = at_rate.get(tuning.recipe if at_recipe else tuning.rate, [])
            if not chosen and not at_recipe:
                chosen = at_rate.get(tuning.recipe, [])
                untuned.update(chosen)
            for number in chosen:
                changed[number] = without_search(changed[number])
        kept += chosen
        tunings += [tuning] * len(chosen)
        if not at_recipe:  # a rate that a user typed is a setting of the row, as without a search
            is_tuned = isinstance(tuning, Tuning)
            searched = (tuning.rate, tuning.recipe) if is_tuned else ()
            typed = [number for number in others if rates[number] not in searched]
            kept += typed
            tunings += [None if is_tuned else tuning] * len(typed)
    cells = cells.assign(changed=changed, untuned=[number in untuned for number in range(len(cells))])
    return with_search_done(cells.iloc[kept].assign(tuning=tunings).sort_index())


def with_search_done(cells: Cells) -> Cells:
    keys = zip(*(cells[key] for key in ("budget", "task", "tuning", "untuned")), strict=True)
    return cells.assign(
        search_done=[
            (isinstance(tuning, Tuning) and not untuned) or budget_search(budget, task) is None
            for budget, task, tuning, untuned in keys
        ]
    )


def without_search(changed: Settings) -> Settings:
    return tuple(pair for pair in changed if pair[0] not in SEARCHED)


def _rate(config: Mapping[str, Any]) -> float | None:
    return config["train"].get("optimizer", {}).get("lr")


def _tuning(trials: Cells, search: Search | None) -> Tuning | Unfinished | None:
    """The choice among the trials of one row; None for a budget without a search, and without a trial at the recipe's
    rate."""
    if search is None:
        return None
    keys = ("config", "changed", "seed", "status", "val", "higher_is_better")
    of_search = [trial for trial in zip(*(trials[key] for key in keys), strict=True) if trial[2] in search.seeds]
    at_recipe = [_rate(config) for config, changed, *_ in of_search if RATE not in dict(changed)]
    if not at_recipe or at_recipe[0] is None:
        return None
    recipe = at_recipe[0]
    # the scores of trials, the higher the better, as `harness.records.validation` reads them
    scored = {(_rate(config), seed): searches.signed_score(*score) for config, _, seed, *score in of_search}
    by_rate = grouped((rate, score) for (rate, _), score in scored.items())
    means = {rate: statistics.fmean(every) for rate, every in by_rate.items() if len(every) == len(search.seeds)}
    scores = {
        times: score
        for rate, score in means.items()
        if searches.learning_rate(recipe, times := searches.multiple(recipe, rate)) == rate
    }
    rates, choice = searches.decide(search, scores)
    if choice is None:
        return Unfinished(tuple(searches.learning_rate(recipe, rate) for rate in rates if rate not in scores))
    return Tuning(
        searches.learning_rate(recipe, choice.rate),
        searches.learning_rate(recipe, choice.second),
        recipe,
        choice,
        means,
    )


@functools.cache
def budget_search(budget: str, task: str) -> Search | None:
    """The search that a budget states for a task; None for names without a readable configuration.

    It is composed once for all tasks with the same option of the budget.
    """
    if any(name not in dict(options(group)) for group, name in (("budget", budget), ("task", task))):
        return None
    option = option_for("budget", budget, task, folders())
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
        rows = {row: tuning for row, tuning in pairs if isinstance(tuning, kind)}
        if rows:
            tunings[name] = rows
    return tunings


def losses(cells: Cells, column: Column) -> dict[str, float]:
    """{row: how much worse its second-best rate scores on the validation split} in the unit of a column.

    Empty for a column of another score than the one that searches choose by.
    """
    if column.evaluation is not None or column.reaches is not None:
        return {}
    plain = cells[(cells["setting"] == "") & (cells["metric"] == column.metric)]
    pairs = zip(plain["row"], plain["tuning"], strict=True)
    return {row: tuning.loss for row, tuning in pairs if isinstance(tuning, Tuning)}


def mean_scores(cells: Cells) -> dict[str, Sequence[float]]:
    """{row: scores of its seeds} of the selected cells of a column that ended well."""
    values = zip(*(cells[key] for key in ("row", "score", "status", "setting")), strict=True)
    ended = [(row, score) for row, score, *how in values if how == ["done", ""] and is_known(score)]
    return grouped(sorted(ended, key=lambda pair: pair[0]))


def outdone_rows(selected: Selected, at_recipe: Selected, spec: TableSpec) -> dict[str, list[str]]:
    """{column: the rows whose worst seed at the recipe's rate is ahead of their best seed at the chosen rate}.

    Their search, of one or a few seeds, did not choose well. Only rows with `MIN_SEEDS` at both rates count.
    """
    rows: dict[str, list[str]] = {}
    for protocol, columns in selected.items():
        for name, cells in columns.items():
            if spec.columns[name].metric is None:
                continue
            sign = 1 if spec.resolve(name).higher_is_better else -1
            chosen, before = (
                {
                    row: [sign * score for score in scores]
                    for row, scores in mean_scores(part[part["budget"] == spec.budget]).items()
                }
                for part in (cells, at_recipe[protocol][name])
            )
            rows[name] = [
                row
                for row, scores in before.items()
                if min(len(scores), len(chosen.get(row, ()))) >= MIN_SEEDS and min(scores) > max(chosen[row])
            ]
    return rows
