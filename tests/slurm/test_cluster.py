"""The private SLURM itself: what the tests of sweeps on it take for granted and would not show."""

import shutil
import socket
from pathlib import Path

import pytest
from cluster import Cluster, ClusterError
from this_host import HOSTS, processes

pytestmark = [pytest.mark.slurm, pytest.mark.usefixtures("empty_queue")]


def alive(pid: int) -> bool:
    return any(process.pid == pid for process in processes())


def number_in(path: Path) -> int:
    return int(path.read_text() or 0) if path.exists() else 0


def test_four_idle_nodes_that_resolve(cluster: Cluster):
    assert cluster.nodes() == {"n1": "idle", "n2": "idle", "n3": "idle", "n4": "idle"}
    assert {socket.gethostbyname(name) for name in cluster.names} == {"127.0.0.1"}


def test_a_job_writes_a_file_and_sacct_knows_it(cluster: Cluster, tmp_path: Path):
    job = cluster.submit(f"echo $SLURM_JOB_ID > {tmp_path}/id")
    cluster.wait_until(lambda: cluster.queue()[job] == "COMPLETED", 10)
    assert (tmp_path / "id").read_text().strip() == job
    asked = cluster.run("sacct", "-o", "JobID,State,NodeList", "--parsable2", "-j", job, "-j", "999999")
    assert asked.splitlines() == ["JobID|State|NodeList", f"{job}|COMPLETED|n1"]


def test_kill_node_ends_what_runs_there_and_nothing_else(cluster: Cluster, tmp_path: Path):
    # a child, a child in a session of its own, and an orphan: power loss spares none
    script = (
        f"cd {tmp_path}; echo $$ > $SLURMD_NODENAME.script; sleep 60 & echo $! > $SLURMD_NODENAME.child;"
        " (setsid sh -c 'echo $$ > $SLURMD_NODENAME.orphan; exec sleep 60' &); wait"
    )
    jobs = [cluster.submit(script), cluster.submit(script)]
    pids = cluster.wait_until(
        lambda: (
            (started := {path.name: number_in(path) for path in tmp_path.iterdir()})
            and len(started) == 6
            and all(started.values())
            and started
        ),
        10,
    )
    dead, spared = (cluster.placement()[job] for job in jobs)
    assert all(alive(pid) for pid in pids.values())

    cluster.kill_node(dead)

    assert {name: alive(pid) for name, pid in pids.items()} == {name: name.startswith(spared) for name in pids}
    assert [cluster.queue()[job] for job in jobs] == ["RUNNING", "RUNNING"], "SLURM must not have noticed"

    cluster.start_node(dead)
    assert [cluster.queue()[job] for job in jobs] == ["PENDING", "RUNNING"], "SLURM must have requeued the dead job"


def test_stop_leaves_nothing_even_of_a_stubborn_job(cluster: Cluster, short_root: Path, tmp_path: Path):
    pid_file = tmp_path / "pid"
    with Cluster(short_root / "b", nodes=1) as second:
        second.submit(f"trap '' TERM; echo $$ > {pid_file}; while :; do sleep 1; done")
        second.wait_until(lambda: number_in(pid_file), 10)
        with pytest.raises(ClusterError, match="already runs"):
            Cluster(second.root).start()
    assert not alive(number_in(pid_file))
    assert [process for process in processes() if f"SLURM_CONF={second.root}/slurm.conf" in process.environment] == []
    assert str(second.root) not in HOSTS.read_text()
    shutil.rmtree(second.root)
    assert cluster.nodes().keys() == {"n1", "n2", "n3", "n4"}
