"""One cell trains the same weights on several devices as on one, sharded or not."""

import csv
import json
import signal
import time
from pathlib import Path

import pytest
import torch

from harness.config.compose import compose
from harness.records import baselines, predictions
from harness.training.fsdp import sharing
from harness.training.run_cell import run_cell
from tests.helpers import forked
from tests.helpers.cells import request_of
from tests.helpers.checkpoints import checkpoint_times

CELL = [
    "model=vanilla", "task=lra/listops", "budget=smoke", "resources.accelerator=cpu", "backbone.dropout=0.0",
    "backbone.attention_dropout=0.0", "train.max_steps=40", "train.eval_every=20",
]  # fmt: skip
TWO = "resources.devices=2"
pytestmark = pytest.mark.xdist_group("forked")  # one process that forks, and the run on one device is made once


def arguments(folder, *overrides):
    places = [f"paths.{name}={folder / name}" for name in ("outputs", "records")]
    typed = {word.split("=")[0] for word in overrides}
    cell = [word for word in CELL if word.split("=")[0] not in typed]
    return [*cell, *places, f"paths.data={folder.parent / 'data'}", *overrides]


def start(folder, *overrides):
    return forked.start(*arguments(folder, *overrides))


def run(folder, *overrides):
    """On one device in this process, which has imported torch; Lightning starts the second process for trainer=auto."""
    if TWO not in overrides:
        result = run_cell(request_of(compose(arguments(folder, *overrides))))
        assert result.state == "done", result.detail
        return the_record(folder)
    words, by_lightning = arguments(folder, *overrides), "trainer=auto" in overrides
    for process in (forked.start(*words),) if by_lightning else forked.start_pair(*words):
        output, _ = process.communicate(timeout=600)
        assert process.returncode == 0, output
    return the_record(folder)


def the_record(folder):
    (path,) = (folder / "records").rglob("*.json")
    return json.loads(path.read_text())


def scores_of(folder):
    (path,) = (folder / "records").rglob("*.json")
    return predictions.read(path, json.loads(path.read_text()))


def curve(folder):
    with next((folder / "outputs").rglob("metrics.csv")).open() as table:
        return [
            [float(row[key]) for key in ("step", "train/loss", "val/loss", "val/n")] for row in csv.DictReader(table)
        ]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    folder = tmp_path_factory.mktemp("devices") / "alone"
    return folder, run(folder)


@pytest.mark.slow
@pytest.mark.parametrize("trainer", ["auto", "fsdp"])
def test_two_devices_train_the_same_as_one(alone, trainer):
    folder, record = alone[0].parent / trainer, alone[1]
    # 96 examples in batches of 80: the second device has less to score than the first
    shared = run(folder, TWO, f"trainer={trainer}", "train.eval_batch_size=40")
    for key in ("cell", "config", "tokens", "examples", "steps", "parameters"):
        same = (record[key], shared[key])
        if key == "config":
            same = tuple({name: part for name, part in config.items() if name != "trainer"} for config in same)
        assert same[0] == same[1], key
    assert shared["update"] == {"examples": 16, "micro_batch_size": 8, "devices": 2}
    for ours, theirs in zip(curve(folder), curve(alone[0]), strict=True):
        assert ours == pytest.approx(theirs, rel=1e-5)
    assert shared["metrics"]["best"]["test"]["loss"] == pytest.approx(
        record["metrics"]["best"]["test"]["loss"], rel=1e-5
    )
    losses = [scores_of(output)["test"]["loss"] for output in (folder, alone[0])]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3), "scores of two devices are in another order"
    (file,) = (folder / "baselines").rglob("*.json")  # measured by one process, after the other one has ended
    assert baselines.read_checked(file)["fits"]


