"""Wrong arguments of `import longhaul`: each is a UsageError of one line, and nothing runs."""

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import longhaul
from longhaul.words import words_of

ROOT = Path(__file__).resolve().parents[1]
FOLDER = Path("lra/listops/skyformer/reduced")
CELL = {"task": "lra/listops", "budget": "smoke"}


class Mixer:
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
    ((["model=lavo"],), {}, "a list is neither"),
    ((b"model=lavo",), {}, "a bytes is neither"),
    (("",), {}, "a setting is empty"),
    (("--cfg", "job"), {}, "--cfg: flags are typed after python run.py"),
    (("model=lavo task=lra/listops budget=smoke",), {}, "is one word: type each setting as a word of its own"),
    (("hydra/launcher=slurm",), {}, "functions run here"),
    (("hydra/sweeper=optuna",), {}, "functions run here"),
    ((), {"model": None}, "model=None: give a name, or leave model out"),
    ((), {"model": Mixer}, "model=Mixer: a name is expected, or longhaul.attention"),
    ((), {"model": []}, "model=[]: no value"),
    ((), {"seed": {1, 2}}, "seed: set is no value"),
    ((), {"seed": np.arange(2)}, "seed: ndarray is no value"),
    ((), {"seed": pd.Series([1, 2])}, "seed: Series is no value"),
    ((), {"budget": 5}, "there is no budget '5': there is: paper, reduced, smoke"),
    ((), {"train": {"lr": 0.1}}, "did you mean 'train.optimizer.lr'?"),
    ((), {"depends_on": ["task=lra/listop"]}, "did you mean 'lra/listops'?"),
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
        "the column score holds no numbers": cells.assign(score="high"),
        "twice: .drop_duplicates('id') keeps one": pd.concat([cells, cells]),
    }
    for says, frame in wrong.items():
        assert says in message(lambda frame=frame: longhaul.report("demo", records=frame))
        assert says in message(lambda frame=frame: longhaul.figure("luna/f1", records=frame))


def test_a_cell_with_what_its_function_does_not_read(cells):
    row = cells.iloc[0]
    assert "do=export does not read model=" in message(lambda: longhaul.load(row, model="vanilla"))
    assert "do=export does not read seed=" in message(lambda: longhaul.export(row, seed=3))
    assert "longhaul.load takes one value per key" in message(
        lambda: longhaul.load(row, **{"task.path": "a"}, seed=[1, 2])
    )
    assert "file name too long" in message(lambda: longhaul.load("a" * 5000))


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("train", "longhaul.run(model="),
        ("models", "do=list"),
        ("predict", 'load("demo/lavo").predict'),
        ("recrods", "did you mean 'records'?"),
    ],
)
def test_a_name_of_another_library_has_an_answer(name, says):
    with pytest.raises(AttributeError, match=f"no attribute '{name}'") as error:
        getattr(longhaul, name)
    assert says in str(error.value) and not hasattr(longhaul, name)


def test_an_absurd_length_and_an_empty_folder(tmp_path):
    saved = longhaul.load("demo/lavo")
    assert "at most 1,000,000 at once" in message(lambda: saved.generate("To be", 10**9))
    assert "not an empty text" in message(lambda: longhaul.export("demo/lavo", ""))
