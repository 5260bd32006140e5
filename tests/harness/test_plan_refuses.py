"""What a run would refuse before it trains, do=plan refuses: wrong values of each setting, missing files, misfits."""

import pytest
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

import longhaul
from harness.commands.explain import explain
from harness.commands.plan import plan_rows
from harness.config.build import build_or_refuse
from harness.config.cell import cell_of, flatten
from harness.config.compose import OWN_CLASS, compose, options
from harness.config.sweep import Command
from harness.errors import UsageError

REFUSED = {
    "model=lavo task=lra/listops model.epe=sometimes": "model.epe: input should be a valid boolean",
    "model=lavo task=lra/listops model.cross_source=query": "one of raw, value, not query",
    "model=perceiver_ar task=lm/pg19 model.latents=0": "latents=0 is not in 1..32",
    "model=luna task=lra/listops model.pack_heads=-1": "model.pack_heads=-1 is less than 1",
    "model=vanilla task=probe/recall task.vocabulary=4": "fewer than pairs",
    "model=vanilla task=lra/listops task.path={rows}.absent/x.tsv": "rows.csv.absent/x.tsv: missing",
    "model=linformer task=probe/recall": "Linformer has no causal_self form",
    "table=lavo/t11 model=lavo task=lra/text model.window=0": "LAVO requires window >= 1, not 0",
    "model=vanilla task=data/lm task.path={rows} task.text=texts": "no column 'texts', there is a, b, text, label",
    "model=vanilla task=data/regression task.path={rows} task.inputs=[a] task.target=z": "no column 'z'",
    "model=vanilla task=data/lm task.path={rows} task.names=0": "task.names=0 is less than 1",
}
# one task for each pattern, and one for models that replace the backbone
TASKS = ("probe/recall", "lra/listops", "forecasting/etth1", "mt/wmt14_ende", "lm/pg19")
SMALL = ("budget=smoke", "trainer=cpu")
WRONG = {bool: ("maybe",), int: ("-1", "1.5", "abc"), float: ("-1", "abc", "nan"), str: ("nonsense",)}
# any value is one: names, seeds, columns of a file; numbers of which those below 0 are some; the folder of the data
FREE = ("name", "_target_", "protocol", "declares", "budgets", "data_root", "length_penalty", "frequency", "shift")
MEANT = ("model.kl_mean=-1",)  # not known, as in the paper's text


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
        return str(error)
    return None


@pytest.mark.parametrize("command", REFUSED)
def test_a_plan_refuses_in_one_line(command, plan, rows):
    with pytest.raises(UsageError) as error:
        plan(*command.format(rows=rows).split())
    assert REFUSED[command] in str(error.value) and "\n" not in str(error.value)


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


@pytest.mark.slow
@pytest.mark.parametrize(("group", "name"), OPTIONS, ids="{0[1]}".format)
def test_a_plan_refuses_an_impossible_value_of_each_parameter(group, name, plan, rows):
    base = next(words for words in bases(group, name, rows) if answer(plan, words) is None)
    values = OmegaConf.to_container(compose([*base, *SMALL])[group], resolve=True, enum_to_str=True)
    words = [
        f"{group}.{key}={wrong}"
        for key, value in values.items()
        if key not in FREE
        for wrong in WRONG.get(type(value), ())
    ]
    accepted = [word for word in words if answer(plan, (*base, word)) is None]
    assert [word for word in accepted if word not in MEANT] == []


# every other setting of three commands, by its type
COMMANDS = (
    ("model=lavo", "task=lra/listops"), ("model=luna", "task=mt/wmt14_ende"), ("model=vanilla", "task=completion/pcn")
)  # fmt: skip
GROUPS = ("model", "backbone", "task", "train", "checkpoint", "resources", "cluster", "n_jobs", "seed")
OF_TYPE = {bool: ("maybe", "3"), int: ("-1", "1.5", "abc", "true"), float: ("-1", "abc", "nan"), str: ("[]",)}
# values that mean something: a name of any kind, a number of which 0 or less is one, what another budget has
NAMES_AND_SIGNS = ("name", "_target_", "protocol", "accelerator", "precision", "budgets", "length_penalty")
FLOATS = ("schedule.every=1.5",)  # the recipe has an integer


def mistakes(command):
    cfg = OmegaConf.to_container(compose([*command, *SMALL]), resolve=True, enum_to_str=True)
    for key, value in flatten(cfg).items():
        if key.split(".")[0] in GROUPS and not set(key.split(".")) & set(NAMES_AND_SIGNS):
            typed = (f"{key}={wrong}" for wrong in OF_TYPE.get(type(value), ()))
            yield from (word for word in typed if not word.endswith(FLOATS))


def line_of(command, mistake):
    """The line that a user sees; None where the command would train."""
    typed = [*command, *SMALL, mistake]
    try:
        cfg = compose(typed)
        cell_of(cfg)
        build_or_refuse(cfg)
    except UsageError as error:
        return str(error)
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        return explain(error, typed)
    return None


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[1])
def test_every_mistake_in_a_setting_is_one_line(command):
    lines = {mistake: line_of(command, mistake) for mistake in mistakes(command)}
    assert len(lines) > 150
    assert [mistake for mistake, line in lines.items() if not line or "\n" in line] == []
