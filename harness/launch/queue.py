"""What a scheduler says of jobs, and what a cell's folder says of the job that it was last submitted in."""

import contextlib
import json
import socket
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

from harness.records.atomic import write_atomic

FILE = "job.json"
SLURM, LOCAL = "slurm", "local"


@dataclass(frozen=True)
class Submission:
    """`job`: SLURM's id (`12_3` in an array), or the process that runs it on `host`."""

    scheduler: str  # SLURM or LOCAL
    job: str
    log: str
    host: str
    time: float  # time.time() before it was submitted

    def write(self, folder: Path) -> None:
        write_atomic(folder / FILE, json.dumps(asdict(self)))

    @property
    def last_lines(self) -> Sequence[str]:
        """What the job said last."""
        with contextlib.suppress(OSError):
            return Path(self.log).read_text(encoding="utf-8", errors="replace").splitlines()[-3:]
        return ()


def submission(folder: Path) -> Submission | None:
    """The last one of a cell's folder."""
    with contextlib.suppress(OSError, ValueError, TypeError):
        return Submission(**json.loads((folder / FILE).read_text(encoding="utf-8")))
    return None


class Queue:
    """Asks SLURM once, when it must."""

    def state(self, submitted: Submission) -> str | None:
        """SLURM's word for the job's state (PENDING, RUNNING, ...); GONE; None if nobody here can tell."""
        if submitted.scheduler == SLURM:
            return None if self._slurm is None else self._slurm.get(submitted.job, GONE)
        if submitted.host != socket.gethostname():
            return None
        try:
            command = Path(f"/proc/{submitted.job}/cmdline").read_bytes()  # empty for one that only waits to be reaped
        except OSError:
            return GONE
        return "RUNNING" if b"submitit" in command else GONE  # numbers are used again

    @cached_property
    def _slurm(self) -> dict[str, str] | None:
        try:
            asked = subprocess.run(
                ["squeue", "--noheader", "--array", "--format=%i|%T"], capture_output=True, text=True, timeout=30
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        if asked.returncode:
            return None
        return dict(line.split("|", 1) for line in asked.stdout.splitlines() if "|" in line)


GONE = "GONE"
