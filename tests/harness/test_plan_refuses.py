"""do=plan refuses what a run would refuse before it trains: each setting with values of another type or range."""

import re

import pytest
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

import longhaul
from harness.commands.mistakes import explain
from harness.commands.plan import plan_rows
from harness.config.cell import flatten
from harness.config.compose import OWN_CLASS, compose, options
from harness.config.sweep import Command
from harness.errors import UsageError

# one task for each pattern, and one for models that replace the backbone
TASKS = ("probe/recall", "lra/listops", "forecasting/etth1", "mt/wmt14_ende", "lm/pg19")
SMALL = ("budget=smoke", "trainer=cpu")
WRONG = {bool: ("maybe", "3"), int: ("-1", "1.5", "abc", "true"), float: ("-1", "abc", "nan"), str: ("nonsense",)}
HARNESS = ("backbone", "train", "checkpoint", "resources", "cluster", "n_jobs", "seed")
COMMANDS = ("model=lavo task=lra/listops", "model=luna task=mt/wmt14_ende", "model=vanilla task=completion/pcn")
# any value is one: names, seeds, columns of a file; numbers of which those below 0 are some; the folder of the data;
# what another budget has
FREE = ("name", "_target_", "protocol", "declares", "budgets", "data_root", "length_penalty", "frequency", "shift")
FREE += ("accelerator", "precision", "dataset", "date")  # the last two: names of a series and of a column
# not known, as in the paper's text; a law that grows; the recipe has an integer; OmegaConf reads 3 as true
MEANT = ("model.kl_mean=-1", "task.power=1.5", "train.schedule.every=1.5", "resources.compile=3")
MEANT += ("resources.checkpoint_layers=3", "cluster.requeue=3")


@pytest.fixture
def rows(tmp_path):
    file = tmp_path / "rows.csv"
    lines = [f"{number},{number % 7},some text {number},{number % 2}" for number in range(60)]
    file.write_text("\n".join(["a,b,text,label", *lines]) + "\n")
    return file


@pytest.fixture
def plan(places):
    def rows_of(*words):
        typed = [*words, *SMALL, *places]
        return plan_rows([Command(compose(typed), tuple(typed))])

    return rows_of


def answer(plan, words):
    """The refusal; None where the plan accepts."""
    try:
        plan(*words)
    except (UsageError, HydraException, OmegaConfBaseException, ValueError) as error:
        return explain(error, words)
    return None


def test_a_plan_of_several_cells_marks_the_refused_ones(places, run_here, capsys):
    typed = ["-m", "do=plan", "model=lavo,linformer", "task=probe/recall", "seed=1,2", *SMALL, *places]
    assert run_here(typed) == 2
    out, err = capsys.readouterr()
    assert "cells: 4, 2 missing, 2 refused" in out
    assert "2 refused: model (Linformer): Linformer has no causal_self form" in err
    frame = longhaul.plan(*typed[2:])
    assert frame.groupby("model")["state"].first().to_dict() == {"lavo": "missing", "linformer": "refused"}


def test_a_table_alone_is_planned_without_building_its_models(plan, monkeypatch):
    monkeypatch.setattr("harness.config.build.build_or_refuse", None)
    assert len(plan("table=lavo/t11", "task=lra/listops", "seed=1")) > 10


def bases(group, name, rows):
    """Commands, of which the first that is accepted has the option."""
    if group == "model":
        return [(f"model={name}", f"task={task}") for task in TASKS]
    columns = {
        "data/classification": ["task.text=text", "task.label=label"], "data/lm": ["task.text=text"],
        "data/regression": ["task.inputs=[a,b]", "task.target=label"],
    }  # fmt: skip
    return [("model=vanilla", f"task={name}", *([f"task.path={rows}", *columns[name]] if name in columns else []))]


OPTIONS = [(group, name) for group in ("model", "task") for name, _ in options(group) if name not in OWN_CLASS]


def accepted(plan, base, values, wrong):
    """The settings, {key: value}, with a wrong value that are not refused in one line.

    Each has the first value of its type's list, and in turn one of the others, which are of another type.
    """
    words = []
    for number, (key, value) in enumerate(values.items()):
        first, others = (entries := wrong.get(type(value), ()))[:1], entries[1:]
        words += [f"{key}={entry}" for entry in (*first, *others[number % max(len(others), 1) :][:1])]
    answers = {word: answer(plan, (*base, word)) for word in words if not set(re.split("[.=]", word)) & set(FREE)}
    return [word for word, line in answers.items() if (not line or "\n" in line) and word not in MEANT]


@pytest.mark.slow
@pytest.mark.parametrize(("group", "name"), OPTIONS, ids="{0[1]}".format)
def test_a_plan_refuses_an_impossible_value_of_each_parameter(group, name, plan, rows):
    base = next(words for words in bases(group, name, rows) if answer(plan, words) is None)
    values = OmegaConf.to_container(compose([*base, *SMALL])[group], resolve=True, enum_to_str=True)
    assert accepted(plan, base, {f"{group}.{key}": value for key, value in values.items()}, WRONG) == []


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_a_plan_refuses_an_impossible_value_of_each_setting(command, plan):
    base = command.split()
    values = flatten(OmegaConf.to_container(compose([*base, *SMALL]), resolve=True, enum_to_str=True))
    values = {key: value for key, value in values.items() if key.split(".")[0] in HARNESS}
    assert len(values) > 50
    assert accepted(plan, base, values, {**WRONG, str: ("[]",)}) == []
