"""The directory of one run. All of it can be lost without losing a result: the record holds the results.

owner            locked (flock) by the process that runs the cell; the kernel unlocks it when that process dies
heartbeat.json   state, step, host, pid; rewritten every few seconds while that process lives
job.json         the job that the cell was last submitted in
metrics.csv      one row per evaluation
log.txt          the progress lines
error.txt        traceback of a failure
.hydra/          config.yaml (resolved) and overrides.yaml
checkpoints/     last.ckpt (model, optimizer and loop), best.pt (weights), step-<n>.pt (weights to average)
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

HEARTBEAT_INTERVAL_S = 5.0
DEAD_AFTER_S = 60.0  # without a heartbeat, where the lock of another host cannot be seen
ENDED_STATES = ("interrupted", "timeout", "preempted", "refused", "done", "failed", "oom", "nan")


class RunDirectory:
    """One process acquires the directory and writes to it; others read its heartbeat."""

    def __init__(self, path: Path):
        self.path = path
        self.checkpoints = path / "checkpoints"
        self.last, self.best = self.checkpoints / "last.ckpt", self.checkpoints / "best.pt"
        self.metrics, self.log, self.error = path / "metrics.csv", path / "log.txt", path / "error.txt"
        self._lock: int | None = None  # file descriptor of `owner`
        self._heartbeat: dict[str, Any] | None = None  # the last one written
        self._heartbeat_time = 0.0
        self._writing = threading.Lock()
        self._released = threading.Event()

    def acquire(self) -> bool:
        """Become the one process that runs here; False if another one does."""
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path / "owner", os.O_RDWR | os.O_CREAT, 0o644)
        if not _try_lock(descriptor):
            os.close(descriptor)
            return False
        last = read_heartbeat(self.path)
        if last and last["host"] != socket.gethostname() and last["state"] not in ENDED_STATES and last["alive"]:
            os.close(descriptor)  # some file systems keep locks to one node
            return False
        remove_temporaries(self.checkpoints)
        self._lock, self._heartbeat = descriptor, None
        self._released.clear()
        threading.Thread(target=self._repeat_heartbeat, daemon=True).start()
        return True

    def release(self) -> None:
        if self._lock is not None:
            self._released.set()
            with self._writing:
                os.close(self._lock)
                self._lock = None

    def clear(self) -> None:
        """Delete what an earlier attempt left, except the file `owner`, which is locked."""
        for path in (self.metrics, self.log, self.error, self.path / "heartbeat.json"):
            path.unlink(missing_ok=True)
        shutil.rmtree(self.checkpoints, ignore_errors=True)
        self.checkpoints.mkdir(parents=True)

    def write_config(self, config: dict[str, Any] | DictConfig, overrides: Sequence[str]) -> None:
        write_atomic(self.path / ".hydra" / "config.yaml", OmegaConf.to_yaml(config), durable=False)
        write_atomic(self.path / ".hydra" / "overrides.yaml", OmegaConf.to_yaml(list(overrides)), durable=False)

    def write_heartbeat(self, state: str, *, step: int, steps: int, force: bool = False) -> None:
        """Record the state and the step of `steps`, at most every few seconds unless `force`.

        Does nothing in a process that has not acquired the directory.
        """
        if self._lock is None or (not force and time.time() - self._heartbeat_time < HEARTBEAT_INTERVAL_S):
            return
        self._heartbeat_time = time.time()
        with self._writing:
            self._heartbeat = {
                "state": state, "step": step, "steps": steps, "host": socket.gethostname(), "pid": os.getpid(),
            }  # fmt: skip
            self._write_heartbeat()

    def _write_heartbeat(self) -> None:
        text = json.dumps(self._heartbeat | {"time": time.time()})
        write_atomic(self.path / "heartbeat.json", text, durable=False)

    def _repeat_heartbeat(self) -> None:
        """Keep the heartbeat fresh while nothing else writes it: an evaluation may take longer than DEAD_AFTER_S."""
        while not self._released.wait(HEARTBEAT_INTERVAL_S):
            with self._writing:
                running = self._heartbeat is not None and self._heartbeat["state"] not in ENDED_STATES
                if running and self._lock is not None and not self._released.is_set():
                    self._write_heartbeat()

    def append_log(self, line: str) -> None:
        with self.log.open("a", encoding="utf-8") as log:
            log.write(line + "\n")

    def append_metrics(self, row: dict[str, Any]) -> None:
        new = not self.metrics.exists()
        with self.metrics.open("a", newline="", encoding="utf-8") as table:
            writer = csv.DictWriter(table, fieldnames=list(row))
            if new:
                writer.writeheader()
            writer.writerow(row)

    def drop_metrics_after(self, step: int) -> None:
        """Drop the rows that a resumed run is about to write again."""
        if not self.metrics.exists():
            return
        text = self.metrics.read_text(encoding="utf-8")
        header, *rows = text[: text.rfind("\n") + 1].splitlines()  # a kill may have cut the last line short
        kept = [row for row in rows if int(row.split(",")[0]) <= step]
        write_atomic(self.metrics, "\n".join([header, *kept]) + "\n")


def read_heartbeat(path: Path) -> dict[str, Any] | None:
    """The last heartbeat of a run directory, None if there is none.

    `age_s` is its age, and `alive` whether its process still runs: on this host by the lock, on another by the age.
    """
    try:
        last = json.loads((path / "heartbeat.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    last["age_s"] = max(0.0, time.time() - last["time"])
    if last["host"] == socket.gethostname():
        last["alive"] = _is_locked(path / "owner")
    else:
        last["alive"] = last["age_s"] < DEAD_AFTER_S
    return last


def _is_locked(owner: Path) -> bool:
    try:
        descriptor = os.open(owner, os.O_RDWR)
    except OSError:
        return False
    try:
        return not _try_lock(descriptor)
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    """False if another process has the lock. True on a file system without locks, where the heartbeat has to do."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in (errno.EWOULDBLOCK, errno.EACCES)
    return True