def test_layers_that_share_a_parameter_are_one_unit():
    first, second, third, fourth = (torch.nn.Linear(2, 2) for _ in range(4))
    second.weight, fourth.bias = first.weight, second.bias
    assert sharing([first, second, third, fourth]) == [[third], [first, second, fourth]]
    third.weight = fourth.weight
    assert sharing([first, second, third, fourth]) == [[first, second, third, fourth]]


@pytest.mark.slow
def test_sharded_layers_may_share_a_parameter(tmp_path):
    """The layers of Transformer-XL have the same biases."""
    stack = ["model=transformer_xl", "task=lm/wikitext103", "backbone.layers=2", "train.max_steps=4"]
    folders = [tmp_path / "sharded", tmp_path / "alone"]
    records = [run(folders[0], TWO, "trainer=fsdp", *stack), run(folders[1], *stack)]
    losses = [record["metrics"]["best"]["test"]["loss"] for record in records]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


@pytest.mark.slow
def test_two_devices_train_updates_of_so_many_tokens(alone):
    folder, tokens = alone[0].parent / "tokens", ["train.batch_tokens=640", "train.max_steps=20"]
    records = [run(folder / "one", *tokens), run(folder / "two", *tokens, TWO)]
    assert all(records[0][key] == records[1][key] for key in ("tokens", "examples", "cell"))
    for ours, theirs in zip(curve(folder / "two"), curve(folder / "one"), strict=True):
        assert ours == pytest.approx(theirs, rel=1e-4)


@pytest.mark.slow
def test_two_devices_translate_every_sentence_once(tmp_path):
    """16 sentences in batches of 5 or 10: the second device has fewer. BLEU is that of all of them."""
    translation = ["task=mt/wmt14_ende", "protocol=luna", "backbone.activation_dropout=0.0", "task.decoded=16"]
    translation += ["train.max_steps=4", "train.eval_every=4", "train.eval_batch_size=5"]
    folders = [tmp_path / name for name in ("one", "two")]
    alone_record, shared_record = (
        run(folder, *translation, *more) for folder, more in zip(folders, ((), (TWO,)), strict=True)
    )
    scores = [scores_of(folder) for folder in folders]
    for name in ("decoded", "decoded_dev"):
        evaluations = [record["evaluations"][name] for record in (alone_record, shared_record)]
        assert [entry["n"] for entry in evaluations] == [16, 16]
        assert evaluations[0]["metrics"] == pytest.approx(evaluations[1]["metrics"], rel=1e-6)
        assert scores[0][name]["chrf"] == pytest.approx(scores[1][name]["chrf"], rel=1e-6)


def ranks_of(process):
    """The ids of the processes that Lightning started for this one."""
    return [int(child) for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


@pytest.mark.slow
@pytest.mark.parametrize("trains", [False, True])
def test_no_rank_outlives_a_killed_one(tmp_path, trains):
    process = start(tmp_path / "run", TWO, "train.max_steps=100000", "checkpoint.every_steps=10")
    end = time.monotonic() + 300
    while not (ranks := ranks_of(process)) or (trains and not checkpoint_times(tmp_path / "run")):
        assert process.poll() is None and time.monotonic() < end, process.output()
        time.sleep(0.05)
    time.sleep(0.2)  # the rank runs its own program
    process.kill()
    while any(Path(f"/proc/{rank}").exists() for rank in ranks):
        assert time.monotonic() < end, "a rank is left"
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize("trainer", ["auto", "fsdp"])
def test_a_run_on_two_devices_resumes_on_one(tmp_path, trainer):
    long = ["train.max_steps=600", "train.eval_every=300", "checkpoint.every_steps=10"]
    process = start(tmp_path / "run", TWO, f"trainer={trainer}", *long)
    end = time.monotonic() + 600
    while not checkpoint_times(tmp_path / "run") and time.monotonic() < end:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 128 + signal.SIGTERM and "stopped by SIGTERM" in output, output
    record = run(tmp_path / "run", *long)
    assert record["resumes"] == 1 and record["update"]["devices"] == 1 and record["steps"] == 600
