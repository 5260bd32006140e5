"""Evaluations of a cell: the test, the task's final evaluations, and the scores per example that they save."""

from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from torchmetrics import MeanMetric, MetricCollection

from harness.config.compose import compose
from harness.records import predictions, record
from harness.training.run_cell import run_cell
from tasks.base import FinalEvaluation
from tasks.lra.listops import ListOps
from tests.helpers.baselines import measured_beside
from tests.helpers.cells import request_of

pytestmark = pytest.mark.usefixtures("measured_anew")
CELL = ["model=vanilla", "task=lra/listops", "budget=smoke", "trainer=cpu", "resources.cpus=1"]


@pytest.fixture
def run(places, tmp_path_factory):
    """Run the cell; returns its record and its predictions."""

    def run(*overrides):
        data = f"paths.data={tmp_path_factory.getbasetemp() / 'listops-smoke'}"
        result = run_cell(request_of(compose([*CELL, *places, data, *overrides])))
        assert result.state == "done", result.detail
        path = Path(result.detail.rpartition(" · ")[2])
        assert path.with_suffix(".npz").exists()
        entries = record.read(path)
        return entries, predictions.read(path, entries)

    return run


def test_the_test_saves_the_scores_of_every_example(run):
    entries, scores_of = run("train.select.rule=best_test", "train.eval_batch_size=36")
    test, scores = entries["evaluations"]["test"], scores_of["test"]
    assert test["predictions"]["scores"] == sorted(scores) == ["acc", "loss"]
    assert {name: values.dtype.name for name, values in scores.items()} == {"acc": "uint8", "loss": "float32"}
    assert all(values.shape == (96,) for values in scores.values()) and test["n"] == 96
    for name, unit in {"acc": 100, "loss": 1}.items():
        mean = unit * scores[name].astype(np.float64).mean()
        assert mean == pytest.approx(entries["metrics"]["best"]["test"][name], rel=1e-6)
    assert test["metrics"] | {"n": 96} == entries["metrics"]["best"]["test"]


class Reversed:
    """A split in reverse order."""

    def __init__(self, split):
        self.split = split

    def __len__(self):
        return len(self.split)

    def batch(self, indices):
        return self.split.batch([len(self) - 1 - i for i in indices])


def test_scores_are_in_the_order_of_the_split(run, monkeypatch, tmp_path):
    """Also with another batch size, and in an evaluation with metrics, scores and baselines of its own."""

    def length(model, batch, metrics):
        lengths = (batch["tokens"] != 0).sum(1) if isinstance(model, torch.nn.Module) else model(batch)
        metrics.update(lengths.float())
        return {"tokens": lengths}

    def final_evaluations(self):
        split = self.split("test")
        metrics = lambda: MetricCollection({"tokens": MeanMetric()})  # noqa: E731
        return [
            FinalEvaluation("reversed", Reversed(split)),
            FinalEvaluation("tokens", split, batch_size=7, metrics=metrics, score=length, baselines={"forty": forty}),
        ]

    def forty():
        return lambda batch: torch.full((len(batch["tokens"]),), 40)

    monkeypatch.setattr(ListOps, "final_evaluations", final_evaluations)
    entries, scores = run()
    test, other = scores["test"], scores["reversed"]
    assert test["acc"].tolist() == other["acc"].tolist()[::-1] and len(set(test["loss"].tolist())) > 10
    evaluations = entries["evaluations"]
    assert [name for name in evaluations if "/" not in name] == sorted(["test", "reversed", "tokens"])
    tokens = scores["tokens"]["tokens"]
    assert 20 < tokens.min() < tokens.max() <= 64
    assert evaluations["tokens"]["metrics"] == {"tokens": pytest.approx(tokens.mean())}
    file, baseline_scores = measured_beside(tmp_path / "records", entries)
    assert file["evaluations"]["tokens/baseline/forty"]["metrics"] == {"tokens": 40}
    assert baseline_scores["tokens/baseline/forty"]["tokens"].tolist() == [40] * 96
    both = [baseline_scores[f"{prefix}baseline/root_operator"]["acc"].tolist() for prefix in ("", "reversed/")]
    assert both[0] == both[1][::-1], "a pass that scores as the test does takes the same predictors"


