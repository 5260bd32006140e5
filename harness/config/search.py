"""The search for a learning rate that a budget gives every row of a table alike, in `conf/budget/<name>.yaml`:

    budget:
      search: {rates: [0.33, 1, 3.3], seeds: [101], ties: [102, 103]}

A row is first trained in each column at each rate, a multiple of the recipe's, with `seeds`: these cells are trials
(`train.trial`), scored on the validation split alone. The rate with the least validation loss is chosen, or with the
best score of a task that has no `loss`, and the table's seeds are trained at it. Trials at other rates or with other
seeds take no part. A trial that failed is never chosen; if all failed, the recipe's rate is kept.

Of equal losses, the rate nearest to the recipe's is chosen. Two losses are equal if they differ by at most EQUAL of the
lesser one, as on the plateau of a row that cannot do the task, or if both are below SOLVED.

Where the best rate and the best one that is not equal to it differ by less than TIE standard errors, both are trained
with the seeds `ties` as well, and the better median over all their seeds is chosen. Trials of older records have no
standard error: of these, two that differ by less than TIE_SHARE of their loss are near a tie.

If the best rate is at an end of the grid, the grid grows there by one rate, once. If the best rate is then still at an
end, the search is `on_edge`.
"""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from omegaconf import DictConfig, OmegaConf
from pydantic import Field

from harness.config.schema import LARGEST_SEED
from harness.config.validation import StrictModel, TupleOf, parse
from harness.errors import UsageError

RATE = "train.optimizer.lr"  # the setting that is searched
TRIAL = "train.trial"
LOSS = "loss"  # the metric that decides, where a task has it
BY = "validation "  # before its name in a record
MOST = 10  # rates, and seeds
NONE = {"rates": [], "seeds": [], "ties": []}  # what a budget without a search has
FAILED = -math.inf  # the score of a trial that failed
SOLVED = 0.01  # nats
TIE = 3.0  # standard errors of the difference
TIE_SHARE = 0.02
EQUAL = 0.005

Pair = tuple[float, int]  # rate and seed of a trial
Seed = Annotated[int, Field(ge=0, le=LARGEST_SEED)]


class Search(StrictModel):
    """`rates`: multiples of the recipe's learning rate, which is one of them. `seeds`: of the trials; `ties`: of
    further trials near a tie."""

    rates: Annotated[TupleOf[Annotated[float, Field(gt=0)]], Field(max_length=MOST)]
    seeds: Annotated[TupleOf[Seed], Field(min_length=1, max_length=MOST)]
    ties: Annotated[TupleOf[Seed], Field(max_length=MOST)] = ()


@dataclass(frozen=True)
class Trial:
    """`score`: on the validation split, the higher the better: `sign` times the metric `by`. `error`: its standard
    error over the validation examples, None where it is not known."""

    score: float
    error: float | None = None
    by: str = ""
    sign: int = 1


@dataclass(frozen=True)
class Choice:
    """`rate`: the chosen multiple. `scores`: {rate: median score over its seeds}, by rising rate; `error`: the standard
    error of the chosen one. `by`, `sign`: as in `Trial`. `seeds`: of all trials. `on_edge`: the best rate is still at
    an end of the grid that grew."""

    rate: float
    scores: Mapping[float, float]
    on_edge: bool
    error: float | None = None
    by: str = ""
    sign: int = 1
    seeds: tuple[int, ...] = ()

    def entry(self, recipe: float) -> dict[str, Any]:
        """As in a record (`harness.records.schema.SearchEntry`). `recipe`: the recipe's learning rate."""
        scores = [self.sign * score if score > FAILED else None for score in self.scores.values()]
        rates = [learning_rate(recipe, rate) for rate in self.scores]
        return {
            "by": BY + self.by, "rates": rates, "scores": scores, "seeds": list(self.seeds),
            "chosen": learning_rate(recipe, self.rate), "error": self.error, "on_edge": self.on_edge,
        }  # fmt: skip


def search_of(cfg: DictConfig) -> Search | None:
    """The search of a configuration's budget; None if it states none. Raises UsageError."""
    raw, where = cfg.budget.get("search"), f"budget={cfg.budget.get('name')}: search"
    raw = OmegaConf.to_container(raw) if OmegaConf.is_config(raw) else raw
    if raw is None or raw == NONE:
        return None
    search = parse(Search, raw, where)
    if len(set(search.rates)) < max(3, len(search.rates)) or 1 not in search.rates:
        raise UsageError(f"{where}: rates are at least three different numbers, of which 1 is the recipe's rate")
    seeds = (*search.seeds, *search.ties)
    if len(set(seeds)) < len(seeds):
        raise UsageError(f"{where}: seeds and ties differ from each other")
    return search


