"""Weights that come with the project: each loads, and scores what its record says."""

import math
from dataclasses import replace

import pytest
import torch

import longhaul
from longhaul import weights

PASSAGE = """BAPTISTA:
Not in my house, Lucentio; for, you know,
Pitchers have ears, and I have many servants:
Besides, old Gremio is hearkening still;
And happily we might be interrupted.
"""  # of the test split of lm/shakespeare
BITS_PER_BYTE = {"demo/shakespeare/vanilla": 3.097, "demo/shakespeare/lavo": 2.921}


def test_their_size_is_small():
    files = [path for path in weights.FOLDER.rglob("*") if path.is_file()]
    assert len(weights.names()) == 6 and sum(path.stat().st_size for path in files) < 5_000_000


@pytest.mark.parametrize("name", [name for name in weights.names() if "shakespeare" not in name])
def test_they_score_what_their_record_says(name, tmp_path):
    trained = longhaul.load(name)
    task = trained.task
    if "recall" not in name:  # the test examples are the same however many train
        task = replace(task, train=64, data_root=tmp_path)
        task.prepare(lambda *_: None)
    task.load()
    split, metrics = task.split("test"), task.metrics()
    with torch.no_grad():
        for start in range(0, len(split), 500):
            task.score(trained.model, split.batch(range(start, min(start + 500, len(split)))), metrics)
    recorded = trained.record["metrics"]["best"]["test"]["acc"]
    assert float(metrics.compute()["acc"]) == pytest.approx(recorded, abs=0.1)  # two of 2,000 examples


@pytest.mark.parametrize("name", BITS_PER_BYTE)
def test_the_language_models_predict_a_passage(name):
    trained = longhaul.load(name)
    tokens = trained.encode(PASSAGE)
    with torch.no_grad():
        bits = float(trained.model(tokens[:, :-1], tokens[:, 1:]).mean()) / math.log(2)
    assert bits == pytest.approx(BITS_PER_BYTE[name], abs=0.01)
    assert trained.generate("ROMEO:", 20).startswith("ROMEO:")


def test_they_answer_in_the_words_of_their_task():
    (said,) = longhaul.load("demo/lavo").predict("[MAX 2 [MIN 4 7 ] 9 ]")
    assert said["class"] == "9" and said["probability"] > 0.5
    recall = longhaul.load("demo/recall/vanilla")
    facts = "12 60 7 33 25 51 3 42 30 39 18 45 21 62 9 57 25"
    said = recall.predict([facts, list(map(int, facts.split()))])
    assert [row["token"] for row in said] == [51, 51]


@pytest.mark.parametrize(
    ("name", "inputs", "message"),
    [
        ("demo/lavo", "[MAX 2 foo ]", "unknown token 'foo'; type an expression: "),
        ("demo/lavo", "[MAX " + "1 " * 30 + "]", "an expression of 32 tokens, but the model reads 24 at most"),
        ("demo/lavo", [], "an input, or a list of one or more, is expected"),
        ("demo/lavo", 5, "an input, or a list of one or more, is expected"),
        ("demo/recall/lavo", "3 400", "tokens are numbered 0 to 63"),
        ("demo/recall/lavo", "a b", "numbers of tokens are expected"),
        ("demo/recall/lavo", ["1 2", "3"], "give one at a time"),
        ("demo/recall/lavo", [5], "numbers of tokens are expected"),
        ("demo/shakespeare/lavo", "To be", "describes no outputs"),
    ],
)
def test_wrong_inputs_are_one_line(name, inputs, message):
    with pytest.raises(longhaul.UsageError) as error:
        longhaul.load(name).predict(inputs)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_an_unknown_name_is_suggested():
    with pytest.raises(longhaul.UsageError, match="no weights demo/lvao to try: did you mean 'demo/lavo'"):
        longhaul.load("demo/lvao")


@pytest.mark.parametrize(
    "settings",
    [
        {"max_new_tokens": -1}, {"max_new_tokens": 3.5}, {"top_k": 0}, {"seed": "x"}, {"seed": 2**70},
        {"temperature": "hot"}, {"temperature": 0.0}, {"temperature": float("nan")},
    ],
)  # fmt: skip
def test_wrong_ways_to_continue_a_text_are_one_line(settings):
    ((name, value),) = settings.items()
    with pytest.raises(longhaul.UsageError, match=f"^{name}={value}|^{name}='{value}'".replace("+", ".")):
        longhaul.load("demo/shakespeare/lavo").generate("a", **settings)
