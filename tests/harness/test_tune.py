"""hydra/sweeper=optuna: what is searched, the study that goes on, the best command."""

import importlib
import shlex

import pytest

from harness.commands import tune
from harness.config.sweep import expand_all
from harness.errors import UsageError
from harness.records.ownership import Ownership
from harness.records.record import RecordError

CELL = ["model=vanilla", "task=lra/listops", "budget=smoke"]
RATE = "train.optimizer.lr=tag(log,interval(1e-4,1e-2))"


def test_without_optuna_one_line_says_how_to_install_it(monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(UsageError, match=r"pip install -e '\.\[search\]'"):
        tune.search([*CELL, RATE], 2, 1)


@pytest.fixture
def optuna():
    pytest.importorskip("optuna")
    return tune.imported()


class Cells:
    """The cells of trials: the records that they left, and those that a signal stops."""

    def __init__(self):
        self.rates, self.records, self.sizes = [], {}, []  # of cells that have run, in their order; of each command
        self.stopped_after = None

    def run_all(self, commands):
        self.sizes.append(len(commands))
        for command in commands:
            if len(self.rates) == self.stopped_after:
                return tune.STOPPED + 9
            (planned,) = expand_all([command]).cells
            path = planned.cell.record_path(command.cfg)
            if path not in self.records:
                assert command.cfg.train.trial
                self.rates.append(command.cfg.train.optimizer.lr)
                self.records[path] = 1 - abs(self.rates[-1] - 0.001)
        return 0

    def read(self, path):
        if path not in self.records:
            raise RecordError(f"{path}: cannot be read: No such file or directory")
        point, metric = {"val": {"acc": self.records[path]}}, {"name": "acc", "higher_is_better": True}
        return {"status": "done", "metric": metric, "selection": {"rule": "best_val"}, "metrics": {"best": point}}


@pytest.fixture
def cells(optuna, monkeypatch):
    """A cell's score is higher the nearer its rate is to 0.001."""
    cells = Cells()
    monkeypatch.setattr(tune.train, "run_all", cells.run_all)
    monkeypatch.setattr(tune.record, "read", cells.read)
    return cells


@pytest.mark.parametrize(("typed", "expected"), [
    ("a=tag(log,interval(1e-4,1e-2))", ("FloatDistribution", {"low": 1e-4, "high": 1e-2, "log": True})),
    ("a=interval(1,8)", ("FloatDistribution", {"low": 1.0, "high": 8.0, "log": False})),
    ("a=int(interval(1,8))", ("IntDistribution", {"low": 1, "high": 8, "log": False})),
    ("a=range(1,4)", ("IntDistribution", {"low": 1, "high": 3, "step": 1})),
    ("a=range(0.0,1.0,0.25)", ("FloatDistribution", {"low": 0.0, "high": 0.75, "step": 0.25})),
    ("a=0.0,0.1", ("CategoricalDistribution", {"choices": ("0.0", "0.1")})),
    ("a=choice(x,y)", ("CategoricalDistribution", {"choices": ("x", "y")})),
])  # fmt: skip
def test_values_are_distributions(optuna, typed, expected):
    fixed, space = tune.split(optuna, ["b=3", typed])
    kind, fields = expected
    assert fixed == ["b=3"] and type(space["a"]).__name__ == kind
    assert {name: getattr(space["a"], name) for name in fields} == fields


def test_a_search_finds_the_best_and_is_extended(cells, places, capsys):
    typed = [*CELL, *places, RATE, "backbone.dropout=0.0,0.1"]
    assert tune.search(typed, 6, 1) == 0
    shown = capsys.readouterr().out
    nearest = min(cells.rates, key=lambda rate: abs(rate - 0.001))
    command = shlex.split(shown.splitlines()[-1].removeprefix("python run.py "))
    assert f"train.optimizer.lr={nearest}" in command and "best: val acc" in shown
    assert not any("trial" in word for word in command) and set(CELL) < set(command)
    assert tune.search(typed, 6, 1) == 0 and len(cells.rates) == 6
    assert tune.search(typed[::-1], 8, 1) == 0 and len(set(cells.rates)) == len(cells.rates) == 8


@pytest.mark.parametrize("trials", [5, 14])  # from the eleventh on, TPE draws by the scores
def test_a_killed_search_makes_the_trials_of_an_undisturbed_one(cells, places, capsys, trials):
    typed = [*CELL, *places, RATE]
    assert tune.search(typed, trials, 1) == 0
    rates, best = cells.rates, capsys.readouterr().out
    for killed_after in range(trials):
        cells.rates, cells.records, cells.stopped_after = [], {}, killed_after
        assert tune.search(typed, trials, 1) == tune.STOPPED + 9
        cells.stopped_after = None
        assert tune.search(typed, trials, 1) == 0
        assert cells.rates == rates and capsys.readouterr().out == best


def test_draws_follow_from_seed_number_and_scores(optuna, cells, places):
    _, space = tune.split(optuna, [RATE])
    earlier = [tune.EndedTrial({"train.optimizer.lr": 1e-4 * 1.4**n}, tune.Trial(-abs(n - 9)), "") for n in range(12)]
    others = [trial._replace(result=tune.Trial(-trial.result.score)) for trial in earlier]
    draws = [tune.drawn(optuna, space, *of) for of in ((1, 12, earlier), (2, 12, earlier), (1, 12, others))]
    assert len({draw["train.optimizer.lr"] for draw in draws}) == 3
    assert tune.drawn(optuna, space, 1, 12, earlier) == draws[0]
    assert tune.drawn(optuna, space, 1, 1, []) != tune.drawn(optuna, space, 2, 0, []), "seeds share no draws"


def test_two_trials_run_at_a_time(cells, places):
    assert tune.search([*CELL, *places, RATE, "n_jobs=2"], 5, 1) == 0
    assert cells.sizes == [2, 2, 1]


def test_a_search_has_one_owner(cells, places, tmp_path):
    typed = [*CELL, *places, RATE]
    assert tune.search(typed, 1, 1) == 0
    (folder,) = (tmp_path / "outputs" / "searches").iterdir()
    other = Ownership(folder)
    assert other.acquire()
    try:
        with pytest.raises(UsageError, match="another process runs this search") as error:
            tune.search(typed, 2, 1)
        assert "\n" not in str(error.value) and len(cells.rates) == 1
    finally:
        other.release()
    assert tune.search(typed, 2, 1) == 0


def test_a_trial_that_another_process_runs_is_waited_for(cells, places, monkeypatch):
    monkeypatch.setattr(tune.train, "run_all", lambda commands: 0)
    with pytest.raises(UsageError, match="has not ended; then the same command resumes"):
        tune.search([*CELL, *places, RATE], 2, 1)


def test_trials_that_are_refused_have_no_score(cells, places, monkeypatch, capsys):
    monkeypatch.setattr(tune.train, "run_all", lambda commands: tune.train.REFUSED)
    assert tune.search([*CELL, *places, RATE], 2, 1) == 1
    assert "none of 2 trials has a score" in capsys.readouterr().out


@pytest.mark.parametrize(("words", "trials", "message"), [
    ([], 2, "takes several values of a key"),
    (["seed=1,2"], 2, "seed is not searched"),
    ([RATE, "table=lavo/t11"], 2, "leave do= and table= out"),
    ([RATE, "do=plan"], 2, "leave do= and table= out"),
    ([RATE], 0, "one trial or more"),
    (["train.optimizer.lr=interval(1e-2,1e-4)"], 2, "train.optimizer.lr=interval"),
    (["train.optimizer.lr=tag(log,interval(0.0,1.0))"], 2, "train.optimizer.lr=tag"),
])  # fmt: skip
def test_what_cannot_be_searched_is_one_line(optuna, places, words, trials, message):
    with pytest.raises(UsageError, match=message) as error:
        tune.search([*CELL, *places, *words], trials, 1)
    assert "\n" not in str(error.value)
