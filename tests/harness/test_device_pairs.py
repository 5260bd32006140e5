"""Smoke cells on two devices: the losses, the scores and the baselines of one device, for each kind of model."""

import json

import pytest
from torch import distributed

from harness.config.build import build
from harness.config.compose import compose
from harness.records import baselines
from harness.training.run_cell import run_cell
from tests.helpers import forked
from tests.helpers.cells import request_of

SHORT = ["budget=smoke", "resources.accelerator=cpu", "train.max_steps=6", "train.eval_every=3"]
# each device draws its own masks
DROPOUTS = ("dropout", "attention_dropout", "activation_dropout", "relu_dropout", "embedding_dropout")
# Batch normalisation: its means are those of a device's share of an update. A single point more within F1's distance
# would be a large part of an F1 near zero; differences are those of the larger of 1 and the score.
NORMALISED = {"completion/pcn": 0.1, "forecasting/etth1": 0.1}
# a model of each kind, with its tasks
CELLS = {
    "luna": ["lra/listops", "completion/pcn"],
    "lavo": ["lra/listops", "lm/wikitext103"],
    "latte": ["lra/listops", "lm/wikitext103"],
    "longnet": ["lra/listops", "lm/wikitext103"],
    "llp": ["lm/wikitext103"],
    "no_cross": ["completion/pcn", "forecasting/etth1"],
    "bigbird": ["lra/listops"],
    "performer": ["lra/listops"],
    "mamba": ["lm/wikitext103"],
    "rwkv4": ["lm/wikitext103"],
    "s4d": ["lra/listops"],
}


def run(folder, model, task, devices):
    """The record of a cell, and its file of baselines; on one device in this process, which has imported torch."""
    words = [f"model={model}", f"task={task}", *SHORT]
    backbone = compose(words).backbone
    words += [f"backbone.{name}=0.0" for name in DROPOUTS if name in backbone]
    places = [f"paths.{name}={folder / str(devices) / name}" for name in ("outputs", "records")]
    words += [*places, f"paths.data={folder / 'data'}"]
    if devices == 1:
        result = run_cell(request_of(compose(words)))
        assert result.state == "done", result.detail
    for command in forked.start_pair(*words) if devices == 2 else ():
        output, _ = command.communicate(timeout=900)
        assert command.returncode == 0, output
    (record,) = (folder / str(devices) / "records" / task).rglob(f"{model}-s1-*.json")
    (scores,) = (folder / str(devices) / "baselines" / task).rglob("*.json")
    return json.loads(record.read_text()), baselines.read_checked(scores)


def compared(folder, model, task):
    """The largest relative difference of a score of model or baseline between one device and two.

    Raises AssertionError for a record that differs in what must be equal, and for a baseline that is not there.
    """
    (alone, predictors), (shared, their_predictors) = (run(folder, model, task, devices) for devices in (1, 2))
    for key in ("cell", "tokens", "examples", "steps", "parameters", "baseline"):
        assert alone[key] == shared[key], key
    assert alone["baseline"] and predictors["fits"] and predictors["fits"].keys() == their_predictors["fits"].keys()
    entries = [
        record["evaluations"]
        | file["evaluations"]
        | {"val": {"status": "done", "metrics": record["metrics"]["last"]["val"]}}
        for record, file in ((alone, predictors), (shared, their_predictors))
    ]
    assert entries[0].keys() == entries[1].keys()
    # `unsupported`: longer sequences than a model's positions
    assert all(
        {one["status"], entries[1][name]["status"]} in ({"done"}, {"unsupported"}) for name, one in entries[0].items()
    )
    pairs = [
        (one["metrics"][name], entries[1][evaluation]["metrics"][name])
        for evaluation, one in entries[0].items()
        for name in one["metrics"] or ()
    ]
    pairs += [(one["val"], two["val"]) for one, two in zip(alone["curve"], shared["curve"], strict=True)]
    least = 1.0 if task in NORMALISED else 0.01
    return max(abs(one - two) / max(least, abs(one)) for one, two in pairs)


def test_a_group_that_refuses_tensors_of_the_cpu_leaves_predictors_alone(tmp_path):
    """As NCCL's does. A metric that computes with the group fails in it."""
    from torchmetrics import MeanMetric

    from harness.progress import Progress
    from harness.training.baselines import chance_level

    task = build(compose(["model=vanilla", "task=lra/listops", "budget=smoke", f"paths.data={tmp_path}"])).task
    task.prepare(Progress(silent=True))
    task.load()
    distributed.init_process_group("cuda:gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1)
    try:
        metric = MeanMetric()
        metric.update(1.0)
        with pytest.raises(RuntimeError, match="cpu"):
            metric.compute()
        level, _, evaluation = chance_level(task, 64)
    finally:
        distributed.destroy_process_group()
    assert level and evaluation.n == len(task.split("test"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Cells of one task share its data and its baselines."""
    return tmp_path_factory.mktemp("pairs")


@pytest.mark.slow
@pytest.mark.xdist_group("forked")
@pytest.mark.usefixtures("measured_anew")
@pytest.mark.parametrize(("model", "task"), [(model, task) for model, tasks in CELLS.items() for task in tasks])
def test_two_devices_score_as_one(folder, model, task):
    assert compared(folder, model, task) < NORMALISED.get(task, 1e-3)
