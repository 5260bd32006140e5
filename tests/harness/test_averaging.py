"""`last_mean` tests the mean of the last evaluated weights; `clip_each` bounds the gradient of each parameter."""

import pytest
import torch
from torch import nn

from harness.config.cell import cell_of
from harness.config.compose import compose
from harness.records import record
from harness.records.run_directory import RunDirectory
from harness.training.callback import TrainingCallback
from harness.training.checkpoints import checkpoint
from harness.training.checkpoints.checkpoint import state_sha256, write_sealed
from harness.training.optim.schedules import milestones
from harness.training.run_cell import run_cell
from tests.helpers.cells import request_of

CELL = ["model=vanilla", "task=lra/listops", "budget=smoke", "trainer=cpu", "resources.cpus=1", "train.eval_every=4"]
MEAN = ["train.select.rule=last_mean", "train.mean_of=2"]


@pytest.fixture
def cell(places, tmp_path_factory):
    """Run the cell; returns its run directory and its record."""

    def run(*typed):
        data = f"paths.data={tmp_path_factory.getbasetemp() / 'listops-smoke'}"
        cfg = compose([*CELL, *places, data, *typed])
        result = run_cell(request_of(cfg))
        assert result.state == "done", result.detail
        return RunDirectory(cell_of(cfg).folder(cfg)), record.read(result.detail.rpartition(" · ")[2])

    return run


class Killed(BaseException):
    pass


def test_the_mean_of_the_last_evaluations_is_tested_and_a_killed_run_averages_the_same(cell, monkeypatch):
    folder, entries = cell(*MEAN)
    files = checkpoint.evaluated_files(folder)
    steps = entries["steps"]
    assert [file.name for file in files] == [f"step-{steps - 4}.pt", f"step-{steps}.pt"], "older ones are removed"
    first, last = (torch.load(file, weights_only=True) for file in files)
    chosen = torch.load(folder.best, weights_only=True)
    assert chosen.keys() == last.keys()
    for name, tensor in chosen.items():
        assert tensor.dtype == last[name].dtype
        assert torch.equal(tensor, ((first[name].double() + last[name].double()) / 2).to(tensor.dtype)), name
    tested = {name.removeprefix("model."): tensor for name, tensor in chosen.items()}
    assert entries["tested_weights_sha256"] == state_sha256(tested) != entries["weights_sha256"]
    best, end = entries["metrics"]["best"], entries["metrics"]["last"]
    assert best["step"] == end["step"] == steps and best["val"] != end["val"] and "test" not in end
    assert entries["selection"]["rule"] == "last_mean"

    real, seen = TrainingCallback._evaluate, []

    def killed(self, trainer, module, step):
        real(self, trainer, module, step)
        seen.append(step)
        if len(seen) == 3:
            raise Killed

    monkeypatch.setattr(TrainingCallback, "_evaluate", killed)
    with pytest.raises(Killed):
        cell(*MEAN, "rerun=all")
    monkeypatch.undo()
    _, again = cell(*MEAN)
    assert again["resumes"] == 1 and again["metrics"] == entries["metrics"]
    assert again["tested_weights_sha256"] == entries["tested_weights_sha256"]


def test_integer_buffers_come_from_the_last_checkpoint(tmp_path):
    files = [tmp_path / name for name in "ab"]
    for number, file in enumerate(files):
        weights = {"half": torch.full((2,), 1.0 + number, dtype=torch.bfloat16), "count": torch.tensor(10 + number)}
        write_sealed(file, weights | {"wide": torch.full((1,), float(number), dtype=torch.float64)}, "0" * 16)
    mean = checkpoint.mean_of(files, "0" * 16)
    assert mean["half"].tolist() == [1.5, 1.5] and mean["half"].dtype == torch.bfloat16
    assert mean["count"].item() == 11 and mean["wide"].tolist() == [0.5]


@pytest.mark.parametrize("typed", [["train.select.rule=last_mean"], [*MEAN[:1], "train.mean_of=1"]])
def test_rule_and_number_come_together(places, typed):
    result = run_cell(request_of(compose([*CELL, *places, *typed])))
    assert result.state == "refused" and "come together" in result.detail


def test_each_parameter_is_clipped_alone(cell, monkeypatch):
    norms = []
    real = torch.optim.AdamW.step

    def step(self, *args, **kwargs):
        loss = real(self, *args, **kwargs)  # its closure computes the gradients and clips them
        norms.append([p.grad.norm().item() for group in self.param_groups for p in group["params"]])
        return loss

    monkeypatch.setattr(torch.optim.AdamW, "step", step)
    alone = ["train.clip_each=0.01", "train.clip_value=null", "train.clip_norm=null"]
    cell(*alone, "train.optimizer._target_=torch.optim.AdamW")
    largest = torch.tensor(norms).amax(0)
    assert norms and largest.max() <= 0.01 * (1 + 1e-4)
    assert (largest > 0.0099).sum() > 1, "more than one reaches the bound, so it is not that of all together"


def test_milestones():
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
    schedule = milestones(optimizer, warmup=4, at=[6, 8], start=0.02)
    rates = []
    for _ in range(10):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    assert rates == pytest.approx([0.02, 0.04, 0.06, 0.08, 0.1, 0.1, 0.01, 0.01, 0.001, 0.001])
