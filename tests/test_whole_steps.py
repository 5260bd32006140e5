"""How `benchmarks.whole_steps` trains both sides and writes its page; its peer is a clone that tests do not have."""

import sys

import pytest
import torch
from torch import nn

from benchmarks import whole_steps
from benchmarks.peers.skyformer import OPTIONS
from harness.bench.recipe import RecipeModel
from harness.config.compose import compose


class Public(nn.Module):
    """A classifier with the call of the peer's."""

    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(whole_steps.VOCABULARY, 4), nn.Linear(4, whole_steps.CLASSES)

    def forward(self, tokens, mask, label):
        logits = self.head((self.embedding(tokens) * mask[..., None]).mean(1))
        return {"loss": nn.functional.cross_entropy(logits, label, reduction="none")}


def test_their_step_is_an_update():
    model = Public()
    before = [parameter.clone() for parameter in model.parameters()]
    whole_steps.public_step(model)()
    assert all((a != b).any() for a, b in zip(before, model.parameters(), strict=True))


@pytest.mark.parametrize("row", whole_steps.ROWS, ids=[row.model for row in whole_steps.ROWS])
def test_our_side_is_the_recipe_at_the_measured_size(row):
    cfg = compose([*whole_steps.RECIPE, f"model={row.model}", *row.overrides])
    assert cfg.backbone.dropout == whole_steps.DROPOUT and cfg.backbone.dim == whole_steps.DIM
    model = RecipeModel(cfg, torch.device("cpu")).model(whole_steps.LENGTH, device="meta")
    assert whole_steps.parameters(model) > 200_000
    assert row.kind in {"softmax", "kernelized", *OPTIONS}


def test_a_row_and_the_page():
    row = {"model": "lavo", "ours_parameters": 10, "theirs_parameters": 11, "ours_seconds": 0.5, "theirs_seconds": 0.4}
    row |= {"ratio": 0.8, "low": 0.7, "high": 0.9, "rounds": 7, "note": "a | note"}
    content = {"machine": {"processor": "CPU"}, "options": "", "rows": [row], "not_measured": ["bigbird: <absent>"]}
    page = whole_steps.document(content)
    assert "0.80 (0.70 to 0.90) | 7 | missed |" in page and "0 of 1 rows at 1 or above" in page
    assert "a &#124; note" in page and "not measured: bigbird: &lt;absent&gt;" in page


def test_a_missing_peer_and_wrong_input_are_one_line(monkeypatch, capsys):
    monkeypatch.setattr(whole_steps, "keep_freed_memory", lambda: None)  # a setting of the process
    monkeypatch.setattr(sys, "argv", ["whole_steps", "bigbird"])
    assert not whole_steps.main() and "not measured: Skyformer: give --peers" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", ["whole_steps", "nobody"])
    with pytest.raises(SystemExit, match="2"):
        whole_steps.main()
    message = capsys.readouterr().err
    assert "no row nobody" in message and "Traceback" not in message
