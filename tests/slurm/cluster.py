"""A private SLURM on this one host, for the tests that need a real queue.

Every node is a slurmd of its own on the loopback interface; configuration, key, sockets and logs lie under one folder,
so that several clusters, and a system's own SLURM, can run side by side.

    python tests/slurm/cluster.py up [root]      # start, print what a shell must export
    python tests/slurm/cluster.py down [root]    # cancel, stop, remove
"""

import atexit
import contextlib
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import gettempdir
from typing import Self, TypeVar

from this_host import (
    Process,
    free_ports,
    install_missing,
    name_hosts,
    processes,
    search_path,
    why_not,
    with_descendants,
)

T = TypeVar("T")

HERE = Path(__file__).resolve().parent


class ClusterError(RuntimeError):
    """The cluster could not do what was asked; where it can, the message quotes the logs."""


class Cluster:
    """Nodes n1, n2, ... under `root`.

    `node_timeout_s` is how long SLURM itself takes to miss a dead node: long, so that a test sees what happens before.
    `grace_s` is what a job of the partition `preemptible` has to leave when one of `main` wants its node.
    """

    def __init__(
        self, root: Path, nodes: int = 4, cpus: int = 1, *, node_timeout_s: int = 300, grace_s: int = 10
    ) -> None:
        self.root = Path(root).resolve()
        self.names = [f"n{i + 1}" for i in range(nodes)]
        self.cpus = cpus
        self.settings = {"node_timeout_s": node_timeout_s, "grace_s": grace_s}
        self._children: list[subprocess.Popen[bytes]] = []
        self._owner = 0

    @property
    def env(self) -> dict[str, str]:
        """What a client sets on top of its own environment."""
        return {"SLURM_CONF": f"{self.root}/slurm.conf", "PATH": f"{self.root}/bin:{search_path()}"}

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, *, outlive: bool = False) -> Self:
        """Returns once all nodes are idle. `outlive`: the cluster stays when this process ends."""
        # a unix socket's path has 107 characters at most
        if len(str(self.root)) > 60:
            raise ClusterError(f"{self.root}: more than 60 characters leave too few for the sockets below it")
        if self._ours("munged", "slurmctld", "slurmd"):
            raise ClusterError(f"a cluster already runs under {self.root}: stop it first")
        if reason := why_not():
            raise ClusterError(reason)
        install_missing()
        self._owner = os.getpid()
        if not outlive:
            atexit.register(self._stop_at_exit)
        try:
            self._write_files()
            # a job's tasks find each other by the name of their first node
            name_hosts([f"127.0.0.1 {' '.join(self.names)}"], owner=str(self.root))
            files = {"key-file": "munge.key", "socket": "munge.socket", "pid-file": "munged.pid", "seed-file": "seed"}
            options = [f"--{option}={self.root / name}" for option, name in files.items()]
            # --force: munged declines to run as root
            self._spawn("munged", "--foreground", "--force", *options)
            self.wait_until((self.root / "munge.socket").exists, 10, "munged")
            self._spawn("slurmctld", "-D", "-c")
            self.wait_until(lambda: "UP" in self.run("scontrol", "ping", check=False), 20, "slurmctld")
            for name in self.names:
                self._spawn_node(name)
            self.wait_until(self._all_idle, 30, "idle nodes")
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Also stops what another process started under the same root."""
        atexit.unregister(self._stop_at_exit)
        if self._ours("slurmctld"):
            with contextlib.suppress(ClusterError, subprocess.TimeoutExpired):
                self.run("scancel", "--user=root", timeout=5)
            self._poll(lambda: not self._ours("slurmstepd"), 3)
        for spool in self.root.glob("spool/*"):
            self.kill_node(spool.name)
        for daemon in ("slurmctld", "slurmscriptd", "munged"):
            self._end(lambda daemon=daemon: self._ours(daemon), gently=True)
        name_hosts([], owner=str(self.root))

    def kill_node(self, name: str) -> None:
        """Simulates a power failure of the node: no process on it survives to report anything.

        SLURM still counts its jobs as running until `node_timeout_s` is over, or until `notice_death` or `start_node`.
        """
        # a slurmstepd that outlived its job for a moment would report the job's end
        order = {"slurmd": 0, "slurmstepd": 1}
        self._end(
            lambda: with_descendants(sorted(self._ours(node=name), key=lambda process: order.get(process.name, 2))),
            gently=False,
        )

    def notice_death(self, name: str) -> None:
        """SLURM learns at once that the node is down, and requeues its jobs."""
        self.run("scontrol", "update", f"NodeName={name}", "State=DOWN", "Reason=killed")

    def start_node(self, name: str) -> None:
        """A killed node boots again; SLURM requeues the jobs that it counted as running there."""
        if self._ours("slurmd", node=name):
            raise ClusterError(f"{name} runs already")
        # a slurmd that comes back by itself is not asked about its youngest jobs, which then "run" for minutes
        self.notice_death(name)
        self._spawn_node(name)
        self.wait_until(lambda: self.nodes()[name] == "idle", 20, f"{name} to come back")

    def drain(self, timeout: float = 30) -> None:
        """The cluster as it was at the start: every job cancelled, killed nodes back, all idle."""
        self.run("scancel", "--user=root")
        for name in self.names:
            if not self._ours("slurmd", node=name):
                self.start_node(name)
        self.wait_until(lambda: not self.live() and self._all_idle(), timeout, "an empty queue")

    def run(self, *command: str, timeout: float = 60, check: bool = True) -> str:
        """A client command's standard output; ClusterError with its standard error if it fails."""
        done = subprocess.run(command, env=self._environment(), capture_output=True, text=True, timeout=timeout)
        if check and done.returncode:
            raise ClusterError(f"{shlex.join(command)}: exit {done.returncode}: {done.stderr.strip()}")
        return done.stdout.strip()

    def submit(self, script: str, *options: str) -> str:
        """Job id of a shell script, given as text; its output goes to jobs/<id>.log below the root."""
        places = ("--chdir=/tmp", f"--output={self.root}/jobs/%j.log")
        return self.run("sbatch", "--parsable", *places, *options, "--wrap", script)

    def queue(self) -> dict[str, str]:
        """State of every job since the start, the finished too; an array's tasks one by one ("12_3")."""
        return self._table("squeue", "--array", "--states=all", "--format=%i|%T")

    def live(self) -> dict[str, str]:
        """Jobs that run, will run, or still hold their node."""
        return self._table("squeue", "--array", "--format=%i|%T")

    def placement(self) -> dict[str, str]:
        """Node (or nodes, "n[1-2]") of every job that SLURM counts as running."""
        return self._table("squeue", "--array", "--states=running", "--format=%i|%N")

    def nodes(self) -> dict[str, str]:
        return self._table("sinfo", "--Node", "--format=%N|%T")

    def wait_until(self, predicate: Callable[[], T], timeout: float = 60, awaited: str = "the condition") -> T:
        """The predicate's first true answer; ClusterError with the queue and the logs' tails if none comes."""
        if answer := self._poll(predicate, timeout):
            return answer
        queue = self.run("squeue", "--states=all", check=False) if self._ours("slurmctld") else ""
        raise ClusterError(f"waited {timeout} s for {awaited}\n{queue}\n{self.logs()}")

    def logs(self, lines: int = 15) -> str:
        tails = {path.name: path.read_text(errors="replace").splitlines() for path in self.root.glob("log/*")}
        return "\n".join("\n".join([f"--- {name}", *tails[name][-lines:]]) for name in sorted(tails))

    @staticmethod
    def _poll(predicate: Callable[[], T], timeout: float) -> T:
        end = time.monotonic() + timeout
        while not (answer := predicate()) and time.monotonic() < end:
            time.sleep(0.1)
        return answer

    def _table(self, *command: str) -> dict[str, str]:
        return dict(line.strip().split("|", 1) for line in self.run(*command, "--noheader").splitlines())

    def _all_idle(self) -> bool:
        return self.nodes() == dict.fromkeys(self.names, "idle")

    def _environment(self) -> dict[str, str]:
        """The environment, without variables of a job that this process may itself be part of."""
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM", "SBATCH", "SRUN"))}
        return inherited | self.env

    def _ours(self, *names: str, node: str = "") -> list[Process]:
        marks = {f"SLURM_CONF={self.env['SLURM_CONF']}"} | ({f"SLURMD_NODENAME={node}"} if node else set())
        return [
            process for process in processes() if marks <= process.environment and (not names or process.name in names)
        ]

    def _end(self, victims: Callable[[], list[Process]], *, gently: bool) -> None:
        """Asks again until no process is left: a process may fork during the search."""
        patience = time.monotonic() + 5
        while (living := victims()) and time.monotonic() < patience + 10:
            for process in living:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGTERM if gently and time.monotonic() < patience else signal.SIGKILL)
            time.sleep(0.05)
        self._children = [child for child in self._children if child.poll() is None]

    def _spawn_node(self, name: str) -> None:
        # a slurmstepd takes over its slurmd's environment, and a job gets this very variable from SLURM
        self._spawn("slurmd", "-D", "-b", "-N", name, SLURMD_NODENAME=name)

    def _spawn(self, *command: str, **environment: str) -> None:
        """In the foreground, as a child that can be reaped, but out of reach of the terminal's Ctrl-C."""
        env = self._environment() | environment
        with open(self.root / "log" / f"{command[0]}.stderr", "ab") as log:
            streams = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
            self._children.append(subprocess.Popen(command, env=env, cwd=self.root, start_new_session=True, **streams))

    def _write_files(self) -> None:
        for folder in ("bin", "jobs", "log", "state", *(f"spool/{name}" for name in self.names)):
            (self.root / folder).mkdir(parents=True, exist_ok=True)
        host = socket.gethostname().partition(".")[0]
        controller_port, *ports = free_ports(1 + len(self.names))
        # 4 TB: a request for more than a node has is refused at once
        node_lines = "\n".join(
            f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={self.cpus} RealMemory=4000000"
            for name, port in zip(self.names, ports, strict=True)
        )
        values = self.settings | {"host": host, "root": self.root, "node_lines": node_lines}
        template = (HERE / "slurm.conf.in").read_text()
        (self.root / "slurm.conf").write_text(template.format(controller_port=controller_port, **values))
        shutil.copyfile(HERE / "sacct", self.root / "bin" / "sacct")
        (self.root / "bin" / "sacct").chmod(0o755)
        key = self.root / "munge.key"
        key.touch(0o600)
        key.write_bytes(os.urandom(1024))

    def _stop_at_exit(self) -> None:
        if os.getpid() == self._owner:
            self.stop()


def main(arguments: list[str]) -> str | int:
    if not arguments or arguments[0] not in ("up", "down") or len(arguments) > 2:
        return "usage: cluster.py up|down [root]"
    cluster = Cluster(Path(arguments[1] if len(arguments) == 2 else f"{gettempdir()}/longhaul-slurm"))
    if arguments[0] == "down":
        if not (cluster.root / "slurm.conf").exists():
            return f"no cluster under {cluster.root}"
        cluster.stop()
        shutil.rmtree(cluster.root, ignore_errors=True)
        return 0
    if cluster.root.exists():
        return f"{cluster.root} exists: `down` would remove what is in it"
    try:
        cluster.start(outlive=True)
    except ClusterError as error:
        return str(error)
    print("\n".join(f"export {key}={shlex.quote(value)}" for key, value in cluster.env.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
