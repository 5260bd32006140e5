"""A sweep on a real SLURM: it returns at once, every cell ends in the state that it deserves, nothing is lost."""

import csv
import json
import shutil
import time
from pathlib import Path

import pytest
from cluster import Cluster
from harness_on import ROOT, SAME, Harness

pytestmark = [pytest.mark.slurm, pytest.mark.usefixtures("empty_queue")]

CELL = ["task=lra/listops", "budget=smoke", "resources=cpu1"]


@pytest.fixture
def harness(cluster: Cluster, tmp_path: Path) -> Harness:
    made = Harness(cluster, tmp_path)
    made.run("do=prepare", "model=vanilla", *CELL)
    return made


def odd(release: Path, **settings: object) -> list[str]:
    typed = [f"+model.{key}={json.dumps(value)}".replace(" ", "") for key, value in settings.items()]
    names = ["model=custom", "model.name=odd", "model._target_=odd_models.Odd", "trusted_packages=[odd_models]"]
    return [*names, f"+model.until={release}", *typed]


def test_24_cells_with_every_accident(harness: Harness, cluster: Cluster, tmp_path: Path):
    """Seed 1 outlives its time limit, 2 is cancelled, 3 loses its node, 4 crashes, 5 finds no space; 19 others run.

    Another cell, with seed 25, begins while the holder of its folder, on another host, seems to live.
    """
    release = tmp_path / "release"
    cell = [
        *odd(release, slow=[1, 2, 3], crash=[4], full=[5], pause_s=4), *CELL, "train.max_steps=120",
        "train.eval_every=40", "checkpoint.every_steps=5", "cluster.signal_s=10",
    ]  # fmt: skip
    harness.submit(*cell, "seed=25", "+cluster.sbatch.hold=true", "resources.minutes=30")
    beat = {"state": "running", "step": 3, "steps": 120, "host": "elsewhere", "pid": 1, "time": time.time()}
    (harness.run_folder(25) / "heartbeat.json").write_text(json.dumps(beat))
    cluster.run("scontrol", "release", harness.job(25))
    sweep = [*cell, "seed=range(1,25)", "resources.minutes=5"]  # up to ten, submitit takes any signal for a timeout
    said = harness.submit(*sweep, "+cluster.sbatch.hold=true")
    assert "24 cells in 24 jobs" in said and "submitted: 24 cells" in said
    for seed in (1, 2, 3):  # slow ones: SLURM shall not requeue them before their accident
        cluster.run("scontrol", "update", f"JobId={harness.job(seed)}", "TimeLimit=30")
    began = time.monotonic()
    cluster.run("scontrol", "release", *[harness.job(seed) for seed in range(1, 25)])
    assert set(harness.states().values()) <= {"queued", "running", "done"}
    assert "nothing to submit" in harness.submit(*sweep), "cells that wait or run are not submitted again"

    for seed in (2, 3):
        cluster.wait_until(lambda seed=seed: harness.beat(seed).get("step", 0) > 5, 90, f"seed {seed} to train")
    cluster.run("scancel", harness.job(2))
    cluster.kill_node(cluster.placement()[harness.job(3)])
    # SLURM still says RUNNING; the heartbeat knows better, once the killed process is gone
    cluster.wait_until(lambda: harness.states()[3] == "dead", 30, "the run of the lost node to be dead")
    assert "its last log lines:" in harness.run("do=status")

    # seed 1 has trained, and gets one or two minutes more; a limit that ends before cells train would requeue for ever
    limit = int(time.monotonic() - began) // 60 + 2
    cluster.run("scontrol", "update", f"JobId={harness.job(1)}", f"TimeLimit={limit}")
    cluster.wait_until(lambda: harness.beat(1).get("state") == "timeout", 300, "seed 1 to run out of time")
    cluster.wait_until(lambda: cluster.queue()[harness.job(1)] == "PENDING", 60, "the job of seed 1 to be queued again")
    cluster.run("scontrol", "hold", harness.job(1))
    assert harness.states()[1] == "timeout"
    cluster.run("scontrol", "release", harness.job(1))
    ended = {4: "failed", 5: "interrupted"}  # what they do as long as nothing is released
    cluster.wait_until(lambda: ended.items() <= harness.states().items(), 240, "seeds 4 and 5 to fail")
    release.touch()
    harness.wait_for([1, 4, *range(6, 26)], 420)
    assert "the last heartbeat is from" in harness.log(25), "it waited, and took over"
    assert harness.counts() == {"done": 21, "failed": 1, "interrupted": 2, "dead": 1}, harness.errors()
    assert {seed: state for seed, state in harness.states().items() if state != "done"} == {
        2: "interrupted", 3: "dead", 4: "failed", 5: "interrupted",
    }  # fmt: skip
    assert "/scratch: no space left on device" in harness.log(5)
    assert harness.record(4)["error"]["message"] == "the third step is one too many"
    queue = cluster.queue()
    assert queue[harness.job(4)] == queue[harness.job(5)] == "FAILED", "SLURM sees what the record says"
    assert queue[harness.job(25)] == "COMPLETED"

    said = harness.submit(*sweep)
    assert "submitted: 3 cells, 20 done, 1 failed" in said
    harness.wait_for(range(1, 25), 300)
    assert "submitted: 1 cells, 23 done" in harness.submit(*sweep, "rerun=failed")
    cluster.wait_until(lambda: harness.statuses()[4] == "done", 60, "the failed cell to run again")
    assert harness.counts() == {"done": 25}

    # requeued, cancelled and killed runs give what an uninterrupted one gives
    apart = [f"paths.{name}={tmp_path / 'whole' / name}" for name in ("outputs", "records")]
    harness.run("-m", *[word for word in sweep if not word.startswith("seed=")], "seed=1,2,3", *apart)
    for seed in (1, 2, 3):
        (path,) = (tmp_path / "whole").rglob(f"*-s{seed}-*.json")
        whole, parts = json.loads(path.read_text()), harness.record(seed)
        assert {key: whole[key] for key in SAME} == {key: parts[key] for key in SAME}
        assert parts["resumes"] >= 1 and whole["resumes"] == 0


