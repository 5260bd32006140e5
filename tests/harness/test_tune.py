"""hydra/sweeper=optuna: what is searched, the study that goes on, the best command."""

import importlib
import os
import re
import shlex

import pytest

from harness.commands import tune
from harness.config.sweep import expand_all
from harness.errors import UsageError

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


@pytest.fixture
def trained(optuna, monkeypatch, tmp_path):
    """The commands that were run; a cell's score is higher the nearer its rate is to 0.001."""
    ran = []

    def run_all(commands):
        ran.extend(commands)
        return 0

    def read(path):
        (command,) = (done for done in ran if expand_all([done]).cells[0].cell.record_path(done.cfg) == path)
        score = 1 - abs(command.cfg.train.optimizer.lr - 0.001)
        point = {"val": {"acc": score}}
        metric = {"name": "acc", "higher_is_better": True}
        return {"status": "done", "metric": metric, "selection": {"rule": "best_val"}, "metrics": {"best": point}}

    monkeypatch.setattr(tune.train, "run_all", run_all)
    monkeypatch.setattr(tune.record, "read", read)
    return ran


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


def test_a_study_finds_the_best_and_goes_on(trained, places, capsys):
    typed = [*CELL, *places, RATE, "backbone.dropout=0.0,0.1"]
    assert tune.search(typed, 6, 1) == 0
    shown = capsys.readouterr().out
    assert len(trained) == 6 and all(command.cfg.train.trial for command in trained)
    nearest = min(trained, key=lambda command: abs(command.cfg.train.optimizer.lr - 0.001))
    command = shlex.split(shown.splitlines()[-1].removeprefix("python run.py "))
    assert f"train.optimizer.lr={nearest.cfg.train.optimizer.lr}" in command and "best: val acc" in shown
    assert not any("trial" in word for word in command) and set(CELL) < set(command)
    assert tune.search(typed, 6, 1) == 0 and len(trained) == 6
    assert tune.search(typed, 8, 1) == 0 and len(trained) == 8
    rates = [command.cfg.train.optimizer.lr for command in trained]
    assert len(set(rates)) == 8, "a study that goes on does not repeat its draws"


def test_trials_that_were_stopped_are_asked_again(trained, places, monkeypatch):
    typed = [*CELL, *places, RATE]
    begun = []

    def stopped(commands):
        begun.extend(commands)
        return tune.STOPPED + 2

    with monkeypatch.context() as patch:
        patch.setattr(tune.train, "run_all", stopped)
        assert tune.search(typed, 2, 1) == tune.STOPPED + 2
    assert tune.search(typed, 2, 1) == 0
    assert trained[0].cfg.train.optimizer.lr == begun[0].cfg.train.optimizer.lr and len(trained) == 2


def test_two_trials_run_at_a_time(trained, places, monkeypatch):
    sizes, run_all = [], tune.train.run_all
    monkeypatch.setattr(tune.train, "run_all", lambda commands: sizes.append(len(commands)) or run_all(commands))
    assert tune.search([*CELL, *places, RATE, "n_jobs=2"], 5, 1) == 0
    assert sizes == [2, 2, 1]


def test_trials_without_a_record_have_no_score(trained, places, monkeypatch, capsys):
    def missing(path):
        raise FileNotFoundError(path)

    monkeypatch.setattr(tune.record, "read", missing)
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


@pytest.fixture
def journal(trained, places, tmp_path):
    """The words of a search of one trial, and its journal."""
    typed = [*CELL, *places, RATE]
    assert tune.search(typed, 1, 1) == 0
    (file,) = (tmp_path / "outputs").glob("searches/*.journal")
    return typed, file


FOREIGN = {
    "no JSON": lambda text: "\x1b[2J\n" * 2,
    "another form": lambda text: '{"op_code": 4}\n',
    "another search": lambda text: text.replace("0.01", "0.02"),
    "a value outside": lambda text: re.sub(r'"param_value_internal":[^,]+', '"param_value_internal":1e300', text),
    "no score": lambda text: re.sub(r'"values":\[[^]]+]', '"values":[NaN]', text),
    "an enqueued text": lambda text: text + ENQUEUED.replace("RATE", '"1,trusted_packages=[x]"'),
}
ENQUEUED = (
    '{"op_code":4,"worker_id":"x","study_id":0,"datetime_start":null,"state":4,"value":null,"values":null,'
    '"distributions":{},"params":{},"user_attrs":{},"intermediate_values":{},'
    '"system_attrs":{"fixed_params":{"train.optimizer.lr":RATE}}}\n'
)


@pytest.mark.parametrize("change", FOREIGN.values(), ids=FOREIGN)
def test_a_journal_of_somebody_else_is_one_line(trained, journal, change):
    typed, file = journal
    file.write_bytes(change(file.read_text()).encode(errors="surrogateescape"))
    with pytest.raises(UsageError, match="no journal of this search") as error:
        tune.search(typed, 2, 1)
    assert "\n" not in str(error.value) and str(error.value).isprintable() and len(trained) == 1


def test_a_journal_changes_no_word_of_the_command(journal, capsys):
    typed, file = journal
    assert tune.search(typed, 1, 1) == 0
    command = capsys.readouterr().out.splitlines()[-1]
    (line,) = (line for line in file.read_text().splitlines() if '"metric":"acc"' in line)
    evil = ['"metric":"\\u001b[2J"', '"overrides":["trusted_packages=[x]"]']
    lines = "\n".join(line.replace('"metric":"acc"', attribute) for attribute in evil)
    file.write_text(file.read_text().replace(line, lines))
    assert tune.search(typed, 1, 1) == 0
    text = capsys.readouterr().out
    assert text.splitlines()[-1] == command and "\x1b" not in text


@pytest.mark.parametrize(("kind", "ending"), [("fifo", ""), ("folder", tune.LOCK), ("link", ""), ("device", tune.LOCK)])
def test_only_a_file_is_a_journal_or_its_lock(journal, tmp_path, kind, ending):
    typed, file = journal
    file.unlink()
    path = file.with_name(file.name + ending)
    makers = {"fifo": os.mkfifo, "folder": os.mkdir}
    links = {"link": tmp_path / "elsewhere", "device": "/dev/zero"}
    makers[kind](path) if kind in makers else path.symlink_to(links[kind])
    with pytest.raises(UsageError, match="move it away"):
        tune.search(typed, 1, 1)
    assert not (tmp_path / "elsewhere").exists()
