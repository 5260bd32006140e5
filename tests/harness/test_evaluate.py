"""Evaluations of a cell: the test, the task's final evaluations, and the scores of each example that they leave."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch
from torchmetrics import MeanMetric, MetricCollection

from harness.config.compose import compose
from harness.records import record
from harness.training.run_cell import CellRequest, run_cell
from tasks.base import FinalEvaluation
from tasks.lra.listops import ListOps

CELL = ["model=vanilla", "task=lra/listops", "budget=smoke", "trainer=cpu", "resources.cpus=1"]


@pytest.fixture
def run(places, tmp_path_factory):
    """Run the cell; returns its record and its run directory."""

    def run(*overrides):
        data = f"paths.data={tmp_path_factory.getbasetemp() / 'listops-smoke'}"
        result = run_cell(CellRequest(cfg := compose([*CELL, *places, data, *overrides])))
        assert result.state == "done", result.detail
        path = result.detail.rpartition(" · ")[2]
        (run_dir,) = (path.parent for path in Path(cfg.paths.outputs).rglob("checkpoints"))
        return record.read(path), run_dir

    return run


def scores_of(run_dir, name):
    return dict(np.load(run_dir / "predictions" / f"{name}.npz"))


@pytest.mark.parametrize("rule", ["best_val", "last", "best_test"])
def test_the_test_leaves_the_scores_of_each_example(run, rule):
    entries, run_dir = run(f"train.select.rule={rule}", "train.eval_batch_size=36")
    test, scores = entries["evaluations"]["test"], scores_of(run_dir, "test")
    assert test["predictions"]["scores"] == sorted(scores)
    data = (run_dir / "predictions" / "test.npz").read_bytes()
    assert hashlib.sha256(data).hexdigest() == test["predictions"]["sha256"]
    assert all(values.shape == (96,) for values in scores.values()) and test["n"] == 96
    for name, values in scores.items():
        assert values.astype(np.float64).mean() == pytest.approx(entries["metrics"]["best"]["test"][name], rel=1e-6)
    assert test["metrics"] | {"n": 96} == entries["metrics"]["best"]["test"]


class Reversed:
    """A split from its last example to its first."""

    def __init__(self, split):
        self.split = split

    def __len__(self):
        return len(self.split)

    def batch(self, indices):
        return self.split.batch([len(self) - 1 - i for i in indices])


def test_scores_are_in_the_order_of_the_split(run, monkeypatch):
    """Also in batches of another size, with metrics and scores of the evaluation's own."""

    def length(model, batch, metrics):
        lengths = (batch["tokens"] != 0).sum(1)
        metrics.update(lengths.float())
        return {"tokens": lengths}

    def final_evaluations(self):
        split = self.split("test")
        metrics = lambda: MetricCollection({"tokens": MeanMetric()})  # noqa: E731
        return [
            FinalEvaluation("reversed", Reversed(split)),
            FinalEvaluation("tokens", split, batch_size=7, metrics=metrics, score=length),
        ]

    monkeypatch.setattr(ListOps, "final_evaluations", final_evaluations)
    entries, run_dir = run()
    test, other = scores_of(run_dir, "test"), scores_of(run_dir, "reversed")
    assert test["acc"].tolist() == other["acc"].tolist()[::-1] and len(set(test["loss"].tolist())) > 10
    evaluations = entries["evaluations"]
    assert list(evaluations) == sorted(["test", "reversed", "tokens"])
    tokens = scores_of(run_dir, "tokens")["tokens"]
    assert 20 < tokens.min() < tokens.max() <= 64
    assert evaluations["tokens"]["metrics"] == {"tokens": pytest.approx(tokens.mean())}
    assert all(each["seconds"] > 0 and each["peak_memory_mb"] > 0 and each["n"] == 96 for each in evaluations.values())


class Long:
    """Examples of more tokens than the model has positions for."""

    def __len__(self):
        return 3

    def batch(self, indices):
        return {"tokens": torch.ones(len(indices), 4096, dtype=torch.long), "label": torch.zeros(len(indices)).long()}


def raising(error):
    def score(model, batch, metrics):
        raise error

    return score


def test_an_evaluation_that_cannot_be_made_is_a_value_of_a_done_record(run, monkeypatch):
    def final_evaluations(self):
        split = self.split("test")
        return [
            FinalEvaluation("length_4096", Long()),
            FinalEvaluation("memory", split, score=raising(torch.OutOfMemoryError("CUDA out\nof memory"))),
            FinalEvaluation("broken", split, score=raising(KeyError("token"))),
            FinalEvaluation("short", split, score=lambda model, batch, metrics: {"acc": torch.zeros(1)}),
            FinalEvaluation("after", split),
        ]

    monkeypatch.setattr(ListOps, "final_evaluations", final_evaluations)
    entries, run_dir = run("backbone.positions=learned")
    evaluations = entries["evaluations"]
    status = {name: evaluation["status"] for name, evaluation in evaluations.items()}
    assert status == {
        "test": "done", "length_4096": "unsupported", "memory": "oom", "broken": "failed", "short": "failed",
        "after": "done",
    }  # fmt: skip
    assert "max_length is 64" in evaluations["length_4096"]["message"]
    assert evaluations["memory"]["message"] == "CUDA out of memory"
    assert "examples were scored of 96" in evaluations["short"]["message"]
    assert all(evaluations["memory"][key] is None for key in ("metrics", "n", "seconds", "predictions"))
    assert evaluations["after"]["metrics"] == evaluations["test"]["metrics"], "a failed pass left the model changed"
    assert sorted(path.name for path in (run_dir / "predictions").iterdir()) == ["after.npz", "test.npz"]


@pytest.mark.parametrize("names", [("a", "a"), ("test",)])
def test_names_of_final_evaluations_are_checked_before_training(places, monkeypatch, names, tmp_path_factory):
    def final_evaluations(self):
        return [FinalEvaluation(name, self.split("test")) for name in names]

    monkeypatch.setattr(ListOps, "final_evaluations", final_evaluations)
    data = f"paths.data={tmp_path_factory.getbasetemp() / 'listops-smoke'}"
    result = run_cell(CellRequest(compose([*CELL, *places, data])))
    assert result.state == "refused" and "one name each" in result.detail