def test_a_slow_pass_that_is_killed_goes_on_behind_its_last_batch(run, monkeypatch, tmp_path):
    """What it wrote is kept in the run folder until the record is there; a baseline writes for itself."""
    written, ends = [], [3]

    def write(model, batch):
        if isinstance(model, torch.nn.Module):
            if len(written) == ends[0]:
                raise KeyboardInterrupt
            written.append(len(batch["tokens"]))
        return [f"{int((row != 0).sum())}" for row in batch["tokens"]]

    def lengths(texts, batch, metrics):
        numbers = torch.tensor([float(text) for text in texts])
        metrics.update(numbers)
        return {"length": numbers}

    def forty(batch):
        raise AssertionError("a baseline writes by `write`")

    metrics = lambda: MetricCollection({"length": MeanMetric()})  # noqa: E731
    how = {"batch_size": 16, "metrics": metrics, "score": lengths, "write": write, "baselines": {"same": lambda: forty}}
    monkeypatch.setattr(ListOps, "final_evaluations", lambda self: [FinalEvaluation("long", self.split("test"), **how)])
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        run()
    (file,) = tmp_path.rglob("written-long-*.jsonl")
    lines = file.read_text().splitlines()
    assert len(lines) == 1 + 3 and written == [16] * 3
    file.write_text("\n".join([*lines[:-1], lines[-1][:20]]))  # a kill cut the last line short
    ends[0] = 99
    entries, scores = run()
    assert written == [16] * 7 and not list(tmp_path.rglob("written-*"))
    assert entries["evaluations"]["long"]["metrics"]["length"] == pytest.approx(scores["long"]["length"].mean())
    file, _ = measured_beside(tmp_path / "records", entries)
    assert file["evaluations"]["long/baseline/same"]["metrics"] == entries["evaluations"]["long"]["metrics"]


class Long:
    """Examples with more tokens than the model has positions."""

    def __len__(self):
        return 3

    def batch(self, indices):
        return {"tokens": torch.ones(len(indices), 4096, dtype=torch.long), "label": torch.zeros(len(indices)).long()}


def test_a_failed_evaluation_is_a_value_in_a_done_record(run, monkeypatch):
    """So is a chance level that cannot be scored."""

    def final_evaluations(self):
        split = self.split("test")
        return [
            FinalEvaluation("length_4096", Long()),
            FinalEvaluation("memory", split, score=Mock(side_effect=torch.OutOfMemoryError("CUDA out\nof memory"))),
            FinalEvaluation("broken", split, score=Mock(side_effect=KeyError("token"))),
            FinalEvaluation("short", split, score=lambda model, batch, metrics: {"acc": torch.zeros(1)}),
            FinalEvaluation("after", split),
        ]

    monkeypatch.setattr(ListOps, "final_evaluations", final_evaluations)
    monkeypatch.setattr(ListOps, "baselines", lambda self, seen=None: {"majority_class": lambda: None})
    entries, scores = run("backbone.positions=learned")
    assert entries["baseline"] is None and entries["evaluations"]["baseline/majority_class"]["status"] == "failed"
    evaluations = {
        name: evaluation for name, evaluation in entries["evaluations"].items() if not name.startswith("baseline/")
    }
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
    assert {name for name in scores if not name.startswith("baseline/")} == {"after", "test"}


def test_baselines_are_scored_on_the_same_examples_once_for_all_cells(run, monkeypatch, tmp_path):
    made = []

    def baselines(self, seen=None):
        def uniform():
            made.append("uniform")
            return lambda tokens: torch.zeros(len(tokens), self.classes)

        def broken():
            raise KeyError("no digits")

        return {**own_baselines(self, seen), "uniform": uniform, "broken": broken}

    own_baselines = ListOps.baselines
    monkeypatch.setattr(ListOps, "baselines", baselines)
    entries, scores = run("train.eval_batch_size=36")
    file, scores = measured_beside(tmp_path / "records", entries)
    evaluations, baseline = file["evaluations"], entries["baseline"]
    uniform = evaluations["baseline/uniform"]
    assert made == ["uniform"], "it is made once for all batches"
    assert (uniform["status"], uniform["n"]) == ("done", 96)
    assert scores["baseline/uniform"]["loss"] == pytest.approx(np.full(96, np.log(10)))
    assert "baseline/broken" not in evaluations and "broken" not in file["fits"], "it is tried again"
    majority = evaluations["baseline/majority_class"]["metrics"]["acc"]
    assert baseline == {"name": "majority class", "test": majority, "val": baseline["val"]} and 0 < baseline["val"] < 40
    right = scores["baseline/root_operator"]["acc"].mean()
    assert 100 * right == pytest.approx(evaluations["baseline/root_operator"]["metrics"]["acc"])
    assert file["seen"] == 12 * 16 and file["fits"]["uniform"]["val"]["loss"] == pytest.approx(np.log(10))
    other, _ = run("seed=2", "train.optimizer.lr=0.01")
    assert made == ["uniform"], "another seed and another rate have the same data and number of updates"
    assert measured_beside(tmp_path / "records", other)[0] == file


def test_names_of_final_evaluations_are_checked_before_training(places, monkeypatch, tmp_path_factory):
    data = f"paths.data={tmp_path_factory.getbasetemp() / 'listops-smoke'}"
    for names in (("a", "a"), ("a/b",)):
        twice = lambda self, names=names: [FinalEvaluation(name, self.split("test")) for name in names]  # noqa: E731
        monkeypatch.setattr(ListOps, "final_evaluations", twice)
        result = run_cell(request_of(compose([*CELL, *places, data])))
        assert result.state == "refused" and "differ from each other" in result.detail
