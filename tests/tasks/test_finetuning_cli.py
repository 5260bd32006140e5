"""From a command to two cells in order: the second starts from the first one's encoder, on the same tokens."""

import pytest
import torch

from harness.commands.train import requests_of
from harness.config.compose import compose, options
from harness.config.sweep import Command, expand_all
from harness.records import record
from harness.training.callback import TrainingCallback
from harness.training.run_cell import run_cell

SMOKE = ("model=luna", "task=glue/sst2", "protocol=luna", "budget=smoke", "trainer=cpu", "resources.cpus=1")
ENCODER = ("model.embedding.", "model.positions.", "model.embedding_norm.", "model.layers.")
FINETUNED = [name for name, _ in options("task") if name.startswith(("glue/", "qa/"))]
TOKENS = ("tokenizer", "tokenizer_path", "vocabulary", "vocabulary_text")


def plan_of(*typed):
    return expand_all([Command(compose(typed), typed)])


@pytest.mark.parametrize("typed", [["model.slots=16"], ["model.slots=16", "budget=reduced"]])
def test_two_cells_are_planned_in_order(typed):
    plan = plan_of("model=luna", "task=glue/sst2", "protocol=luna", *typed)
    first, second = plan.cells
    assert (first.cell.task, second.cell.task) == ("mlm/pretrain", "glue/sst2")
    assert [request.level for request in requests_of(plan)] == [0, 1] and [*second.depends_on] == [first.cell.id]
    assert first.cfg.model.slots == second.cfg.model.slots == 16 and first.cell.budget == second.cell.budget
    alone = plan_of("model=luna", "task=mlm/pretrain", "protocol=luna", *typed).cells
    assert [planned.cell.id for planned in alone] == [first.cell.id], "the same cell as by its own command"
    (scratch,) = plan_of(*second.overrides, "protocol.configuration=from_scratch").cells
    assert scratch.cell.task == "glue/sst2" and scratch.cell.id != second.cell.id


def test_the_pre_trainings_of_a_table_are_its_columns():
    """One on books and one on topics, which no fine-tuning of the table pre-trains again."""
    cells = plan_of("table=luna/t4", "budget=reduced", "model=vanilla", "seed=1").cells
    assert sum(planned.cell.task == "mlm/pretrain" for planned in cells) == 2 and len(cells) == 12


@pytest.mark.parametrize(
    ("task", "budget"), [("glue/qnli", "paper"), ("glue/qnli", "smoke"), *((task, "reduced") for task in FINETUNED)]
)
def test_tokens_and_positions_are_those_of_the_pre_training(task, budget):
    first, second = (planned.cfg for planned in plan_of(f"task={task}", f"budget={budget}", "model=vanilla").cells)
    assert {key: first.task[key] for key in TOKENS} == {key: second.task[key] for key in TOKENS}
    assert first.task.length == second.task.max_length
    same = ("dim", "heads", "layers", "ffn_dim", "ffn", "norm", "positions", "embedding_norm", "embedding_scale")
    assert [first.backbone[key] for key in same] == [second.backbone[key] for key in same]


def test_the_second_starts_from_the_first_ones_encoder(places, tmp_path, monkeypatch):
    starts = []
    on_train_start = TrainingCallback.on_train_start

    def spy(self, trainer, module):
        starts.append({name: tensor.clone() for name, tensor in module.state_dict().items()})
        on_train_start(self, trainer, module)

    monkeypatch.setattr(TrainingCallback, "on_train_start", spy)
    first, second = requests_of(plan_of(*SMOKE, *places))
    assert run_cell(second).state == "waiting"
    assert (result := run_cell(first)).state == "done", result.detail
    other_size = requests_of(plan_of(*SMOKE, *places, "backbone.dim=16", "backbone.head_dim=16"))[1]
    refused = run_cell(other_size)
    assert refused.state == "refused" and "\n" not in refused.detail
    assert "depends_on: embedding.weight has the shape (261, 16) here, (261, 32) in luna" in refused.detail
    assert (result := run_cell(second)).state == "done", result.detail
    records = {
        entries["cell"]["task"]: entries
        for path in (tmp_path / "records").rglob("*.json")
        for entries in [record.read(path)]
    }
    (handed_over,) = records["glue/sst2"]["depends_on"]
    assert handed_over["weights_sha256"] == records["mlm/pretrain"]["tested_weights_sha256"]
    (path,) = (tmp_path / "outputs").rglob(f"*{records['mlm/pretrain']['cell']['id'][:8]}/checkpoints/last.ckpt")
    chosen = torch.load(path, weights_only=True)["state_dict"]
    taken = {name for name in starts[1] if name.startswith(ENCODER)}
    assert {name.split(".")[1] for name in starts[1].keys() - taken} == {"head"}
    assert len(taken) > 20 and all(torch.equal(starts[1][name], chosen[name]) for name in taken)
    assert any(not torch.equal(starts[0][name], chosen[name]) for name in taken), "the first one has trained"
    metrics = records["mlm/pretrain"]["metrics"]["best"]["test"]
    assert metrics["nats"] > 0 and metrics["ppl"] == pytest.approx(torch.tensor(metrics["nats"]).exp().item(), rel=1e-5)
