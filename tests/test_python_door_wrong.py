"""Wrong arguments of `import longhaul`: each is a UsageError of one line, and nothing runs."""

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from torch import nn

import longhaul
from longhaul.words import words_of

ROOT = Path(__file__).resolve().parents[1]
ABSENT = str(Path(__file__).with_name("absent"))
FOLDER = Path("lra/listops/skyformer/reduced")
CELL = {"task": "lra/listops", "budget": "smoke"}


class Mixer(nn.Module):
    def forward(self, x):
        return x


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("records")
    for file in sorted((ROOT / "results" / "records" / FOLDER).glob("no_mixing-s[12]-*")):
        (folder / FOLDER).mkdir(parents=True, exist_ok=True)
        shutil.copy(file, folder / FOLDER)
    return folder


@pytest.fixture(scope="module")
def cells(root):
    return longhaul.records(root)


def message(call):
    with pytest.raises(longhaul.UsageError) as error:
        call()
    assert "\n" not in str(error.value)
    return str(error.value)


ARGUMENTS = [
    (({"model": "lavo"},), {}, "settings are texts, 'model=lavo', or keywords"),
    ((None,), {}, "a NoneType is neither"),
    (("",), {}, "a setting is empty"),
    (("--cfg", "job"), {}, "--cfg: flags are typed after python run.py"),
    (("model=lavo task=lra/listops budget=smoke",), {}, "type each setting as a word of its own"),
    (("hydra/launcher=slurm",), {}, "functions run here"),
    ((), {"hydra/sweeper": "optuna"}, "functions run here"),
    (("table=lavo/t99",), {}, "there is no table 'lavo/t99'"),
    ((), {"table": "llp/t6"}, "has no cells"),
    ((), {"do": "report"}, "longhaul has functions for it"),
    ((), {"model": None}, "model=None: give a name, or leave model out"),
    ((), {"model": Mixer}, "model=Mixer: a name is expected, or longhaul.attention"),
    ((), {"model": Mixer()}, "longhaul.attention(MyModule)"),
    ((), {"model": []}, "model=[]: no value"),
    ((), {"model": "lavoo"}, "did you mean 'lavo'"),
    ((), {"model": "linformer", "task": "probe/recall"}, "no causal_self form"),
    ((), {"model": "lavo", "model.window": 0}, "LAVO requires window >= 1"),
    ((), {"task": "listops"}, "did you mean 'lra/listops'"),
    ((), {"seed": np.arange(2)}, "seed: ndarray is no value"),
    ((), {"seed": -1}, "seed=-1 is less than 0"),
    ((), {"seed": "one"}, "seed"),
    ((), {"seeds": [1, 2]}, "did you mean 'seed'"),
    ((), {"budget": 5}, "there is no budget '5': there is: paper, reduced, smoke"),
    ((), {"epochs": 3}, "a run has train.max_steps=... updates"),
    ((), {"train": 3}, "train"),
    ((), {"train": {"lr": 0.1}}, "did you mean 'train.optimizer.lr'?"),
    ((), {"train": {"max_steps": 0}}, "train.max_steps=0 is less than 1"),
    ((), {"train": {"optimizer": {"lr": -1}}}, "train.optimizer.lr=-1 is not more than 0"),
    ((), {"optimizer": object()}, "object is no value that can be typed"),
    ((), {"resources": {"gpus": 1}}, "there is no key 'resources.gpus': resources=gpu1"),
]


@pytest.mark.parametrize(("overrides", "settings", "says"), ARGUMENTS)
def test_arguments_of_another_kind_are_named(overrides, settings, says):
    assert says in message(lambda: longhaul.plan(*overrides, **(CELL | settings)))


