"""How `benchmarks.competitors` compares, measures and writes; its peers are clones that tests do not have."""

import json
import sys
from pathlib import Path

import pytest
import torch

from benchmarks import competitors
from benchmarks.baselines import DifferentError
from benchmarks.peers import mixers

MACHINE = {"processor": "CPU", "threads": 1, "longhaul": "abc"}
ROW = {
    "model": "gla", "peer": "a peer", "tokens": 4096, "output": 1e-15, "gradient": 2e-15, "rounds": 3,
    "ours_seconds": 0.05, "theirs_seconds": 0.04, "ratio": 0.8, "low": None, "high": None,
    "growth": [4096, 65536], "step_seconds": [1.0, 16.0], "exponent": 1.0, "token_seconds": [3e-4] * 3,
    "kib_per_token": [20.0, 10.5], "state": "2 * dim", "note": "a | note", "commit": "",
}  # fmt: skip


def written(path: Path, rows: list, machine: dict | None = None) -> dict:
    content = {"machine": machine or MACHINE, "clones": {}, "rows": rows, "not_measured": {"nsa": "no <clone>"}}
    path.with_suffix(".json").write_text(json.dumps(content), encoding="utf-8")
    return content


def test_every_row_has_a_peer_and_a_layer():
    assert {name for project in competitors.PROJECTS for name, _ in project.pairs} == set(competitors.LAYERS)


def test_the_page(tmp_path):
    page = competitors.document(written(tmp_path / "table.md", [ROW, ROW | {"growth": [16, 32], "commit": "def"}]))
    assert (
        "| gla | a peer | 1e-15 | 2e-15 | 50.0 | 40.0 | 0.80 | 1.00 | 300 | 300 | 300 | 20.0 | 10.5 | 2 * dim |" in page
    )
    assert "| missed |" in page and "0 of 2 rows at 1 or above" in page and "- not measured: no &lt;clone&gt;" in page
    assert "- gla: a &#124; note.\n- gla: a &#124; note; a between 16 and 32 tokens; measured at def.\n" in page


def test_rows_are_continued_on_the_same_machine_alone(tmp_path):
    out = tmp_path / "table.md"
    assert competitors.earlier(out, MACHINE) == {}
    written(out, [ROW])
    assert competitors.earlier(out, MACHINE) == {"gla": ROW, "nsa": "no <clone>"}
    later = competitors.earlier(out, MACHINE | {"longhaul": "new"})
    assert later["gla"]["commit"] == "abc", "the commit that measured a row stands beside it"
    assert competitors.earlier(out, MACHINE | {"processor": "other"}) == {}


def test_a_missing_peer_and_wrong_input_are_one_line(monkeypatch, capsys):
    threads = torch.get_num_threads()
    monkeypatch.setattr(sys, "argv", ["competitors", "--rows", "gla"])
    try:
        competitors.main()
    finally:
        torch.set_num_threads(threads)
    assert "not measured: flash-linear-attention: give --peers" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", ["competitors", "--rows", "gla,nobody"])
    with pytest.raises(SystemExit):
        competitors.main()
    assert "no row nobody; there are gla, " in capsys.readouterr().err


def test_a_file_computes_in_float64_where_it_says_float32(tmp_path):
    file = tmp_path / "naive.py"
    file.write_text("import torch\ndef f(x):\n    return x.float() + torch.ones(1, dtype=torch.float32)\n", "utf-8")
    x = torch.full((1,), 1e-9, dtype=torch.float64)
    assert mixers.names_of(file, torch.float32)["f"](x).dtype is torch.float32
    assert mixers.names_of(file, torch.float64)["f"](x).item() == 1 + 1e-9


def loop(q, k, v, g):
    """Gated linear attention as the peer has it, (B, N, H, ..)."""
    state, rows = 0.0, []
    for t in range(q.shape[1]):
        state = g[:, t, ..., None].exp() * state + k[:, t, ..., None] * v[:, t, :, None]
        rows.append(q.shape[-1] ** -0.5 * (q[:, t, :, None] @ state)[..., 0, :])
    return torch.stack(rows, 1), None


def test_a_pair_that_differs_is_refused(monkeypatch):
    monkeypatch.setattr(mixers, "of_clone", lambda *_: {"naive_recurrent_gla": loop})
    output, gradient = competitors.differences(mixers.gla(None, torch.float64, 16))
    assert 0 < max(output, gradient) < 1e-12
    monkeypatch.setattr(mixers, "of_clone", lambda *_: {"naive_recurrent_gla": lambda *x: (1.01 * loop(*x)[0], None)})
    with pytest.raises(DifferentError, match=r"outputs differ by 9\.\de-03"):
        competitors.differences(mixers.gla(None, torch.float64, 16))


@pytest.mark.slow
def test_a_row_is_measured_and_written(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(mixers, "of_clone", lambda *_: {"naive_recurrent_gla": loop})
    sizes = {"COMPARED": 16, "CONTEXTS": (16, 32, 64), "GROWTH": (64, 128), "MEMORY": (64, 128)}
    for name, size in sizes.items():
        monkeypatch.setattr(competitors, name, size)
    layer = competitors.LAYERS["gla"]._replace(timed=32, growth=(64, 128))
    monkeypatch.setitem(competitors.LAYERS, "gla", layer)
    out = tmp_path / "table.md"
    monkeypatch.setattr(sys, "argv", ["competitors", "--rows", "gla", "--seconds", "0.1", "--out", str(out)])
    threads = torch.get_num_threads()
    try:
        competitors.main()
    finally:
        torch.set_num_threads(threads)
    content = json.loads(out.with_suffix(".json").read_text(encoding="utf-8"))
    (row,) = content["rows"]
    assert (
        row["output"] < 1e-12 and row["ratio"] > 0 and min(row["token_seconds"]) > 0 and len(row["step_seconds"]) == 2
    )
    assert row["state"].startswith("expand_k * expand_v") and content["machine"]["threads"] == 1
    assert out.read_text(encoding="utf-8") == competitors.document(content) and "gla" in capsys.readouterr().out


COMMITTED = Path(__file__).resolve().parents[1] / "results" / "side_by_side" / "competitors.json"


@pytest.mark.skipif(not COMMITTED.is_file(), reason="there is no committed table")
def test_the_committed_page_is_of_the_committed_numbers():
    content = json.loads(COMMITTED.read_text(encoding="utf-8"))
    assert COMMITTED.with_suffix(".md").read_text(encoding="utf-8") == competitors.document(content)
    rows = [row["model"] for row in content["rows"]]
    assert not content["not_measured"] and rows == [name for name in competitors.LAYERS if name in rows]
