"""What the private SLURM requires of the host: its processes, free ports, packages and node names."""

import contextlib
import fcntl
import os
import random
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import gettempdir
from typing import NamedTuple

HOSTS = Path("/etc/hosts")
PACKAGES = ("slurmctld", "slurmd", "slurm-client", "munge")
PROGRAMS = ("munged", "slurmctld", "slurmd", "squeue")


class Process(NamedTuple):
    pid: int
    parent: int
    name: str
    environment: frozenset[str]


def processes() -> Iterator[Process]:
    """All that run on this host. Not the dead that nobody reaped: a container's PID 1 may never do so."""
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            head, _, tail = (entry / "stat").read_text(errors="replace").rpartition(")")
            state, parent = tail.split()[:2]
            if state not in "ZX":
                environment = (entry / "environ").read_text(errors="replace").split("\0")
                yield Process(int(entry.name), int(parent), head.partition("(")[2], frozenset(environment))


def with_descendants(roots: list[Process]) -> list[Process]:
    """The roots first, in their order."""
    everything = list(processes())
    tree = {process.pid: process for process in roots}
    pending = list(tree)
    while pending:
        parent = pending.pop()
        children = {process.pid: process for process in everything if process.parent == parent}
        pending += children.keys() - tree.keys()
        tree |= children
    return list(tree.values())


def free_ports(count: int) -> list[int]:
    """Below the range from which the kernel takes the ports of outgoing connections."""
    ports: set[int] = set()
    while len(ports) < count:
        port = random.SystemRandom().randrange(20000, 32000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("", port))
            ports.add(port)
    return sorted(ports)


def search_path() -> str:
    return f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/bin:/sbin:/bin"


def missing() -> list[str]:
    return [name for name in PROGRAMS if shutil.which(name, path=search_path()) is None]


def why_not() -> str:
    """Why this host cannot run a cluster, in one line; empty if it can, be it by an installation."""
    if os.geteuid() != 0:
        return "SLURM's daemons must run as root here"
    if missing() and not (Path("/etc/debian_version").exists() and shutil.which("apt-get")):
        return f"no {', '.join(missing())}, and no apt-get to install {' '.join(PACKAGES)}"
    return ""


def install_missing() -> None:
    """Under a lock of our own, since apt does not wait for everything that another apt holds."""
    with open(f"{gettempdir()}/longhaul-slurm-install.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not missing():
            return
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "PATH": search_path()}
        for arguments in (["update"], ["install", "-y", "--no-install-recommends", *PACKAGES]):
            done = subprocess.run(["apt-get", "-qq", *arguments], env=environment, capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(f"apt-get {arguments[0]} failed: {(done.stderr or done.stdout).strip()[-500:]}")


def name_hosts(lines: list[str], owner: str) -> None:
    """Makes these the lines of /etc/hosts that belong to `owner`.

    In place, since a container's /etc/hosts cannot be replaced; under a lock, since another cluster may write too.
    """
    mark = f" # longhaul-slurm {owner}"
    with HOSTS.open("r+") as hosts:
        fcntl.flock(hosts, fcntl.LOCK_EX)
        old = hosts.read().splitlines()
        new = [line for line in old if not line.endswith(mark)] + [line + mark for line in lines]
        if new != old:
            hosts.seek(0)
            hosts.write("".join(f"{line}\n" for line in new))
            hosts.truncate()
