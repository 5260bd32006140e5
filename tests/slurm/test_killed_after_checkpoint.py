"""A job that is killed without a signal, and one of the user's own script that runs out of time: the same bits."""

import json
import os
import shlex
import signal
import sys
from pathlib import Path

import pytest
from cluster import Cluster
from harness_on import HERE, ROOT, SAME, Harness

from tests.helpers.places import below

pytestmark = [pytest.mark.slurm, pytest.mark.usefixtures("empty_queue")]

CELL = ["task=lra/listops", "budget=smoke", "resources=cpu1", "seed=1", "train.max_steps=60", "train.eval_every=20"]


def test_a_killed_job_goes_on_from_its_checkpoint(cluster: Cluster, tmp_path: Path):
    harness, release = Harness(cluster, tmp_path), tmp_path / "release"
    odd = ["model=custom", "model.name=odd", "model._target_=odd_models.Odd", "trusted_packages=[odd_models]"]
    cell = [*odd, f"+model.until={release}", "+model.slow=[1]", *CELL, "checkpoint.every_steps=3"]
    harness.run("do=prepare", *cell)
    harness.submit(*cell)
    cluster.wait_until(lambda: harness.beat(1).get("step", 0) > 5, 90, "a checkpoint and an update after it")
    (last,) = harness.run_folder(1).glob("checkpoints/last.ckpt")
    job, written = harness.job(1), last.stat().st_mtime_ns
    os.kill(harness.beat(1)["pid"], signal.SIGKILL)
    cluster.wait_until(lambda: cluster.queue()[job] == "FAILED", 60, "the job to end")
    assert not harness.records() and harness.states() == {1: "dead"} and last.stat().st_mtime_ns >= written

    release.touch()
    assert "submitted: 1 cells" in harness.submit(*cell)
    harness.wait_for([1], 120)
    parts = harness.record(1)
    assert parts["status"] == "done" and parts["resumes"] == 1 and parts["changed_at_resume"] == []
    assert "resumed at step" in harness.log(1)

    apart = [f"paths.{name}={tmp_path / 'whole' / name}" for name in ("outputs", "records")]
    harness.run(*cell, *apart)
    (path,) = (tmp_path / "whole").rglob("*-s1-*.json")
    whole = json.loads(path.read_text())
    assert {key: whole[key] for key in SAME} == {key: parts[key] for key in SAME}
    assert whole["resumes"] == 0 and whole["tested_weights_sha256"] == parts["tested_weights_sha256"]


@pytest.mark.parametrize("start", ["", "srun --export=ALL "])
def test_a_script_of_ones_own_saves_before_its_limit_and_is_queued_again(cluster: Cluster, tmp_path: Path, start: str):
    """`python run.py` in an sbatch script without --signal, which would reach only what srun starts."""
    harness, release = Harness(cluster, tmp_path), tmp_path / "release"
    odd = ["model=custom", "model.name=odd", "model._target_=odd_models.Odd", "trusted_packages=[odd_models]"]
    cell = [*odd, f"+model.until={release}", "+model.slow=[1]", *CELL, "checkpoint.every_steps=3"]
    harness.run("do=prepare", *cell)
    words = [*cell, "cluster.requeue=true", "cluster.signal_s=40", *below(tmp_path)]
    command = shlex.join([sys.executable, str(ROOT / "run.py"), *words])
    script = f"export OMP_NUM_THREADS=1 PYTHONPATH={HERE}; {start}{command}"
    job = cluster.submit(script, "--time=1", "--requeue", "--export=NONE")
    cluster.wait_until(lambda: harness.beat(1).get("state") == "timeout", 120, "the job to run out of time")
    release.touch()
    cluster.wait_until(harness.records, 300, "the job to end in its second run")
    record = harness.record(1)
    assert record["status"] == "done" and record["resumes"] == 1
    cluster.wait_until(lambda: cluster.queue()[job] == "COMPLETED", 60, "the job to end")