def trial_of(entries: Mapping[str, Any]) -> Trial:
    """The result of a trial, from the entries of its record."""
    if entries["status"] != "done":
        return Trial(FAILED)
    point = entries["metrics"]["last" if entries["selection"]["rule"] == "last" else "best"]
    metric, values, error = entries["metric"], point["val"], point.get("val_se")
    by, sign = (LOSS, -1) if LOSS in values else (metric["name"], 1 if metric["higher_is_better"] else -1)
    return Trial(sign * values[by], error, by, sign)


def learning_rate(recipe: float, rate: float) -> float:
    """The learning rate at this multiple of the recipe's, in three digits; exactly the recipe's at 1."""
    return recipe if rate == 1 else float(f"{recipe * rate:.3g}")


def decide(search: Search, result: Callable[[float, int], Trial | None]) -> tuple[list[Pair], Choice | None]:
    """The trials that the search takes by what is known so far, and the choice once all of them have a result.

    `result`: of the trial at a multiple of the recipe's rate, with a seed; None until it has ended.
    """
    known = _Known(search, result)
    rates = tuple(sorted(search.rates))
    best = known.best(rates)
    if best is not None and (further := known.beyond(rates, best)) is not None:
        rates = tuple(sorted((*rates, further)))
        best = known.best(rates)
    if best is None:
        return list(known.results), None
    seeds = tuple(sorted({seed for _, seed in known.results}))
    scores, on_edge = {rate: known.scores[rate] for rate in rates}, known.beyond(rates, best) is not None
    return list(known.results), Choice(best, scores, on_edge, known.errors[best], known.by, known.sign, seeds)


class _Known:
    """The results of the trials that were asked for, and what they say of each rate."""

    def __init__(self, search: Search, result: Callable[[float, int], Trial | None]):
        self.search, self.result = search, result
        self.results: dict[Pair, Trial | None] = {}
        self.tied: set[float] = set()  # rates whose trials have the seeds of `ties` too
        self.scores: dict[float, float] = {}
        self.errors: dict[float, float | None] = {}
        self.by, self.sign = "score", 1  # if all trials failed

    def best(self, rates: Sequence[float]) -> float | None:
        """The best of these rates; None while trials are missing."""
        if not self._read(rates):
            return None
        first = self._first_of(rates)
        others = [rate for rate in rates if self._is_behind(rate, rates)]
        second = self._first_of(others) if others else first
        if not self._is_near(first, second):
            return first
        self.tied |= {first, second}
        if not self._read(rates):
            return None
        best = self._first_of((first, second))
        return best if self.scores[best] > FAILED else self._first_of(rates)

    def _read(self, rates: Iterable[float]) -> bool:
        """Whether all trials of these rates have ended; then the scores are those of them."""
        seeds_of = {rate: self.search.seeds + self.search.ties * (rate in self.tied) for rate in rates}
        for rate, seed in ((rate, seed) for rate, seeds in seeds_of.items() for seed in seeds):
            if (rate, seed) not in self.results:
                self.results[rate, seed] = self.result(rate, seed)
        of_rates = {rate: [self.results[rate, seed] for seed in seeds] for rate, seeds in seeds_of.items()}
        if any(None in trials for trials in of_rates.values()):
            return False
        for rate, trials in of_rates.items():
            errors = [trial.error for trial in trials]
            self.scores[rate] = statistics.median(trial.score for trial in trials)
            self.errors[rate] = None if None in errors else math.hypot(*errors) / len(errors)
            self.by, self.sign = next(((trial.by, trial.sign) for trial in trials if trial.by), (self.by, self.sign))
        return True

    def _compared(self, rate: float) -> float:
        return min(self.scores[rate], -SOLVED) if self.by == LOSS else self.scores[rate]

    def _is_behind(self, rate: float, rates: Iterable[float]) -> bool:
        """Whether a rate is not equal to the best one."""
        best = max(map(self._compared, rates))
        return self._compared(rate) < best - EQUAL * abs(best)

    def _first_of(self, rates: Sequence[float]) -> float:
        """Of the rates that are equal to the best one, the nearest to the recipe's."""
        equal = (rate for rate in rates if not self._is_behind(rate, rates))
        return min(equal, key=lambda rate: (abs(math.log(rate)), rate))

    def _is_near(self, first: float, second: float) -> bool:
        """Whether two rates differ, but by too little for one seed."""
        difference, errors = self._compared(first) - self._compared(second), [self.errors[first], self.errors[second]]
        if not 0 < difference < math.inf:
            return False
        limit = TIE_SHARE * abs(self._compared(first)) if None in errors else TIE * math.hypot(*errors)
        return difference < limit

    def beyond(self, rates: Sequence[float], best: float) -> float | None:
        """The rate beyond the end of the grid at which the best rate is; None within the grid."""
        neighbours = {rates[0]: rates[1], rates[-1]: rates[-2]}
        if best not in neighbours or self.scores[best] == FAILED:
            return None
        return float(f"{best * best / neighbours[best]:.3g}")
