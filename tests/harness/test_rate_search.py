"""The search for a learning rate before a table's cells: its rates, choice and cells, and their page."""

import math

import pytest
from helpers.searched import RECIPE, TABLE_SPEC, Trials, records, runs, trials
from omegaconf import OmegaConf

from harness.commands import train
from harness.config import sweep
from harness.config.compose import compose
from harness.config.search import search_of
from harness.errors import UsageError
from harness.records import checks, record
from harness.records.collect import frame
from harness.report.scores import groups, select
from harness.training.run_cell import CellResult

TABLE = OmegaConf.create({
    "protocol": "skyformer", "rows": {"LAVO": "lavo"}, "seeds": [1, 2],
    "columns": {"ListOps": {"task": "lra/listops", "metric": "acc"}},
})  # fmt: skip


@pytest.mark.parametrize(
    "search, message",
    [
        ({"rates": [1, 3], "seeds": [7]}, "at least three different numbers"),
        ({"rates": [0.5, 2, 3], "seeds": [7]}, "of which 1 is the recipe's rate"),
        ({"rates": [1, -1, 3], "seeds": [7]}, "should be greater than 0"),
        ({"rates": [1, math.nan, 3], "seeds": [7]}, "not a finite number"),
        ({"rates": [0.3, 1, 3], "seeds": []}, "seeds: .* at least 1 item"),
        ({"rates": [0.3, 1, 3], "seeds": list(range(600))}, "seeds: .* at most 10 items"),
        ({"rates": list(range(1, 100)), "seeds": [7]}, "rates: .* at most 10 items"),
        ({"rates": [0.3, 1, 3], "seeds": [-1]}, "should be greater than or equal to 0"),
        ({"rates": [0.3, 1, 3], "seeds": [7], "ties": [7]}, "seeds and ties differ"),
        ({"rates": [0.3, 1, 3]}, "seeds"),
        ({"rates": "all", "seeds": [7]}, "rates"),
        (7, "a mapping|dict|object"),
    ],
)
def test_a_search_that_cannot_be_is_refused_in_one_line(search, message):
    with pytest.raises((UsageError, ValueError), match=message) as refusal:
        cfg = OmegaConf.create({"budget": {"name": "reduced", "search": search}})
        search_of(cfg)
    assert "\n" not in str(refusal.value)


def planned(validation, *typed, budget="reduced", search=True):
    words = [f"budget={budget}", *typed]
    table = TABLE if search else OmegaConf.merge(TABLE, {"search": False})
    return sweep.expand_table(table, compose(words), words, validation)


def rates(plan):
    return [(cell.cfg.train.optimizer.lr, cell.cell.seed, cell.cfg.train.trial) for cell in plan.cells]


def test_trials_come_first_and_the_seeds_of_the_table_at_the_chosen_rate():
    plan = planned(Trials())
    trials = [(RECIPE * 0.33, 101, True), (RECIPE, 101, True), (3.3e-3, 101, True)]
    assert rates(plan) == [(pytest.approx(rate), *rest) for rate, *rest in trials] and plan.unchosen == 2
    validation = Trials(**{"3.3e_4": 1.0, "1e_3": 2.0, "3.3e_3": 3.0})
    assert [rate for rate, *_ in rates(planned(validation))][-1] == 0.0109
    validation = Trials(**{"3.3e_4": 1.0, "1e_3": 2.0, "3.3e_3": 3.0, "1.09e_2": 0.0})
    plan = planned(validation)
    assert rates(plan)[-2:] == [(3.3e-3, 1, None), (3.3e-3, 2, None)] and plan.unchosen == 0
    assert len({cell.cell.id for cell in plan.cells}) == 6


def test_near_a_tie_the_sweep_has_trials_of_the_two_best_rates():
    plan = planned(Trials(**{"3.3e_4": -3.0, "1e_3": -1.0, "3.3e_3": -1.01}))
    ties = [(rate, seed, True) for rate in (1e-3, 3.3e-3) for seed in (102, 103)]
    assert rates(plan)[3:] == [*ties, (1e-3, 1, None), (1e-3, 2, None)]
    assert plan.cells[-1].searched["seeds"] == [101, 102, 103] and plan.cells[-1].searched["chosen"] == 1e-3


def test_the_recipes_rate_gives_the_cells_of_the_recipe():
    plan = planned(Trials(**{"3.3e_4": 1.0, "1e_3": 2.0, "3.3e_3": 1.0}))
    assert [cell.cell.id for cell in plan.cells[-2:]] == [cell.cell.id for cell in planned(None).cells]


@pytest.mark.parametrize(
    "typed, budget, search",
    [
        (["train.optimizer.lr=0.01"], "reduced", True),
        (["budget.search=null"], "reduced", True),
        ([], "paper", True),
        ([], "reduced", False),
    ],
)
def test_no_search_without_one_in_the_budget_or_table_or_with_a_typed_rate(typed, budget, search):
    plan = planned(Trials(), *typed, budget=budget, search=search)
    assert len(plan.cells) == 2 and not any(cell.cfg.train.trial for cell in plan.cells)


def test_the_search_is_no_part_of_a_cell_and_a_trial_is_another_cell():
    cell = planned(None).cells[0].cell
    assert "search" not in cell.config["budget"] and "trial" not in cell.config["train"]
    trial = planned(Trials()).cells[1].cell
    assert trial.config["train"]["trial"] is True and str(trial).endswith("seed 101 · trial at lr 0.001")