def test_a_preempted_cell_goes_on(harness: Harness, cluster: Cluster, tmp_path: Path):
    release = tmp_path / "release"
    sweep = [*odd(release, slow=[1]), *CELL, "seed=1", "train.max_steps=60", "cluster.partition=preemptible"]
    harness.submit(*sweep)
    cluster.wait_until(lambda: harness.beat(1).get("step", 0) > 2, 60, "training")
    cluster.submit("sleep 5", "--array=0-3")
    cluster.wait_until(lambda: harness.beat(1).get("state") == "preempted", 30, "the preemption")
    assert harness.states()[1] == "preempted"
    release.touch()
    harness.wait_for([1], 90)
    assert harness.record(1)["status"] == "done" and harness.record(1)["resumes"] == 1


def test_code_and_yaml_edited_after_submission_change_nothing(cluster: Cluster, tmp_path: Path):
    code = tmp_path / "code"
    for name in ("conf", "harness", "models", "tasks", "hydra_plugins"):
        shutil.copytree(ROOT / name, code / name)
    for name in ("run.py", "pyproject.toml"):
        shutil.copy(ROOT / name, code / name)
    harness = Harness(cluster, tmp_path, code)
    cell = ["model=local", *CELL]
    harness.run("do=prepare", *cell)
    harness.submit(*cell, "+cluster.sbatch.hold=true")
    (code / "models" / "attention" / "local.py").write_text("raise RuntimeError('edited')")
    (code / "harness" / "training" / "run_cell.py").write_text("raise RuntimeError('edited')")
    yaml = code / "conf" / "model" / "local.yaml"
    yaml.write_text(yaml.read_text().replace("window:", "width:"))
    cluster.run("scontrol", "release", next(iter(cluster.live())))
    harness.wait_for([1], 60)
    record = harness.record(1)
    assert record["status"] == "done" and record["config"]["model"]["window"] == 8 and record["changed"] == {}


