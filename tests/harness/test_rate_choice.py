"""The choice of a learning rate by the trials of the present grid, and what the record of a cell says of it."""

import pytest
from helpers.searched import RECIPE, runs, trials

from harness.config.search import FAILED, Search, Trial, decide, trial_of
from harness.records import baselines, checks, record

SEARCH = Search(rates=(0.33, 1, 3.3), seeds=(101,), ties=(102, 103))


def decided(losses, *, error=None, search=SEARCH, by="loss"):
    """`losses`: {rate, or (rate, seed): validation loss, None for a failed trial}; a rate is one with seed 101."""
    known = {key if isinstance(key, tuple) else (key, 101): loss for key, loss in losses.items()}

    def result(rate, seed):
        if (rate, seed) not in known:
            return None
        loss = known[rate, seed]
        return Trial(FAILED) if loss is None else Trial(-loss, error, by, -1)

    pairs, choice = decide(search, result)
    return [pair for pair in pairs if pair not in known], choice and (choice.rate, len(choice.scores), choice.on_edge)


@pytest.mark.parametrize(
    "losses, missing, choice",
    [
        # it waits for all rates
        ({}, [0.33, 1, 3.3], None),
        ({0.33: 2.0, 1: 1.0}, [3.3], None),
        ({0.33: 2.0, 1: 1.0, 3.3: 1.5}, [], (1, 3, False)),
        # a grid whose best rate is at an end grows there, once
        ({0.33: 3.0, 1: 2.0, 3.3: 1.0}, [10.9], None),
        ({0.33: 3.0, 1: 2.0, 3.3: 1.0, 10.9: 2.0}, [], (3.3, 4, False)),
        ({0.33: 3.0, 1: 2.0, 3.3: 1.0, 10.9: 0.5}, [], (10.9, 4, True)),
        ({0.33: 1.0, 1: 2.0, 3.3: 3.0, 0.109: 4.0}, [], (0.33, 4, False)),
        # of equal losses the rate nearest to the recipe's is chosen, so that a plateau has no edge
        ({0.33: 2.009, 1: 2.005, 3.3: 2.0}, [], (1, 3, False)),
        ({0.33: 3.0, 1: 2.5, 3.3: 1.0, 10.9: 0.996}, [], (3.3, 4, False)),
        ({0.33: 3.0, 1: 2.0, 3.3: 1.0, 10.9: 0.9}, [], (10.9, 4, True)),
        # losses of a solved task are equal
        ({0.33: 0.009, 1: 0.004, 3.3: 0.0001}, [], (1, 3, False)),
        ({0.33: 0.3, 1: 0.2, 3.3: 0.0001, 10.9: 0.005}, [], (3.3, 4, False)),
        # a failed trial is never chosen; if all failed, the row shows how its runs end
        ({0.33: 9.0, 1: None, 3.3: None, 0.109: None}, [], (0.33, 4, False)),
        ({0.33: None, 1: None, 3.3: None}, [], (1, 3, False)),
    ],
)
def test_the_rate_with_the_least_loss_is_chosen(losses, missing, choice):
    assert decided(losses) == ([(rate, 101) for rate in missing], choice)


@pytest.mark.parametrize("former", [{10: 0.01}, {0.1: 0.01}, {0.5: 0.01}, {(1, 7): 0.01, (3.3, 7): 9.0}, {10.9: 0.01},
                                    {(0.33, 102): 0.01, (0.33, 103): 0.01}])  # fmt: skip
@pytest.mark.parametrize("present", [{0.33: 2.0, 1: 1.0, 3.3: 1.5}, {0.33: 2.0, 1: 1.0}, {}])
def test_trials_at_other_rates_or_seeds_change_nothing(former, present):
    assert decided(present | former) == decided(present)


