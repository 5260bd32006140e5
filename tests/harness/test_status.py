"""do=status: the state of every run, from its record or its heartbeat."""

import json
import os
import shutil
import time

import pytest

from harness.commands import cli, status
from harness.config.cell import cell_of
from harness.config.compose import compose
from harness.config.places import ROOT
from harness.records.run_directory import RunDirectory
from harness.training.run_cell import run_cell
from tests.helpers.cells import request_of


def line(cfg, cell, capsys):
    assert status.run(cfg, []) == 0
    (match,) = [row for row in capsys.readouterr().out.splitlines() if row.startswith(cell.path.as_posix())]
    return match


def test_from_nothing_to_done_and_again(places, capsys):
    cfg = compose(["model=local", "budget=smoke", "trainer=cpu", *places])
    cell = cell_of(cfg)
    status.run(cfg, [])
    assert "no run yet" in capsys.readouterr().out

    folder = RunDirectory(cell.folder(cfg))
    folder.acquire()
    folder.ownership.beat("running", step=3, steps=12)
    assert "running" in line(cfg, cell, capsys)
    folder.ownership.release()
    folder.append_log("train 3/12")
    assert "dead" in (dead := line(cfg, cell, capsys)) and "step 3/12" in dead

    run_cell(request_of(cfg))
    assert "done" in line(cfg, cell, capsys)
    folder.acquire()
    folder.ownership.beat("running", step=5, steps=12, force=True)
    assert "running" in line(cfg, cell, capsys), "a second run is under way, whatever the first one left"
    folder.ownership.release()


def test_a_failure_shows_what_went_wrong(places, capsys, monkeypatch):
    from harness.training.module import TaskModule

    def fail(*_):
        raise RuntimeError("the disk is full")

    monkeypatch.setattr(TaskModule, "training_step", fail)
    cfg = compose(["model=local", "budget=smoke", "trainer=cpu", *places])
    run_cell(request_of(cfg))
    shown = line(cfg, cell_of(cfg), capsys)
    assert "failed" in shown and "the disk is full" in shown
    assert json.loads(next(cell_of(cfg).folder(cfg).glob("heartbeat.json")).read_text())["state"] == "failed"


def test_names_narrow_it(places, capsys):
    for model in ("local", "vanilla"):
        cfg = compose([f"model={model}", "budget=smoke", "trainer=cpu", *places])
        folder = RunDirectory(cell_of(cfg).folder(cfg))
        folder.acquire()
        folder.ownership.beat("running", step=3, steps=12)
        folder.ownership.release()

    def shown(*typed):
        """The models of the table's lines."""
        typed = ["do=status", *typed, *places]
        assert cli.dispatch(compose(typed), typed) == 0
        names = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line.startswith("lra/")]
        return {name.split("/")[-1].split("-")[0] for name in names}

    assert shown() == shown("seed=1") == {"local", "vanilla"} and shown("seed=2") == shown("budget=paper") == set()
    assert shown("model=vanilla") == shown("model=vanilla", "budget=smoke", "task=lra/listops") == {"vanilla"}
    assert shown("table=lavo/t11", "budget=smoke", "model=local") == {"local"}


@pytest.fixture
def many(places, tmp_path, monkeypatch):
    """Sixty runs that stopped a minute apart, the last one now. Returns the lines that words of do=status print."""
    cfg = compose(["model=local", "budget=smoke", "trainer=cpu", *places])
    now = time.time()
    for seed in range(1, 61):
        cfg.seed = seed
        folder = RunDirectory(cell_of(cfg).folder(cfg))
        folder.acquire()
        folder.ownership.beat("interrupted" if seed % 2 else "running", step=3, steps=12, force=True)
        folder.ownership.release()
        for path in folder.path.iterdir():
            os.utime(path, (now - 60 * (60 - seed), now - 60 * (60 - seed)))

    def seeds(run_here, capfd, *words):
        assert run_here(["do=status", *words, *places]) == 0
        lines = [line for line in capfd.readouterr().out.splitlines() if line.startswith("lra/")]
        return [int(line.split("-s")[1].split("-")[0]) for line in lines]

    return seeds


def test_states_and_times(many, run_here, capfd):
    assert many(run_here, capfd) == list(range(11, 61)), "the latest run comes last"
    assert many(run_here, capfd, "cells=true") == list(range(1, 61))
    assert many(run_here, capfd, "state=interrupted") == list(range(1, 61, 2))
    assert many(run_here, capfd, "state=interrupted,dead", "since=9.5m") == list(range(51, 61))


def test_finished_runs_of_others_are_counted_unless_they_are_asked_for(places, tmp_path, run_here, capfd):
    committed = ROOT / "results/records/lra/listops"
    shutil.copytree(committed, tmp_path / "records/lra/listops")
    number = len(list(committed.rglob("*.json")))
    own = next(committed.rglob("vanilla-s1-*.json"))
    (tmp_path / "outputs/cells" / own.relative_to(committed.parents[1]).with_suffix("")).mkdir(parents=True)

    def shown(*words):
        assert run_here(["do=status", *words, *places]) == 0
        return capfd.readouterr().out.splitlines()

    lines = shown()
    runs = [line for line in lines if line.startswith("lra/listops/")]
    assert [line.split()[0].split("/")[-1] for line in runs] == [own.stem]
    (counts,) = [line.split() for line in lines if line.startswith("lra/listops ")]
    assert counts[0] == "lra/listops" and counts[3:] == [f"{number}"] * 2 and lines[-1].startswith(f"{number} done (")
    assert len([line for line in shown("cells=true") if line.startswith("lra/listops/")]) == number
    assert all(line.startswith("lra/listops/") for line in shown("model=vanilla")[:-1])
