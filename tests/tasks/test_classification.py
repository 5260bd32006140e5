"""What the tasks on published data share: batches, scores, the chance level, the cache."""

import math

import pytest
import torch
from torch import nn

from tasks import data_task
from tasks.examples import pack_bytes
from tasks.lra import classification
from tasks.lra.text import Text
from tests.helpers.tasks import ready

SMALL = {"source": "synthetic", "max_length": 128, "distance": 32, "train": 60, "val": 20, "test": 31}


def loaded(root, **changes) -> Text:
    return ready(Text(data_root=root, **{**SMALL, **changes}))


@pytest.mark.parametrize("append_eos", [False, True])
@pytest.mark.parametrize("max_length", [8, 5])
def test_a_byte_is_its_value_plus_one(append_eos, max_length):
    texts = [b"\x00\xffab", "né".encode() * 3, b"x"]
    examples = pack_bytes([(data, i % 2) for i, data in enumerate(texts)])
    split = classification.SequenceSplit(examples, max_length, shift=1, eos=257 if append_eos else None)
    batch = split.batch([2, 0, 1, 0])
    kept = [texts[i][: max_length - append_eos] for i in (2, 0, 1, 0)]
    rows = [[byte + 1 for byte in data] + [257] * append_eos for data in kept]
    longest = max(map(len, rows))
    assert batch["tokens"].tolist() == [row + [0] * (longest - len(row)) for row in rows]
    assert batch["label"].tolist() == [0, 0, 1, 0]
    assert batch["tokens"].dtype == batch["label"].dtype == torch.int64
    for beyond in ([3], [-1]):
        with pytest.raises(IndexError):
            split.batch(beyond)


class FirstByte(nn.Module):
    """Logits (B, 2) looked up by the first token."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(258, 2)
        nn.init.normal_(self.table.weight, std=3, generator=torch.Generator().manual_seed(0))

    def forward(self, tokens):
        return self.table(tokens[:, 0])


def test_scores_are_exact_over_unequal_batches(tmp_path):
    task, model = loaded(tmp_path), FirstByte()
    split, metrics, scored = task.split("train"), task.metrics(), 0
    for indices in (range(0, 32), range(32, 59), range(59, 60)):
        scored += len(task.score(model, split.batch(indices), metrics)["acc"])
    batch = split.batch(range(60))
    logits = model(batch["tokens"]).double()
    correct = int((logits.argmax(1) == batch["label"]).sum())
    assert scored == 60 and 0 < correct < 60
    assert metrics.compute()["acc"].item() == 100 * correct / 60
    nn.init.zeros_(model.table.weight)
    loss = task.loss(model, batch)
    assert loss.item() == pytest.approx(math.log(2))
    loss.backward()
    assert model.table.weight.grad.abs().sum() > 0
    assert task.tokens(batch) == sum(map(len, split.examples.tokens[None])) == split.examples.offsets[-1]


def test_last_batch_may_be_left_out(tmp_path):
    task = loaded(tmp_path, drop_remainder=8)
    assert task.load().sizes == {"train": 60, "val": 16, "test": 24}
    assert loaded(tmp_path, drop_remainder=50).load().sizes["test"] == 31, "one batch is all there is"


def test_a_published_quirk_leaves_the_data_full(tmp_path, monkeypatch):
    monkeypatch.setattr(data_task, "SYNTHETIC", "another word")
    monkeypatch.setattr(Text, "published", (80, 31))
    assert loaded(tmp_path, drop_remainder=8).load().source == "full"
    assert loaded(tmp_path, train=59).load().source == "slice:synthetic"
    monkeypatch.setattr(Text, "published", (80, 32))
    assert loaded(tmp_path).load().source == "slice:synthetic"