@pytest.mark.parametrize(
    "error, near", [(None, 1.0199), (0.01, 1.0419)]
)  # 2 %, or three times 0.01 times the root of 2
def test_near_a_tie_further_seeds_of_the_two_best_rates_decide_by_their_median(error, near):
    losses = {0.33: 2.0, 1: 1.0, 3.3: near}
    ties = [(1, 102), (1, 103), (3.3, 102), (3.3, 103)]
    assert decided(losses, error=error) == (ties, None)
    assert decided(losses | {3.3: near + 0.002}, error=error) == ([], (1, 3, False))
    after = losses | {(1, 102): 1.0, (1, 103): 3.0, (3.3, 102): 0.9, (3.3, 103): 0.9}
    assert decided(after, error=error) == ([(10.9, 101)], None), "3.3 by its median, at an end of the grid"
    assert decided(after | {10.9: 2.0}, error=error)[1][0] == 3.3
    assert decided(after | {(3.3, 102): None, (3.3, 103): None}, error=error) == ([], (1, 3, False))
    assert decided(losses | dict.fromkeys(ties), error=error) == ([(0.109, 101)], None), "0.33 is the best that is left"


def test_only_a_loss_can_be_solved():
    assert decided({0.33: 9e-3, 1: 4e-3, 3.3: 1e-4, 10.9: 1.0}, by="mse")[1][0] == 3.3


def test_a_trial_is_read_by_its_loss_or_else_by_its_metric():
    (entries,) = trials("vanilla", {RECIPE: 0.5})
    assert trial_of(entries) == Trial(-0.5, None, "loss", -1)
    entries["metrics"]["best"]["val_se"] = 0.02
    assert trial_of(entries).error == 0.02
    del entries["metrics"]["best"]["val"]["loss"]
    assert trial_of(entries) == Trial(49.0, 0.02, "acc", 1)
    entries["metric"]["higher_is_better"] = False
    assert trial_of(entries).score == -49.0
    assert trial_of(trials("vanilla", {RECIPE: None})[0]) == Trial(FAILED)


def test_the_choice_is_recorded_with_its_grid():
    losses = {(0.33, 101): 2.0, (1, 101): None, (3.3, 101): 1.0, (10.9, 101): 1.5}
    _, choice = decide(
        SEARCH, lambda *pair: Trial(FAILED) if losses[pair] is None else Trial(-losses[pair], 0.1, "loss", -1)
    )
    entry = choice.entry(1e-3)
    assert entry == {
        "by": "validation loss", "rates": [3.3e-4, 1e-3, 3.3e-3, 0.0109], "scores": [2.0, None, 1.0, 1.5],
        "seeds": [101], "chosen": 3.3e-3, "error": 0.1, "on_edge": False,
    }  # fmt: skip
    (entries,) = runs("lavo", 3.3e-3, [0.8])
    entries["search"] = entry | {"floor": 0.99, "at_floor": True}
    assert not list(checks.problems(record.parsed(entries)))


@pytest.mark.parametrize(
    "change, message",
    [
        ({"chosen": 0.5}, "chosen is none of rates"),
        ({"chosen": 1e-3}, "search.chosen: 0.001, but config.train.optimizer.lr is 0.0033"),
        ({"scores": [1.0]}, "1 scores of 3 rates"),
    ],
)
def test_a_record_of_a_search_that_cannot_be_is_refused(change, message):
    (entries,) = runs("lavo", 3.3e-3, [0.8])
    entries["search"] = {
        "by": "validation loss", "rates": [3.3e-4, 1e-3, 3.3e-3], "scores": [2.0, None, 1.0], "seeds": [101],
        "chosen": 3.3e-3, "error": None, "on_edge": False,
    } | change  # fmt: skip
    with pytest.raises(record.RecordError, match=message):
        parsed = record.parsed(entries)
        raise record.RecordError("; ".join(checks.problems(parsed)))


@pytest.mark.parametrize(
    "loss, error, floor, at_floor",
    [
        (1.9, None, 2.0, False),
        (1.97, None, 2.0, True),
        (1.9, 0.04, 2.0, True),
        (2.5, None, 2.0, True),
        (2.5, 0.1, None, False),
    ],
)
def test_a_loss_within_two_percent_or_three_standard_errors_of_the_floor_is_at_the_floor(loss, error, floor, at_floor):
    assert baselines.is_at_floor(loss, error, floor) is at_floor


def test_the_floor_is_the_loss_of_the_best_predictor_that_saw_what_a_model_sees():
    fits = {"counts": {"val": {"loss": 2.0}}, "5gram_all": {"val": {"loss": 1.0}}, "failed": {"val": None}}
    assert baselines.floor(fits, "loss") == 2.0 and baselines.floor(fits, "mse") is None
