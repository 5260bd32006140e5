"""Links in the place of folders: the user's own folders may be links, what lies below them may not lead elsewhere."""

import os
from types import SimpleNamespace

import pytest
from helpers.saved_cells import made, save

from harness.commands import status
from harness.commands.report import report_tables
from harness.config.cell import cell_of
from harness.config.compose import CONF, compose
from harness.config.places import LEDGER, below, folder_below
from harness.errors import UsageError
from harness.records import baselines, cache
from harness.records.collect import frame
from harness.training.checkpoints.saved_model import export
from harness.training.run_cell import run_cell
from tests.helpers.cells import request_of

CELL = ("model=latte", "task=lra/listops", "budget=smoke", "trainer=cpu", "resources.cpus=1", "train.max_steps=4")


@pytest.fixture
def elsewhere(tmp_path):
    (folder := tmp_path / "elsewhere").mkdir()
    return folder


@pytest.mark.parametrize("name", ["outputs/cells", "outputs/cells/lra/listops", "records/lra/listops"])
def test_a_cell_does_not_run_through_a_link(places, tmp_path, elsewhere, name):
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).symlink_to(elsewhere)
    cfg = compose([*CELL, *places])
    result = run_cell(request_of(cfg))
    assert (result.state, result.code) == ("refused", 2) and os.listdir(elsewhere) == []
    assert result.detail == (f"{tmp_path / name}: a link in the place of a folder, which is not followed; move it away")
    (tmp_path / name).unlink()
    (folder := cell_of(cfg).folder(cfg)).parent.mkdir(parents=True, exist_ok=True)
    folder.symlink_to(elsewhere)
    assert run_cell(request_of(cfg)).state == "refused" and os.listdir(elsewhere) == [], "the run folder itself"


@pytest.mark.slow
def test_folders_of_the_user_may_be_links(places, tmp_path, elsewhere):
    """As on clusters, where outputs and records lie on another disk."""
    for name in ("outputs", "records"):
        (elsewhere / name).mkdir()
        (tmp_path / name).symlink_to(elsewhere / name)
    cfg = compose([*CELL, *places])
    assert run_cell(request_of(cfg)).state == "done"
    assert cell_of(cfg).record_path(cfg).is_file() and list((elsewhere / "outputs" / "cells").rglob("last.ckpt"))


def test_the_cache_is_not_kept_through_a_link(places, tmp_path, elsewhere, capsys, monkeypatch):
    monkeypatch.setattr(cache, "FEW", 1)
    monkeypatch.setattr(cache, "RECENT_NS", -(10**18))
    cfg = compose(["model=latte", "task=lra/text", *places])
    save(cfg.paths.records, [1, 0])
    (tmp_path / "outputs").mkdir()
    (tmp_path / "outputs" / "cache").symlink_to(elsewhere)
    assert status.run(cfg, []) == 0
    said = capsys.readouterr().err
    assert said.startswith(f"left out: {tmp_path / 'outputs' / 'cache'}: a link") and said.count("\n") == 1
    assert os.listdir(elsewhere) == []


def reported(paths, cfg):
    report_tables("llp/t6", frame([]), conf=CONF, paths=paths | {"paper": LEDGER}, plots=False)


@pytest.mark.parametrize(("name", "act"), [
    ("outputs/cells", lambda paths, cfg: status.run(cfg, [])),
    *((f"outputs/{name}", lambda paths, cfg: export(SimpleNamespace(record=made()), None, cfg))
      for name in ("exports", "exports/lra")),
    ("tables/llp", reported),
    ("baselines", lambda paths, cfg: baselines.write(paths["records"], {"task": "lra/text", "key": "0" * 16}, {})),
])  # fmt: skip
def test_nothing_is_listed_exported_or_written_through_a_link(places, tmp_path, elsewhere, monkeypatch, name, act):
    if "exports" in name:
        pytest.importorskip("safetensors")
    monkeypatch.setattr(baselines, "parse", lambda *arguments: None)
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).symlink_to(elsewhere)
    cfg = compose(["model=latte", "task=lra/text", *places])
    with pytest.raises(UsageError, match=f"{name}: a link in the place of a folder"):
        act({key: str(tmp_path / key) for key in ("records", "tables", "figures")}, cfg)
    assert os.listdir(elsewhere) == []


def test_a_path_below_a_link_is_refused_wherever_the_link_stands(tmp_path, elsewhere):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b").symlink_to(elsewhere)
    assert below(tmp_path / "a" / "b", "c", "d.json") == tmp_path / "a" / "b" / "c" / "d.json"
    assert below(tmp_path, "a", "b") == tmp_path / "a" / "b", "a file may be replaced, whatever stands there"
    for path in (below, folder_below):
        with pytest.raises(UsageError, match="a/b: a link in the place of a folder"):
            path(tmp_path, "a/b", "c")
    with pytest.raises(UsageError, match="a/b: a link in the place of a folder"):
        folder_below(tmp_path, "a", "b")
