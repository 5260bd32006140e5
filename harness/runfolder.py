"""The folder of one run: who works in it, how far it is, what it said. All of it is derived; the record is the truth.

owner            held (flock) by the process that runs the cell; the kernel lets go when that process dies
heartbeat.json   state, step, host, pid; rewritten every few seconds
metrics.csv      one row per evaluation
log.txt          the plain progress lines
error.txt        traceback of a failure
.hydra/          config.yaml (resolved) and overrides.yaml
checkpoints/     last.ckpt (everything), best.pt (weights)
"""

import csv
import fcntl
import json
import os
import shutil
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

BEAT_S = 5.0
DEAD_AFTER_S = 60.0


class RunFolder:
    def __init__(self, path: Path):
        self.path = path
        self.checkpoints = path / "checkpoints"
        self.last, self.best = self.checkpoints / "last.ckpt", self.checkpoints / "best.pt"
        self.metrics, self.log, self.error = path / "metrics.csv", path / "log.txt", path / "error.txt"
        self._lock: int | None = None
        self._beaten = 0.0

    def claim(self) -> bool:
        """Become the one process that works here; False if another one does."""
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        handle = os.open(self.path / "owner", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            return False
        self._lock = handle
        return True

    def release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def clear(self) -> None:
        """Forget an earlier attempt (the owner's file stays: it is held)."""
        for path in (self.metrics, self.log, self.error, self.path / "heartbeat.json"):
            path.unlink(missing_ok=True)
        shutil.rmtree(self.checkpoints, ignore_errors=True)
        self.checkpoints.mkdir(parents=True)

    def describe(self, config: dict[str, Any] | DictConfig, overrides: Sequence[str]) -> None:
        folder = self.path / ".hydra"
        folder.mkdir(exist_ok=True)
        replace(folder / "config.yaml", OmegaConf.to_yaml(config))
        replace(folder / "overrides.yaml", OmegaConf.to_yaml(list(overrides)))

    def beat(self, state: str, *, step: int, steps: int, force: bool = False) -> None:
        now = time.time()
        if not force and now - self._beaten < BEAT_S:
            return
        self._beaten = now
        beat = {"state": state, "step": step, "steps": steps, "host": socket.gethostname(), "pid": os.getpid()}
        replace(self.path / "heartbeat.json", json.dumps(beat | {"time": now}))

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
        replace(self.metrics, "\n".join([header, *kept]) + "\n")


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
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False


def replace(path: Path, text: str) -> None:
    """Write a small file so that no reader ever sees half of it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)
