"""Worker processes take cell after cell; a cell that does not end well takes no other with it."""

import json
import os
import signal
import subprocess
import time
from unittest.mock import Mock

import pytest

from harness.config.compose import compose
from harness.config.places import ROOT
from harness.config.sweep import compose_commands, expand_all
from harness.launch import local, serialized_cell
from harness.records import record
from harness.training.checkpoints.dependency import Dependency
from harness.training.process import StopSignal
from harness.training.run_cell import CellRequest
from tests.helpers.places import below

RECORDS = ROOT / "results" / "records"


@pytest.fixture
def started(monkeypatch):
    """The processes that workers start."""
    processes, popen = [], subprocess.Popen

    def start(*arguments, **settings):
        processes.append(popen(*arguments, **settings))
        return processes[-1]

    monkeypatch.setattr(local.subprocess, "Popen", start)
    return processes


@pytest.fixture
def done(tmp_path):
    """Files of cells whose records are committed: a worker skips them in a moment."""
    typed = ("model=vanilla", "task=probe/recall", "budget=reduced", "task.pattern=causal_self")
    typed = (*typed, f"paths.records={RECORDS}", f"paths.outputs={tmp_path}")
    planned = expand_all(compose_commands([[*typed, f"seed={seed}"] for seed in (1, 2)])).cells
    return [serialized_cell.write(tmp_path / f"{cell.cell.seed}.yaml", CellRequest(cell.cfg)) for cell in planned]


def waiting(done, path):
    """A cell that cannot run: its dependency has no record."""
    cfg = serialized_cell.read(*done).cfg
    cfg.seed, cfg.paths.records = 9, str(path.parent / "none")
    missing = Dependency("0" * 16, "another cell", str(path.parent / "none.json"), str(path.parent / "none"), ())
    return serialized_cell.write(path, CellRequest(cfg, depends_on=[missing]))


def test_a_worker_goes_on_until_a_cell_does_not_end_well(tmp_path, done, started):
    cells = [done[0], waiting(done[0], tmp_path / "waiting.yaml"), done[1]]
    results = list(local.run_parallel(cells, 1, StopSignal()))
    assert [(result.state, result.code) for result in results] == [("skipped", 0), ("waiting", 2), ("skipped", 0)]
    assert len(started) == 2 and all(process.returncode is not None for process in started), "none is left behind"


@pytest.mark.slow
def test_a_worker_that_was_killed_between_two_cells_is_replaced(done, started):
    worker = local.Worker(None, 1)
    for cell in done[:2]:
        worker.run(cell)
        while (status := worker.poll()) is None:
            time.sleep(0.01)
        assert status == 0
        os.kill(worker.process.pid, signal.SIGKILL)
        os.waitid(os.P_PID, worker.process.pid, os.WEXITED | os.WNOWAIT)
    worker.end()
    assert len(started) == 2


def test_a_cell_of_several_devices_has_a_process_of_its_own(done, monkeypatch):
    """Lightning repeats the command for each device, so the command names the cell."""
    start = Mock(return_value=Mock(stdout=None))
    monkeypatch.setattr(local.subprocess, "Popen", start)
    local.Worker(None, 1, devices=2).run(done[0])
    assert [call.args[0][3] for call in start.call_args_list] == [str(done[0].path)]


SAME = ("metrics", "weights_sha256", "tested_weights_sha256", "steps", "tokens", "examples", "baseline", "data", "cell")


@pytest.mark.slow
def test_a_cell_after_others_in_one_process_has_the_bits_of_a_cell_alone(tmp_path):
    """The first one draws random numbers, sets another number of threads, and asks for deterministic algorithms."""
    common = ["task=lra/listops", "budget=smoke", f"paths.data={tmp_path}/data"]
    first = ["model=lavo", "seed=3", "resources.cpus=2", "trainer=cpu", "+trainer.deterministic=true"]
    second = ["model=local", "seed=1", "backbone.dropout=0.1", "trainer=cpu"]
    records = {}
    for name, sweep in (("after", [first, second]), ("alone", [second])):
        cells = []
        for number, typed in enumerate(sweep):
            typed = [*typed, *common]
            cfg = compose([*typed, *below(tmp_path / name, typed)])
            (tmp_path / name).mkdir(exist_ok=True)
            cells.append(serialized_cell.write(tmp_path / name / f"{number}.yaml", CellRequest(cfg, typed)))
        results = list(local.run_parallel(cells, 1, StopSignal()))
        assert [result.state for result in results] == ["done"] * len(sweep), results
        (path,) = (tmp_path / name / "results").rglob("local-s1-*.json")
        records[name] = record.read(path)
        beats = (tmp_path / name / "outputs").rglob("heartbeat.json")
        assert len({json.loads(beat.read_text())["pid"] for beat in beats}) == 1, "one process ran them"
    after, alone = ({key: entries[key] for key in SAME} for entries in records.values())
    assert after == alone
