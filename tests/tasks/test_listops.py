"""The ListOps task: constructor, batches, loss, metrics, baseline (its data: test_listops_data.py)."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from models.attention.base import Pattern
from tasks.base import DataError, Task
from tasks.lra.classification import SequenceSplit
from tasks.lra.listops import ListOps
from tests.helpers.listops import loaded, small
from tests.helpers.tasks import one_line


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"min_length": 64}, "min_length=64"),
        ({"source": "guess"}, "generated, official, slice"),
        ({"path": "somewhere"}, "takes no path"),
        ({"pattern": "sideways"}, "sideways"),
        ({"pattern": "causal_cross"}, "causal_cross"),
        ({"train": 0}, "train=0"),
        ({"test": -1}, "test=-1"),
        ({"workers": 0}, "workers=0"),
        ({"data_seed": -1}, "data_seed=-1"),
        ({"max_depth": 1}, "max_depth=1"),
        ({"max_args": 1}, "max_args=1"),
        ({"source": "slice", "path": "x", "max_length": 0}, "max_length=0"),
    ],
)
def test_invalid_settings_touch_nothing(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message) as error:
        small(tmp_path / "data", **changes)
    one_line(error)
    assert not isinstance(error.value, DataError)
    assert not (tmp_path / "data").exists()


def test_facts_known_before_any_data(tmp_path):
    task = ListOps(data_root=tmp_path)
    assert isinstance(task, Task) and (task.metric, task.higher_is_better) == ("acc", True)
    assert task.backbone_kwargs() == {
        "vocab_size": 17, "classes": 10, "max_length": 2000, "pattern": Pattern.NONCAUSAL_SELF, "padding_id": 0
    }  # fmt: skip
    causal = ListOps(data_root=tmp_path, pattern="causal_self", append_eos=True)
    assert causal.pattern is Pattern.CAUSAL_SELF and causal.backbone_kwargs()["vocab_size"] == 18
    with pytest.raises(RuntimeError, match="load"):
        task.split("train")


def rows(split, indices):
    return [split.examples.tokens[split.examples.offsets[i] : split.examples.offsets[i + 1]] for i in indices]


@pytest.mark.parametrize("max_length", [64, 30])
@pytest.mark.parametrize("append_eos", [False, True])
def test_batch_pads_cuts_and_ends(tmp_path, max_length, append_eos):
    whole = loaded(tmp_path, append_eos=append_eos)
    split = SequenceSplit(whole.split("train").examples, max_length, eos=17 if append_eos else None)
    indices = [5, 0, 299, 5, 17]
    batch = split.batch(indices)
    expected = [row[: max_length - append_eos].tolist() + [17] * append_eos for row in rows(split, indices)]
    longest = max(map(len, expected))
    assert batch["tokens"].tolist() == [row + [0] * (longest - len(row)) for row in expected]
    assert longest <= max_length
    assert batch["label"].tolist() == [int(split.examples.labels[i]) for i in indices]
    assert batch["tokens"].dtype == batch["label"].dtype == torch.int64
    assert batch["tokens"].max() < whole.backbone_kwargs()["vocab_size"]
    assert whole.tokens(batch) == sum(map(len, expected))
    for other in (np.array(indices), torch.tensor(indices)):
        assert torch.equal(split.batch(other)["tokens"], batch["tokens"])
    for beyond in ([300], [-1]):
        with pytest.raises(IndexError):
            split.batch(beyond)


class Logits(nn.Module):
    """Logits (B, 10) looked up by the first token; wide apart, so that the classes differ."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(18, 10)
        nn.init.normal_(self.table.weight, std=3, generator=torch.Generator().manual_seed(0))

    def forward(self, tokens):
        return self.table(tokens[:, 0])


def test_metrics_are_exact_over_unequal_batches(tmp_path):
    task, model = loaded(tmp_path), Logits()
    split, metrics, scored = task.split("train"), task.metrics(), 0
    for indices in (range(0, 128), range(128, 256), range(256, 299), range(299, 300)):
        scored += len(task.score(model, split.batch(indices), metrics)["acc"])
    assert scored == 300 and set(metrics.compute()) == {"acc", "loss"}
    batch = split.batch(range(300))
    logits = model(batch["tokens"]).double()
    correct = (logits.argmax(1) == batch["label"]).sum().item()
    assert 0 < correct < 300
    assert metrics.compute()["acc"].item() == 100 * correct / 300
    losses = torch.nn.functional.cross_entropy(logits, batch["label"])
    assert metrics.compute()["loss"].item() == pytest.approx(losses.item(), rel=1e-6)
    fresh = task.metrics()
    task.score(model, split.batch([0]), fresh)
    assert fresh["acc"].compute().item() in (0.0, 100.0)


def test_loss_has_gradients_and_starts_at_chance(tmp_path):
    task, model = loaded(tmp_path), Logits()
    batch = task.split("train").batch(range(64))
    nn.init.zeros_(model.table.weight)
    loss = task.loss(model, batch)
    assert loss.shape == () and loss.item() == pytest.approx(math.log(10), rel=1e-6)
    loss.backward()
    assert model.table.weight.grad.abs().sum() > 0
    assert task.loss(model.bfloat16(), batch).dtype == torch.float32


def test_baseline_answers_the_training_majority(tmp_path):
    task = loaded(tmp_path)
    labels = {name: task.split(name).examples.labels.tolist() for name in ("train", "val", "test")}
    majority = max(range(10), key=labels["train"].count)
    assert task.majority_class == majority
    for name, score in task.baseline().items():
        assert score == 100 * labels[name].count(majority) / len(labels[name])
    assert set(task.baseline()) == {"val", "test"}
