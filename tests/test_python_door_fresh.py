"""Python calls written from the documentation: what the one line of `UsageError` must say, or that they work."""

from pathlib import Path

import pandas as pd
import pytest
from torch import nn

import longhaul

ABSENT = str(Path(__file__).with_name("absent"))

CELL = {"model": "lavo", "task": "lra/listops", "budget": "smoke"}


class Plain(nn.Module):
    def forward(self, x):
        return x


CALLS = [
    (lambda: longhaul.plan(**CELL | {"model": "lavoo"}), "did you mean 'lavo'"),
    (lambda: longhaul.plan(**CELL | {"task": "listops"}), "did you mean 'lra/listops'"),
    (lambda: longhaul.plan(**CELL | {"budget": "small"}), "there is no budget 'small'"),
    (lambda: longhaul.plan(**CELL, seed=-1), "seed=-1 is less than 0"),
    (lambda: longhaul.plan(**CELL, seed="one"), "seed"),
    (lambda: longhaul.plan(**CELL, seed=[]), "seed=[]: no value"),
    (lambda: longhaul.plan(**CELL, seeds=[1, 2]), "did you mean 'seed'"),
    (lambda: longhaul.plan(**CELL, lr=0.1), "did you mean 'train.optimizer.lr'"),
    (lambda: longhaul.plan(**CELL, epochs=3), "a run has train.max_steps=... updates"),
    (lambda: longhaul.plan(**CELL, train={"max_step": 3}), "did you mean 'train.max_steps'"),
    (lambda: longhaul.plan(**CELL, train={"max_steps": 0}), "train.max_steps=0 is less than 1"),
    (lambda: longhaul.plan(**CELL, train={"optimizer": {"lr": -1}}), "train.optimizer.lr=-1 is not more than 0"),
    (lambda: longhaul.plan(**CELL, backbone={"dim": 0}), "dim=0 is less than 1"),
    (lambda: longhaul.plan(**CELL, train=3), "train"),
    (lambda: longhaul.plan(**CELL, optimizer=object()), "object is no value that can be typed"),
    (lambda: longhaul.plan(**CELL, device="cuda"), "there is no key 'device'"),
    (lambda: longhaul.plan(**CELL, do="report"), "longhaul has functions for it"),
    (lambda: longhaul.plan(**CELL | {"model": Plain}), "longhaul.attention(MyModule)"),
    (lambda: longhaul.plan(**CELL | {"model": Plain()}), "longhaul.attention(MyModule)"),
    (lambda: longhaul.plan(**CELL | {"model": None}), "model=None"),
    (lambda: longhaul.plan(**CELL | {"model": "linformer", "task": "probe/recall"}), "no causal_self form"),
    (lambda: longhaul.plan(**CELL | {"model": ["lavo", "nothing"]}), "there is no model 'nothing'"),
    (lambda: longhaul.plan(**{"model.window": 0, **CELL}), "LAVO requires window >= 1"),
    (lambda: longhaul.plan("model=lavo task=lra/listops"), "is one word"),
    (lambda: longhaul.plan("--multirun", "--verbose"), "flags are typed after python run.py"),
    (lambda: longhaul.plan(""), "a setting is empty"),
    (lambda: longhaul.plan(CELL), "a dict is neither"),
    (lambda: longhaul.plan("table=lavo/t99"), "there is no table 'lavo/t99'"),
    (lambda: longhaul.plan(table="llp/t6"), "has no cells"),
    (lambda: longhaul.plan(**CELL, **{"hydra/launcher": "slurm"}), "functions run here"),
    (lambda: longhaul.run(), "type task= or table="),
    (lambda: longhaul.run(**CELL, n_jobs=0), "n_jobs=0 is less than 1"),
    (lambda: longhaul.run(**CELL, resources={"devices": 0}), "resources.devices=0 is less than 1"),
    (lambda: longhaul.run(**CELL, paths={"records": ""}), "a folder of this machine is expected"),
    (lambda: longhaul.records(model="lavoo"), "did you mean 'lavo'"),
    (lambda: longhaul.records(task="listops"), "no record has task='listops'"),
    (lambda: longhaul.records(budget="full"), "no record has budget='full'"),
    (lambda: longhaul.records(seed="1"), "the column holds int"),
    (lambda: longhaul.records(accuracy=1), "records have no column 'accuracy'"),
    (lambda: longhaul.records(ABSENT), "no folder of records"),
    (lambda: longhaul.records(5), "a file or folder is a path, not a int"),
    (lambda: longhaul.records(model=[]), "model=[]: no value"),
    (lambda: longhaul.load("lavo"), "lavo is no cell"),
    (lambda: longhaul.load("000000"), "there is no record of 000000"),
    (lambda: longhaul.load(model="lavo"), "missing a required argument: 'cell'"),
    (lambda: longhaul.load(5), "not int"),
    (lambda: longhaul.load("demo/luna"), "there are no weights demo/luna"),
    (lambda: longhaul.load(Path(ABSENT)), "no cell"),
    (lambda: longhaul.load("demo/lavo", seed=3), "does not read seed="),
    (lambda: longhaul.load(pd.DataFrame()), "not 0 rows"),
    (lambda: longhaul.load("demo/lavo").predict([]), "an input, or a list of one or more"),
    (lambda: longhaul.load("demo/lavo").predict("hello"), "hello"),
    (lambda: longhaul.load("demo/lavo").predict(5), "an input, or a list"),
    (lambda: longhaul.load("demo/lavo").generate("[MAX"), "continue"),
    (lambda: longhaul.load("demo/shakespeare/lavo").predict("To be"), "generate"),
    (lambda: longhaul.load("demo/shakespeare/lavo").generate("To be", 0), "max_new_tokens=0"),
    (lambda: longhaul.load("demo/shakespeare/lavo").generate("To be", temperature=0), "temperature=0"),
    (lambda: longhaul.load("demo/shakespeare/lavo").generate("", 5), "a text is expected"),
    (lambda: longhaul.compare("demo/lavo"), "missing a required argument: 'b'"),
    (lambda: longhaul.compare("lavo", "vanilla"), "lavo is no cell"),
    (lambda: longhaul.compare(1, 2), "not int"),
    (lambda: longhaul.compare("demo/lavo", "demo/vanilla", root=ABSENT), ABSENT),
    (lambda: longhaul.export("demo/luna"), "there are no weights demo/luna"),
    (lambda: longhaul.export("ffffff"), "there is no record"),
    (lambda: longhaul.report("demo2"), "there is no table 'demo2'"),
    (lambda: longhaul.report("demo", records=5), "not a int"),
    (lambda: longhaul.report("demo", records=pd.DataFrame({"model": []})), "records lacks the columns"),
    (lambda: longhaul.report(), "missing a required argument: 'table'"),
    (lambda: longhaul.figure("luna/f9"), "did you mean 'luna/f"),
    (lambda: longhaul.status(state="finished"), "state"),
    (lambda: longhaul.status(since="yesterday"), "since=12h"),
    (lambda: longhaul.bench(model=["lavo"], lengths=[0]), "bench.lengths"),
    (lambda: longhaul.bench(model=["lavoo"], lengths=[64]), "did you mean 'lavo'"),
    (lambda: longhaul.bench(model=["lavo"], lengths=[64], what=["inference"]), "there is: decode, forward"),
    (lambda: longhaul.verify(model="lavoo"), "did you mean 'lavo'"),
    (lambda: longhaul.check(ABSENT), ABSENT),
    (lambda: longhaul.predictions(task="lra/listop"), "did you mean 'lra/listops'"),
    (lambda: longhaul.curves(task="lra/listop"), "did you mean 'lra/listops'"),
    (lambda: longhaul.attention(Plain()), "a class is expected"),
    (lambda: longhaul.attention("mypkg.Mixer"), "a class is expected"),
    (lambda: longhaul.attention(int), "has no forward"),
    (lambda: longhaul.attention(Plain, causal="no"), "causal='no': True or False"),
    (lambda: longhaul.attention(Plain, name=3), "name='3': a text is expected"),
    (lambda: longhaul.plan(**CELL, resources={"gpus": 1}), "there is no key 'resources.gpus': resources=gpu1"),
    (
        lambda: longhaul.load("demo/lavo").predict(),
        ".predict: missing a required argument: 'inputs'; it takes (inputs)",
    ),
    (lambda: longhaul.load("demo/lavo").predict("[MAX 1 2 ]", top_k=3), "unexpected keyword argument 'top_k'"),
    (lambda: longhaul.load("demo/lavo").encode([None]), "an input is a text"),
    (lambda: longhaul.load("demo/lavo").encode({"text": "[MAX 1 2 ]"}), "an input, or a list of one or more"),
    (lambda: longhaul.load("demo/shakespeare/lavo").generate("To", top_p=1), "unexpected keyword argument 'top_p'"),
    (lambda: longhaul.plan(model=longhaul.attention(Plain, name="a/b"), task="lra/listops"), "a name has letters"),
]


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(CALLS)))
def test_a_wrong_call_is_one_line(number):
    call, message = CALLS[number]
    with pytest.raises(longhaul.UsageError) as error:
        call()
    assert message in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("read", [longhaul.records, longhaul.measurements])
def test_a_folder_without_records_is_named(tmp_path, capsys, read):
    assert read(tmp_path).empty
    assert str(tmp_path) in capsys.readouterr().err
    read()
    assert not capsys.readouterr().err