def test_a_sweep_goes_on_with_the_chosen_rate(monkeypatch):
    """Until nothing is left to begin; what failed is not begun twice."""
    scores, begun = {}, []

    def run(requests, **_):
        for request in requests:
            train_cfg = request.cfg.train
            begun.append((train_cfg.optimizer.lr, request.cfg.seed))
            if train_cfg.trial:
                scores[train_cfg.optimizer.lr] = -abs(math.log(train_cfg.optimizer.lr / 3.3e-3))
            yield CellResult("cell", "failed" if request.cfg.seed == 2 else "done", int(request.cfg.seed == 2), "")

    monkeypatch.setattr(train, "run_sequential", run)
    validation = Trials()
    validation.by_rate = scores
    monkeypatch.setattr(train, "TrialRecords", lambda: validation)
    typed = ["table=lavo/t11", "budget=reduced", "model=lavo", "task=lra/listops"]
    monkeypatch.setattr(sweep, "default_protocol", lambda *_: "skyformer")
    assert train.run_all([sweep.Command(compose(typed), tuple(typed))]) == 1
    assert [rate for rate, seed in begun if seed == 101] == [3.3e-4, 1e-3, 3.3e-3, 0.0109]
    assert [pair for pair in begun if pair[1] != 101] == [(3.3e-3, seed) for seed in (1, 2, 3, 4, 5)]


# records and pages


def scores_of(entries):
    (result,) = groups.group_scores(select.select(frame(entries), TABLE_SPEC), TABLE_SPEC)
    return {(score.row, score.setting): score.estimate.mean for group in result.own for score in group.scores}


def test_the_rate_at_which_a_row_counts():
    assert scores_of(records()) == pytest.approx({("softmax", ""): 91, ("control", ""): 21, ("LAVO", ""): 81})
    typed = scores_of([*records(), *runs("lavo", 0.05, [0.60, 0.61, 0.62])])
    assert (typed["LAVO", ""], typed["LAVO", "train.optimizer.lr=0.05"]) == pytest.approx((81, 61))
    incomplete = scores_of(records(lavo=(0.3, 0.4, 0.8)))  # the grid has to grow: the recipe's rate
    assert (incomplete["LAVO", ""], incomplete["softmax", ""]) == pytest.approx((41, 91))
    earlier = scores_of([*records(), *runs("lavo", 3.3e-4, [0.3, 0.3, 0.3])])
    assert earlier["LAVO", ""] == pytest.approx(81) and len(earlier) == 3, "an earlier choice of the search"


def test_without_seeds_at_the_chosen_rate_those_at_the_recipes_rate_are_shown_and_marked():
    entries = [
        entries
        for entries in records()
        if entries["config"]["train"]["optimizer"]["lr"] != 3.3e-3 or entries["cell"]["seed"] == 101
    ]
    scores = scores_of(entries)
    assert scores["LAVO", "at the recipe's rate"] == pytest.approx(41) and ("LAVO", "") not in scores
    assert scores_of([*entries, *runs("lavo", 3.3e-3, [0.8])]).keys() >= {("LAVO", "")}, (
        "one seed at the chosen rate counts"
    )


def test_a_trial_has_no_test_score():
    (entries,) = trials("vanilla", {RECIPE: 0.5})
    assert not list(checks.problems(record.parsed(entries)))
    entries["metrics"]["best"]["test"] = {"acc": 50.0, "n": 25000}
    assert any("config.train.trial" in problem for problem in checks.problems(record.parsed(entries)))
    assert record.summary(entries).startswith("trial at lr 0.001: val acc 49")


# updates to reach a score


def curve(model, seeds, values):
    made = runs(model, RECIPE, [values[-1] / 100] * seeds)
    for entries in made:
        entries["curve"] = [{"step": 100 * number, "val": value} for number, value in enumerate(values, 1)]
    return made


def test_a_column_may_show_the_updates_to_reach_a_score():
    column = {"task": "lra/listops", "metric": "acc", "reaches": 60, "unit": "updates", "higher_is_better": False}
    spec = TABLE_SPEC.model_validate(TABLE_SPEC.model_dump() | {"columns": {"updates": column}})
    entries = [*curve("vanilla", 3, [20, 61, 95]), *curve("lavo", 3, [20, 21, 22]), *runs("no_mixing", RECIPE, [0.2])]
    entries[0]["curve"] = entries[0]["curve"][1:]  # 100 updates later: an interval of updates passes the scale of acc
    entries[0]["curve"][0]["step"] = 300
    entries[0]["baseline"] = {"name": "majority class", "val": 17.0, "test": 16.8}
    (result,) = groups.group_scores(select.select(frame(entries), spec), spec)
    (group,) = result.own
    texts = {score.row: score.text(0) for score in group.scores}
    assert texts == {"softmax": "233 ± 143 (3)", "LAVO": "3 not by 50000", "control": "no curve"}
    assert not group.baselines and not group.chances  # a predictor's score is no number of updates


def test_a_curve_agrees_with_the_metrics():
    (entries,) = curve("vanilla", 1, [20.0, 61.0, 94.0])
    last = entries["metrics"]["last"]
    last["step"], last["val"]["acc"] = 300, 94.0
    assert not list(checks.curve(record.parsed(entries)))
    entries["curve"][-1]["val"] = 99.0
    assert list(checks.curve(record.parsed(entries))) == ["curve: its last point is not metrics.last.val"]
    entries["curve"][0]["step"] = 200
    assert "curve: its steps do not rise" in list(checks.curve(record.parsed(entries)))
