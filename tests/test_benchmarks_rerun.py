"""The comparison of cells that ran again with their committed records."""

import json
import sys

import pytest

from benchmarks import rerun
from harness.config.places import ROOT

COMMITTED = ROOT / "results" / "side_by_side" / "rerun.md"


def put(folder, model, seed, acc, status="done", processor="p"):
    folder.mkdir(exist_ok=True)
    metrics = {"last": {"test": {"acc": 0.0}}, "best": {"test": {"acc": acc}}}
    entries = {"cell": {"model": model, "task": "t", "seed": seed}, "status": status, "metric": {"name": "acc"}}
    entries |= {"selection": {"rule": "best_val"}, "metrics": metrics, "hardware": {"cpu": processor}}
    (folder / f"{model}-s{seed}.json").write_text(json.dumps(entries))


def page_of(tmp_path, monkeypatch):
    out = tmp_path / "page.md"
    monkeypatch.setattr(rerun, "COMMITTED", tmp_path / "committed")
    monkeypatch.setattr(sys, "argv", ["rerun", "--records", str(tmp_path / "now"), "--out", str(out)])
    rerun.main()
    return out.read_text(), json.loads(out.with_suffix(".json").read_text())


def test_cells_of_both_folders_are_compared(tmp_path, monkeypatch):
    committed, now = tmp_path / "committed", tmp_path / "now"
    for seed in (1, 2, 3, 4, 5, 6):
        put(committed, "same", seed, 50.0 + seed)
        put(now, "same", seed, 50.0 + seed)
        put(committed, "higher", seed, 50.0)
        put(now, "higher", seed, 51.0 + seed)
    put(now, "alone", 1, 9.0)
    put(committed, "failed", 1, 9.0)
    put(now, "failed", 1, 9.0, status="nan")
    page, numbers = page_of(tmp_path, monkeypatch)
    assert len(numbers["repeats"]) == 12
    assert "6 of 12 scores are equal to the last digit. The other 6 differ by +4.50 on average: p = 0.031." in page
    assert "| same, t | 6 | 53.50 | 53.50 | 0.00 | 6 of 6 | p |" in page
    assert "| higher, t | 6 | 50.00 | 54.50 | 7.00 | 0 of 6 | p |" in page


def test_nothing_to_compare_is_one_line(tmp_path, monkeypatch, capsys):
    put(tmp_path / "now", "alone", 1, 9.0)
    with pytest.raises(SystemExit):
        page_of(tmp_path, monkeypatch)
    assert "no finished cell below" in capsys.readouterr().err


def test_the_committed_page_is_that_of_its_numbers():
    numbers = json.loads(COMMITTED.with_suffix(".json").read_text())
    repeated = [rerun.Repeat(**entry) for entry in numbers["repeats"]]
    assert rerun.document(repeated, numbers["machine"]) == COMMITTED.read_text()
    assert len({repeat.cell for repeat in repeated}) >= 10
