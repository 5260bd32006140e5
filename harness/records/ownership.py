"""The process that owns a run directory, and its sign of life.

owner            locked (flock) by the process that runs the cell, with a token of that process; the kernel unlocks it
                 when the process dies
heartbeat.json   state, step, host, pid; rewritten every few seconds while that process lives

On some file systems a lock is seen by one node only, and the clocks of hosts differ. So a directory whose last
heartbeat is from another host is taken over once that heartbeat has not changed for a while on our own clock, and an
owner looks for its token before it saves anything.

Package filelock cannot keep these promises: without flock it falls back to a lock file that outlives a killed process
or raises an error, and it gives no access to the locked file, which holds the token.
"""

import contextlib
import errno
import fcntl
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.records.files import write_atomic
from tasks.regular_files import read_json, read_text

HEARTBEAT_INTERVAL_S = 5.0
DEAD_AFTER_S = 60.0  # without a heartbeat, where the lock of another host cannot be seen
ENDED_STATES = ("interrupted", "timeout", "preempted", "refused", "done", "failed", "oom", "nan")
POLL_S = 0.5
OWNER, HEARTBEAT = "owner", "heartbeat.json"
MAX_BYTES = 2**16  # of either file


class OwnershipLostError(Exception):
    """Another process has taken over the directory: nothing more may be written there."""


class Ownership:
    """The ownership of a run directory, by one process at a time."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._lock: int | None = None  # file descriptor of `owner`
        self._token = secrets.token_hex(8)
        self._last: dict[str, Any] | None = None  # the last heartbeat written
        self._last_time = 0.0
        self._writing = threading.Lock()
        self._released = threading.Event()

    def acquire(self, say: Callable[[str], object] = lambda line: None) -> bool:
        """Become the owner; False if another process owns the directory.

        If the last heartbeat is from another host and its run has not ended, it is watched first: the process lives if
        the heartbeat changes within DEAD_AFTER_S.
        """
        owner = self.folder / OWNER
        descriptor = os.open(owner, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        locked = try_lock(descriptor)
        last = read_heartbeat(self.folder)
        if last and last["host"] != socket.gethostname() and last["state"] not in ENDED_STATES:
            say(f"the last heartbeat is from {last['host']}: waiting {DEAD_AFTER_S:.0f} s for another one")
            lives = self._changes(last)
            locked = locked or try_lock(descriptor)
            locked = locked and not lives
        if not locked:
            os.close(descriptor)
            return False
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, self._token.encode(), 0)
        except OSError as error:
            os.close(descriptor)
            error.filename = str(owner)
            raise
        self._lock, self._last = descriptor, None
        self._released.clear()
        threading.Thread(target=self._repeat, daemon=True).start()
        return True

    def _changes(self, last: dict[str, Any]) -> bool:
        """Whether another process writes a heartbeat within DEAD_AFTER_S of this host's clock."""
        until = time.monotonic() + DEAD_AFTER_S
        while time.monotonic() < until:
            time.sleep(min(POLL_S, DEAD_AFTER_S / 4))
            now = read_heartbeat(self.folder)
            if now and now["time"] != last["time"]:
                return now["state"] not in ENDED_STATES
        return False

    def release(self) -> None:
        if self._lock is not None:
            self._released.set()
            with self._writing:
                os.close(self._lock)
                self._lock = None

    def require(self) -> None:
        """Raises OwnershipLostError if another process has taken over the directory, also where locks are not seen.

        Does nothing in a process that has not acquired the directory.
        """
        if self._lock is None:
            return
        try:
            token = read_text(self.folder / OWNER, MAX_BYTES, errors="replace")
        except OSError:
            return  # a user removed the file
        if token and token != self._token:
            raise OwnershipLostError(f"another process has taken over {self.folder}; nothing more was written")

    def beat(self, state: str, *, step: int, steps: int, force: bool = False) -> None:
        """Record the state and the step of `steps`, at most every few seconds unless `force`.

        Does nothing in a process that has not acquired the directory.
        """
        if self._lock is None or (not force and time.time() - self._last_time < HEARTBEAT_INTERVAL_S):
            return
        self._last_time = time.time()
        with self._writing:
            self._last = {"state": state, "step": step, "steps": steps}
            self._last |= {"host": socket.gethostname(), "pid": os.getpid()}
            self._write()

    def _write(self) -> None:
        # a full disk may cost the heartbeat, but not the run
        with contextlib.suppress(OSError):
            text = json.dumps(self._last | {"time": time.time()})
            write_atomic(self.folder / HEARTBEAT, text, durable=False)

    def _repeat(self) -> None:
        """Renew the heartbeat in the background: an evaluation may take longer than DEAD_AFTER_S."""
        while not self._released.wait(HEARTBEAT_INTERVAL_S):
            with self._writing:
                running = self._last is not None and self._last["state"] not in ENDED_STATES
                if running and self._lock is not None and not self._released.is_set():
                    self._write()


def read_heartbeat(folder: Path) -> dict[str, Any] | None:
    """The last heartbeat of a run directory; None without a valid one.

    `age_s` is its age. `alive` tells whether its process still runs: by the lock on this host, else by the age.
    """
    try:
        last = read_json(folder / HEARTBEAT, MAX_BYTES)
        last = {"state": str(last["state"]), "host": str(last["host"])} | {
            key: kind(last[key]) for key, kind in (("step", int), ("steps", int), ("pid", int), ("time", float))
        }
    except (OSError, ValueError, TypeError, KeyError, OverflowError):
        return None
    last["age_s"] = max(0.0, time.time() - last["time"])
    if last["host"] == socket.gethostname():
        last["alive"] = is_locked(folder / OWNER)
    else:
        last["alive"] = last["age_s"] < DEAD_AFTER_S
    return last


def is_locked(owner: Path) -> bool:
    try:
        descriptor = os.open(owner, os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not try_lock(descriptor)
    finally:
        os.close(descriptor)


def try_lock(descriptor: int) -> bool:
    """False if another process has the lock. True on a file system without locks, where the heartbeat decides."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in (errno.EWOULDBLOCK, errno.EACCES)
    return True
