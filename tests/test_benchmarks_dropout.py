"""How `benchmarks.dropout` measures, merges and writes."""

import json
import os
import sys
from pathlib import Path

import pytest
import torch

from benchmarks import dropout
from models.ops import native

COMMITTED = Path(__file__).resolve().parents[1] / "results" / "side_by_side"


def row(model="lavo", tokens=2048, median=1.1, longhaul="0a1b"):
    times = {"without": 0.1, "with": 0.1 * median, "rounds": 7, "median": median, "low": median, "high": median}
    gain = {"median": 2.0, "low": None, "high": None}
    return {"model": model, "tokens": tokens, "longhaul": longhaul, "torch": times, "native": times, "gain": gain}


def test_every_row_has_a_layer_with_weights_to_drop():
    for name in dropout.names():
        layer = dropout.layer(name, 2048, dropout.DROPOUT)
        assert layer.has_weights and layer.active_dropout == dropout.DROPOUT and layer.max_length == 2048
        assert layer.pattern.causal == name.startswith("causal ")


def test_a_step_sets_its_form_and_drops_weights(monkeypatch):
    monkeypatch.setattr(dropout, "TOKENS", 128)
    monkeypatch.setenv(native.SWITCH, "0")
    switches, outputs = [], []
    monkeypatch.setattr(native, "kernels", lambda *tensors, **options: switches.append(os.environ[native.SWITCH]))
    monkeypatch.setattr(dropout, "training_step", lambda call, module, x, cotangent: lambda: outputs.append(call(x)))
    for form in dropout.FORMS:
        for share in (0.0, 0.5):
            torch.manual_seed(0)
            dropout.step("causal lavo", 64, share, form)()
    assert set(switches) == {"0", "1"} and outputs[0].shape == (2, 64, 128)
    torch_without, torch_with, native_without, _ = outputs
    assert torch.equal(torch_without, native_without) and not torch.equal(torch_without, torch_with)


def test_new_rows_replace_those_of_the_same_model_and_length():
    earlier = [row("lavo", 2048, 1.5), row("lavo", 8192, 1.4)]
    rows = dropout.merged(earlier, [row("lavo", 2048, 1.0), row("vanilla", 2048)])
    assert [(r["model"], r["tokens"]) for r in rows] == [("vanilla", 2048), ("lavo", 2048), ("lavo", 8192)]
    assert rows[1]["torch"]["median"] == 1.0 and rows[2]["torch"]["median"] == 1.4


def test_the_page_has_a_row_per_measurement_and_counts_the_goal():
    rows = [row(median=1.15), row(tokens=8192, median=1.16, longhaul="2c3d")]
    page = dropout.document({"machine": {"processor": "A|B"}, "rows": rows})
    assert "| lavo | 8,192 | 100.0 | 116.0 | 1.16 (1.16 to 1.16) |" in page
    assert "torch: 1 of 2 rows at 1.15 or below, median 1.15, largest 1.16. native: 1 of 2" in page
    assert "processor A&#124;B, longhaul 0a1b, 2c3d." in page


def test_the_command_writes_a_page_and_its_numbers(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(native, "load", lambda: None)
    monkeypatch.setattr(dropout, "measured_row", lambda name, length, seconds: row(name, length))
    out = tmp_path / "dropout.md"
    for arguments in (["lavo", "--lengths", "2048"], ["vanilla"]):
        monkeypatch.setattr(sys, "argv", ["dropout", *arguments, "--out", str(out)])
        dropout.main()
    numbers = json.loads(out.with_suffix(".json").read_text())
    assert [(r["model"], r["tokens"]) for r in numbers["rows"]] == [
        ("vanilla", 2048),
        ("vanilla", 8192),
        ("lavo", 2048),
    ]
    assert out.read_text() == dropout.document(numbers)
    assert "3 of" not in capsys.readouterr().out  # the summary is of what was measured


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["nothing"], "no row nothing"), (["--lengths", "3000"], "3000 does not"), (["--seconds", "0"], "not 0")],
)
def test_wrong_arguments_are_refused(monkeypatch, capsys, arguments, message):
    monkeypatch.setattr(sys, "argv", ["dropout", *arguments])
    with pytest.raises(SystemExit):
        dropout.main()
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("path", sorted(COMMITTED.glob("dropout*.json")), ids=lambda path: path.stem)
def test_the_committed_page_follows_from_its_numbers(path):
    content = json.loads(path.read_text(encoding="utf-8"))
    assert path.with_suffix(".md").read_text(encoding="utf-8") == dropout.document(content)
    assert all(row["model"] in dropout.names() for row in content["rows"])


def test_there_is_a_committed_page():
    assert (COMMITTED / "dropout.md").is_file()