def test_two_nodes_train_what_one_process_trains(harness: Harness, cluster: Cluster, tmp_path: Path):
    """DDP over gloo, interrupted once on the way; no dropout, whose masks are each device's own."""
    release = tmp_path / "release"
    steps = ["backbone.dropout=0.0", "backbone.attention_dropout=0.0", "train.max_steps=80", "train.eval_every=20"]
    cell = [*odd(release, slow=[1]), *CELL, "seed=1", *steps]
    harness.submit(*cell, "resources.nodes=2")
    cluster.wait_until(lambda: harness.beat(1).get("step", 0) > 2, 90, "training")
    cluster.run("scancel", "--signal=USR2", harness.job(1))
    cluster.wait_until(lambda: harness.beat(1).get("state") == "preempted", 30, "the run to stop")
    release.touch()
    harness.wait_for([1], 300)
    shared = harness.record(1)
    assert shared["status"] == "done", shared["error"]
    assert shared["update"] == {"examples": 16, "micro_batch_size": 8, "devices": 2}
    assert shared["resumes"] == 1

    apart = [f"paths.{name}={tmp_path / 'one' / name}" for name in ("outputs", "records")]
    harness.run(*cell, *apart)
    (path,) = (tmp_path / "one").rglob("*-s1-*.json")
    alone = json.loads(path.read_text())
    assert alone["cell"] == shared["cell"] and alone["update"]["devices"] == 1
    assert alone["tokens"] == shared["tokens"] and alone["examples"] == shared["examples"]
    curves = [
        [{key: float(value) for key, value in row.items()} for row in csv.DictReader(path.open())]
        for path in (harness.run_folder(1) / "metrics.csv", next((tmp_path / "one").rglob("metrics.csv")))
    ]
    assert len(curves[0]) == len(curves[1]) == 4
    for ours, theirs in zip(*curves, strict=True):
        assert ours["train/loss"] == pytest.approx(theirs["train/loss"], rel=1e-5)
        assert ours["val/loss"] == pytest.approx(theirs["val/loss"], rel=1e-5)


def test_200_cells_write_at_once(harness: Harness):
    sizes = [
        "task.train=32",
        "task.val=16",
        "task.test=16",
        "train.max_steps=1",
        "train.eval_every=1",
        "train.schedule.warmup=0",
    ]
    tiny = ["model=local", *CELL, *sizes]
    harness.run("do=prepare", *tiny)
    said = harness.submit(*tiny, "seed=range(1,201)", "resources.cells_per_job=50")
    assert "200 cells in 4 jobs" in said
    assert harness.seconds < 10 + 0.05 * 200
    harness.wait_for(range(1, 201), 280)
    assert set(harness.statuses().values()) == {"done"} and len(harness.records()) == 200
    assert harness.counts() == {"done": 200}


def test_what_cannot_run_is_refused_before_it_waits_in_a_queue(cluster: Cluster, tmp_path: Path):
    harness = Harness(cluster, tmp_path)
    said = harness.submit("model=local", *CELL, status=2)
    assert "manifest.json: " in said and "; run: python run.py do=prepare -m model=local" in said
    harness.run("do=prepare", "model=local", *CELL)
    said = harness.submit("model=local,linformer", "task.pattern=causal_self", *CELL, status=2)
    assert "refused: 1 x linformer" in said and "submitted: 1 cells" in said
    said = harness.submit("model=local", *CELL, "seed=2", "cluster.partition=nowhere", status=2)
    assert "sbatch refused" in said and "invalid partition" in said
    said = harness.submit("model=local", *CELL, "seed=2", "trainer.devices=2", status=2)
    assert "resources.devices" in said