@pytest.mark.parametrize(("key", "value", "words"), [
    ("seed", [1, 2], ["seed=1,2"]),
    ("seed", range(1, 3), ["seed=1,2"]),
    ("seed", np.int64(3), ["seed=3"]),
    ("model", "latte*", ["model=latte*"]),
    ("train", {"max_steps": 3, "optimizer": {"lr": 0.1}}, ["train.max_steps=3", "train.optimizer.lr=0.1"]),
    ("task.path", Path("/data/x.csv"), ["task.path=/data/x.csv"]),
])  # fmt: skip
def test_values_are_typed_as_on_the_command_line(key, value, words):
    assert words_of(key, value) == words


@pytest.mark.parametrize(("where", "says"), [
    ({"modle": "lavo"}, "did you mean 'model'"),
    ({"model": "lavoo"}, "did you mean 'lavo'?"),
    ({"model": 5}, "model=5: the column holds str"),
    ({"model": None}, "model=None: the column holds str"),
    ({"model": []}, "model=[]: no value"),
    ({"seed": "x"}, "seed='x': the column holds int"),
    ({"seed": 1.5}, "seed=1.5: the column holds int"),
    ({"seed": True}, "seed=True: the column holds int"),
    ({"config": {}}, "config={}: the column holds dict"),
    ({"status": "finished"}, "no record has status='finished'"),
])  # fmt: skip
def test_records_cannot_be_selected_by_a_value_that_none_can_have(root, where, says):
    assert says in message(lambda: longhaul.records(root, **where))


def test_records_may_be_selected_by_a_seed_that_none_has(root):
    assert longhaul.records(root, seed=[1, np.int64(7)])["seed"].tolist() == [1]


@pytest.mark.parametrize("folder", [5, ["a"], b"x", pd.DataFrame()])
def test_a_folder_is_a_path(folder):
    assert "is a path, not a" in message(lambda: longhaul.records(folder))
    assert "is a path, not a" in message(lambda: longhaul.measurements(folder))
    assert "lavo is no folder of measurements" in message(lambda: longhaul.measurements("lavo"))


def test_frames_that_are_no_records_are_named(cells):
    wrong = {
        "not a int": 5,
        "not a list": [],
        "not a Series": cells.iloc[0],
        "lacks the columns id, model, task, ...": pd.DataFrame(),
        "lacks the columns seed": cells.drop(columns="seed"),
        "the column score holds other values than numbers": cells.assign(score="high"),
        "twice: .drop_duplicates('id') keeps one": pd.concat([cells, cells]),
    }
    for says, frame in wrong.items():
        assert says in message(lambda frame=frame: longhaul.report("demo", records=frame))
        assert says in message(lambda frame=frame: longhaul.figure("lavo/f4", records=frame))


def test_a_cell_with_what_its_function_does_not_read(cells):
    row = cells.iloc[0]
    assert "do=export does not read model=" in message(lambda: longhaul.load(row, model="vanilla"))
    assert "do=export does not read seed=" in message(lambda: longhaul.export(row, seed=3))
    assert "longhaul.load takes one value per key" in message(
        lambda: longhaul.load(row, **{"task.path": "a"}, seed=[1, 2])
    )
    assert "file name too long" in message(lambda: longhaul.load("a" * 5000))


def test_an_unknown_name_has_an_answer():
    with pytest.raises(AttributeError, match="no attribute 'recrods': did you mean 'records'"):
        longhaul.recrods  # noqa: B018
    assert not hasattr(longhaul, "train")


