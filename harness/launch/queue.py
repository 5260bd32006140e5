"""The state of a job in SLURM's queue or on this machine, and the last job of a cell."""

import contextlib
import json
import socket
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

from harness.records.files import write_atomic
from harness.records.ownership import MAX_BYTES
from harness.records.provenance import command_output
from harness.records.run_directory import JOB
from tasks.regular_files import read_json

SLURM, LOCAL = "slurm", "local"
GONE = "GONE"  # the state of a job that has left the queue


@dataclass(frozen=True)
class Submission:
    """`job`: SLURM's id (`12_3` in an array), or the id of the process that runs it on `host`."""

    scheduler: str  # SLURM or LOCAL
    job: str
    log: str
    host: str
    time: float  # time.time() before it was submitted

    def write(self, run_folder: Path) -> None:
        # not durable: flushing 500 files takes seconds, and without its file a job that is submitted twice trains once
        write_atomic(run_folder / JOB, json.dumps(asdict(self)), durable=False)


def read_submission(run_folder: Path) -> Submission | None:
    """The last submission of the cell with this run folder."""
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError, OverflowError):
        job = read_json(run_folder / JOB, MAX_BYTES)
        words = {name: str(job[name]) for name in ("scheduler", "job", "log", "host")}
        return Submission(**words, time=float(job["time"]))
    return None


class Queue:
    """The jobs of SLURM and of this machine. `squeue` is called at most once."""

    def state(self, submission: Submission) -> str | None:
        """SLURM's name of the job's state (PENDING, RUNNING, ...); GONE; None if this machine cannot tell."""
        if submission.scheduler == SLURM:
            return None if self._slurm_states is None else self._slurm_states.get(submission.job, GONE)
        if submission.host != socket.gethostname():
            return None
        if not submission.job.isdecimal():
            return GONE
        process = Path(f"/proc/{submission.job}")
        try:
            command = (process / "cmdline").read_bytes()
            if not command:  # a zombie, which has no program, or a process right after exec
                (process / "exe").readlink()
                return "RUNNING"
        except OSError:
            return GONE
        return "RUNNING" if b"submitit" in command else GONE  # another process may have got the id

    @cached_property
    def _slurm_states(self) -> dict[str, str] | None:
        """{job id: state}; None if squeue is missing, fails or does not answer."""
        lines = command_output("squeue", "--noheader", "--array", "--format=%i|%T")
        return None if lines is None else dict(line.split("|", 1) for line in lines.splitlines() if "|" in line)
