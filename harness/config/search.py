"""The search for a learning rate that a budget gives every row of a table alike, in `conf/budget/<name>.yaml`:

    budget:
      search: {rates: [0.33, 1, 3.3], seeds: [101]}

A row is first trained in each column at each rate, a multiple of the recipe's, with the seeds of the search: these
cells are trials (`train.trial`). A trial is scored on the validation split alone. The rate with the best mean score is
chosen, and the table's seeds are trained at it. If the best rate is at an end of the grid, the grid grows there by one
rate, once. Trials at further rates, of a grid that was in the budget before, take part in the choice: a search is
complete once the rates of the present grid are there.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from omegaconf import DictConfig, OmegaConf

from harness.config.schema import LARGEST_SEED
from harness.config.validation import StrictModel, TupleOf, parse
from harness.errors import UsageError

RATE = "train.optimizer.lr"  # the setting that is searched
TRIAL = "train.trial"
MOST = 10  # rates, and seeds
NONE = {"rates": [], "seeds": []}  # what a budget without a search has
FAILED = -math.inf  # the score of a trial that failed


class Search(StrictModel):
    """`rates`: multiples of the recipe's learning rate, which is one of them. `seeds`: of the trials."""

    rates: TupleOf[float]
    seeds: TupleOf[int]


@dataclass(frozen=True)
class Choice:
    """`rate`: the chosen multiple. `tried`: number of rates. `on_edge`: it is the lowest or highest rate tried.

    `second`: the multiple with the second-best score.
    """

    rate: float
    tried: int
    on_edge: bool
    second: float


def search_of(cfg: DictConfig) -> Search | None:
    """The search of a configuration's budget; None if it states none. Raises UsageError."""
    raw, where = cfg.budget.get("search"), f"budget={cfg.budget.get('name')}: search"
    raw = OmegaConf.to_container(raw) if OmegaConf.is_config(raw) else raw
    if raw is None or raw == NONE:
        return None
    search = parse(Search, raw, where)
    if len(set(search.rates)) < max(3, len(search.rates)) or 1 not in search.rates:
        raise UsageError(f"{where}: rates are at least three different numbers, of which 1 is the recipe's rate")
    if not all(math.isfinite(rate) and rate > 0 for rate in search.rates):
        raise UsageError(f"{where}: rates are positive numbers")
    if not 1 <= len(search.seeds) <= MOST or len(search.rates) > MOST:
        raise UsageError(f"{where}: between 1 and {MOST} seeds and at most {MOST} rates are expected")
    if not all(0 <= seed <= LARGEST_SEED for seed in search.seeds):
        raise UsageError(f"{where}: seeds lie between 0 and {LARGEST_SEED:,}")
    return search


def signed_score(status: str, score: float, higher_is_better: bool) -> float:
    """The score of a trial, the higher the better; FAILED unless its status is `done`."""
    if status != "done":
        return FAILED
    return score if higher_is_better else -score


def learning_rate(recipe: float, rate: float) -> float:
    """The learning rate at this multiple of the recipe's, in three digits; exactly the recipe's at 1."""
    return recipe if rate == 1 else float(f"{recipe * rate:.3g}")


def multiple(recipe: float, rate: float) -> float:
    """The multiple of the recipe's learning rate at which a cell was trained: the inverse of `learning_rate`."""
    exact, short = rate / recipe, rounded(rate / recipe)
    return short if learning_rate(recipe, short) == rate else exact


def decide(search: Search, scores: Mapping[float, float]) -> tuple[list[float], Choice | None]:
    """The rates to try, and the choice once `scores`, {rate: mean score, the higher the better}, has all of them.

    Of equal scores the one nearest to the recipe's rate is chosen.
    """
    rates = sorted({*search.rates, *scores})
    if not scores.keys() >= set(rates):
        return rates, None
    best = _ordered(scores)[0]
    if best in search.rates and best == rates[0]:
        return [rounded(best * best / rates[1]), *rates], None
    if best in search.rates and best == rates[-1]:
        return [*rates, rounded(best * best / rates[-2])], None
    return rates, Choice(best, len(rates), best in (rates[0], rates[-1]), _ordered(scores)[1])


def rounded(rate: float) -> float:
    return float(f"{rate:.3g}")


def _ordered(scores: Mapping[float, float]) -> list[float]:
    """The rates, best first."""
    return sorted(scores, key=lambda rate: (-scores[rate], abs(math.log(rate)), rate))