CALLS = [
    (lambda: longhaul.load("demo/lavo").generate("To be", 10**9), "between 1 and 1,000,000"),
    (lambda: longhaul.export("demo/lavo", ""), "not an empty text"),
    (lambda: longhaul.run(), "type task= or table="),
    (lambda: longhaul.run(**CELL, resources={"devices": 0}), "resources.devices=0 is less than 1"),
    (lambda: longhaul.run(**CELL, paths={"records": ""}), "a folder of this machine is expected"),
    (lambda: longhaul.records(task="listops"), "no record has task='listops'"),
    (lambda: longhaul.records(accuracy=1), "records have no column 'accuracy'"),
    (lambda: longhaul.records(ABSENT), "no folder of records"),
    (lambda: longhaul.load("000000"), "there is no record of 000000"),
    (lambda: longhaul.load(model="lavo"), "missing a required argument: 'cell'"),
    (lambda: longhaul.load(5), "not int"),
    (lambda: longhaul.load("demo/luna"), "there are no weights demo/luna"),
    (lambda: longhaul.load(Path(ABSENT)), "no cell"),
    (lambda: longhaul.load(pd.DataFrame()), "not 0 rows"),
    (lambda: longhaul.load("demo/lavo").predict([]), "an input, or a list of one or more"),
    (lambda: longhaul.load("demo/lavo").predict("hello"), "hello"),
    (lambda: longhaul.load("demo/lavo").generate("[MAX"), "continue"),
    (lambda: longhaul.load("demo/shakespeare/lavo").predict("To be"), "generate"),
    (lambda: longhaul.load("demo/shakespeare/lavo").generate("To be", 0), "max_new_tokens=0"),
    (lambda: longhaul.load("demo/shakespeare/lavo").generate("", 5), "a text is expected"),
    (lambda: longhaul.load("demo/shakespeare/lavo").generate("x", temperature=1e-300), "temperature=1e-300"),
    (lambda: longhaul.load("demo/shakespeare/lavo").generate("x", temperature=1e300), "between 0.001 and 1000"),
    (lambda: longhaul.load("demo/shakespeare/lavo").generate("x" * 5_000_000), "a prompt of 5,000,000 characters"),
    (lambda: longhaul.compare("demo/lavo"), "missing a required argument: 'b'"),
    (lambda: longhaul.compare("lavo", "vanilla"), "lavo is no cell"),
    (lambda: longhaul.compare("demo/lavo", "demo/vanilla", root=ABSENT), ABSENT),
    (lambda: longhaul.report("demo2"), "there is no table 'demo2'"),
    (lambda: longhaul.report(), "missing a required argument: 'table'"),
    (lambda: longhaul.figure("luna/f9"), "did you mean 'luna/f"),
    (lambda: longhaul.status(state="finished"), "state"),
    (lambda: longhaul.status(since="yesterday"), "since=12h"),
    (lambda: longhaul.bench(model=["lavo"], lengths=[0]), "bench.lengths"),
    (lambda: longhaul.bench(model=["lavo"], lengths=[64], what=["inference"]), "there is: decode, forward"),
    (lambda: longhaul.bench(table="luna/t2"), "python run.py do=bench table=luna/t2"),
    (lambda: longhaul.check(ABSENT), ABSENT),
    (lambda: longhaul.curves(task="lra/listop"), "did you mean 'lra/listops'"),
    (lambda: longhaul.attention(Mixer()), "a class is expected"),
    (lambda: longhaul.attention(int), "has no forward"),
    (lambda: longhaul.attention(Mixer, causal="no"), "causal='no': True or False"),
    (lambda: longhaul.attention(Mixer, name=3), "name='3': a text is expected"),
    (lambda: longhaul.load("demo/lavo").predict("[MAX 1 2 ]", top_k=3), "unexpected keyword argument 'top_k'"),
    (lambda: longhaul.load("demo/lavo").encode([None]), "an input is a text"),
    (lambda: longhaul.plan(model=longhaul.attention(Mixer, name="a/b"), task="lra/listops"), "a name has letters"),
]


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(CALLS)))
def test_a_wrong_call_is_one_line(number):
    call, says = CALLS[number]
    assert says in message(call)


@pytest.mark.parametrize("read", [longhaul.records, longhaul.measurements])
def test_a_folder_without_records_is_named(root, tmp_path, capsys, read):
    assert read(tmp_path).empty
    assert str(tmp_path) in capsys.readouterr().err
    longhaul.records(root)
    assert not capsys.readouterr().err
