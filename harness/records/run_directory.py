"""The folder of one run: who works in it, how far it is, what it said. All of it is derived; the record is the truth.

owner            held (flock) by the process that runs the cell; the kernel lets go when that process dies
heartbeat.json   state, step, host, pid; rewritten every few seconds as long as that process lives
job.json         the job that the cell was last submitted in
metrics.csv      one row per evaluation
log.txt          the plain progress lines
error.txt        traceback of a failure
.hydra/          config.yaml (resolved) and overrides.yaml
checkpoints/     last.ckpt (everything), best.pt (weights)
"""

import csv
import errno
import fcntl
import json
import os
import shutil
import socket
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from harness.records.atomic import remove_temporaries, write_atomic

BEAT_S = 5.0
DEAD_AFTER_S = 60.0


class RunDirectory:
    def __init__(self, path: Path):
        self.path = path
        self.checkpoints = path / "checkpoints"
        self.last, self.best = self.checkpoints / "last.ckpt", self.checkpoints / "best.pt"
        self.metrics, self.log, self.error = path / "metrics.csv", path / "log.txt", path / "error.txt"
        self._lock: int | None = None
        self._beat: dict[str, Any] | None = None  # the last one
        self._beaten = 0.0
        self._writing = threading.Lock()
        self._released = threading.Event()

    def claim(self) -> bool:
        """Become the one process that works here; False if another one does."""
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        handle = os.open(self.path / "owner", os.O_RDWR | os.O_CREAT, 0o644)
        if not _lock(handle):
            os.close(handle)
            return False
        beat = heartbeat(self.path)
        if beat and beat["host"] != socket.gethostname() and beat["state"] not in ENDED and beat["alive"]:
            os.close(handle)  # some file systems keep locks to one node
            return False
        remove_temporaries(self.checkpoints)
        self._lock, self._beat = handle, None
        self._released.clear()
        threading.Thread(target=self._pulse, daemon=True).start()
        return True

    def release(self) -> None:
        if self._lock is not None:
            self._released.set()
            with self._writing:
                os.close(self._lock)
                self._lock = None

    def _pulse(self) -> None:
        """Beat while nothing else does: an evaluation may take longer than a run may be silent before it is dead."""
        while not self._released.wait(BEAT_S):
            with self._writing:
                at_work = self._beat is not None and self._beat["state"] not in ENDED
                if at_work and self._lock is not None and not self._released.is_set():
                    self._write_beat()

    def clear(self) -> None:
        """Forget an earlier attempt (the owner's file stays: it is held)."""
        for path in (self.metrics, self.log, self.error, self.path / "heartbeat.json"):
            path.unlink(missing_ok=True)
        shutil.rmtree(self.checkpoints, ignore_errors=True)
        self.checkpoints.mkdir(parents=True)

    def describe(self, config: dict[str, Any] | DictConfig, overrides: Sequence[str]) -> None:
        folder = self.path / ".hydra"
        folder.mkdir(exist_ok=True)
        write_atomic(folder / "config.yaml", OmegaConf.to_yaml(config), durable=False)
        write_atomic(folder / "overrides.yaml", OmegaConf.to_yaml(list(overrides)), durable=False)

    def beat(self, state: str, *, step: int, steps: int, force: bool = False) -> None:
        """Say how far the run is; only its owner does."""
        if self._lock is None or (not force and time.time() - self._beaten < BEAT_S):
            return
        self._beaten = time.time()
        with self._writing:
            self._beat = {
                "state": state, "step": step, "steps": steps, "host": socket.gethostname(), "pid": os.getpid(),
            }  # fmt: skip
            self._write_beat()

    def _write_beat(self) -> None:
        write_atomic(self.path / "heartbeat.json", json.dumps(self._beat | {"time": time.time()}), durable=False)

    def note(self, line: str) -> None:
        with self.log.open("a", encoding="utf-8") as log:
            log.write(line + "\n")

    def add_metrics(self, row: dict[str, Any]) -> None:
        new = not self.metrics.exists()
        with self.metrics.open("a", newline="", encoding="utf-8") as table:
            writer = csv.DictWriter(table, fieldnames=list(row))
            if new:
                writer.writeheader()
            writer.writerow(row)

    def keep_metrics_until(self, step: int) -> None:
        """Drop the rows that a resumed run is about to write again."""
        if not self.metrics.exists():
            return
        text = self.metrics.read_text(encoding="utf-8")
        header, *rows = text[: text.rfind("\n") + 1].splitlines()  # a kill may have cut the last line short
        kept = [row for row in rows if int(row.split(",")[0]) <= step]
        write_atomic(self.metrics, "\n".join([header, *kept]) + "\n")


ENDED = ("interrupted", "timeout", "preempted", "refused", "done", "failed", "oom", "nan")


def heartbeat(path: Path) -> dict[str, Any] | None:
    """Last heartbeat of a run folder, with `alive`: fresh, or its process still there on this host."""
    try:
        beat = json.loads((path / "heartbeat.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    beat["age_s"] = max(0.0, time.time() - beat["time"])
    if beat["host"] == socket.gethostname():
        beat["alive"] = _held(path / "owner")
    else:
        beat["alive"] = beat["age_s"] < DEAD_AFTER_S
    return beat


def _held(owner: Path) -> bool:
    try:
        handle = os.open(owner, os.O_RDWR)
    except OSError:
        return False
    try:
        return not _lock(handle)
    finally:
        os.close(handle)


def _lock(handle: int) -> bool:
    """False if another process has it. A file system without locks gives it to everyone: heartbeats must do there."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in (errno.EWOULDBLOCK, errno.EACCES)
    return True
