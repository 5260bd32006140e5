"""The directory of a run. The results are in the record, so no result is lost with this directory.

owner            locked by the process that runs the cell (harness.records.ownership)
heartbeat.json   state, step, host, pid; rewritten every few seconds while that process lives
attempt.json     the request that began the last attempt, and whether it ended with a record
job.json         the job that the cell was last submitted in
metrics.csv      one row per evaluation
written-*.jsonl  what a slow pass over test examples has written so far
loggers.json     the run of each tracker, and its last step
log.txt          the progress lines
error.txt        traceback of a failure
.hydra/          config.yaml (resolved) and overrides.yaml
checkpoints/     last.ckpt (model, optimizer and loop), best.pt (weights), the files that they replaced (previous.ckpt,
                 previous-best.pt), step-<n>.pt (weights to average); harness.training.attempt tells who reads them
"""

import contextlib
import csv
import io
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from yaml import YAMLError

from harness.config import yaml_files
from harness.config.plain import resolved
from harness.errors import UsageError, one_line, shown
from harness.records.files import has_temporaries, remove_temporaries, write_atomic
from harness.records.ownership import HEARTBEAT, MAX_BYTES, OWNER, Ownership
from tasks.regular_files import read_json

ATTEMPT, JOB, METRICS, LOGGERS = "attempt.json", "job.json", "metrics.csv", "loggers.json"
WRITTEN = "written-*.jsonl"
FILES = (OWNER, HEARTBEAT, ATTEMPT, JOB, METRICS, LOGGERS, "log.txt", "error.txt")
HYDRA, CONFIG, OVERRIDES = ".hydra", "config.yaml", "overrides.yaml"
FOLDERS = {HYDRA: (CONFIG, OVERRIDES), "checkpoints": ()}  # and the files in them


@dataclass(frozen=True)
class BegunAttempt:
    """`since`: that of the request (`CellRequest.since`). `ended`: with a record, of any status."""

    since: float
    ended: bool


class RunDirectory:
    """One process acquires the directory and writes to it; others read its heartbeat."""

    def __init__(self, path: Path):
        self.path = path
        self.checkpoints = path / "checkpoints"
        self.last, self.best = self.checkpoints / "last.ckpt", self.checkpoints / "best.pt"
        self.previous, self.previous_best = self.checkpoints / "previous.ckpt", self.checkpoints / "previous-best.pt"
        self.metrics, self.log, self.error = path / METRICS, path / "log.txt", path / "error.txt"
        self.ownership = Ownership(path)

    def acquire(self, say: Callable[[str], object] = lambda line: None) -> bool:
        """Become the owner; False if another process owns the directory."""
        self.path.mkdir(parents=True, exist_ok=True)
        set_aside(self.path / OWNER, is_folder=False)
        if not self.ownership.acquire(say):
            return False
        for name in FILES:
            set_aside(self.path / name, is_folder=False)
        for name, files in FOLDERS.items():
            set_aside(self.path / name, is_folder=True)
            for file in files:
                set_aside(self.path / name / file, is_folder=False)
        self.checkpoints.mkdir(exist_ok=True)
        weights = self.last, self.previous, self.best, self.previous_best, *self.checkpoints.glob("step-*.pt")
        for path in (*weights, *self.path.glob(WRITTEN)):
            set_aside(path, is_folder=False)
        for folder in self.folders:
            remove_temporaries(folder)
        return True

    @property
    def folders(self) -> tuple[Path, ...]:
        return self.path, self.checkpoints, self.path / HYDRA

    @property
    def is_half_written(self) -> bool:
        """Whether a killed process left temporary files or an attempt without an end."""
        begun = self.last_attempt()
        return any(map(has_temporaries, self.folders)) or (begun is not None and not begun.ended)

    @property
    def has_checkpoint(self) -> bool:
        return self.last.is_file() or self.previous.is_file()

    def checkpoint_stamps(self) -> tuple[tuple[int, ...] | None, ...]:
        """They change with each written checkpoint."""
        stats = [path.stat() if path.is_file() else None for path in (self.last, self.previous)]
        return tuple(stat and (stat.st_ino, stat.st_size, stat.st_mtime_ns) for stat in stats)

    def clear(self) -> None:
        """Delete the files of an earlier attempt, except `owner`, which is locked."""
        files = self.metrics, self.log, self.error, self.path / HEARTBEAT, self.path / LOGGERS
        for path in (*files, *self.path.glob(WRITTEN)):
            path.unlink(missing_ok=True)
        shutil.rmtree(self.checkpoints, ignore_errors=True)
        self.checkpoints.mkdir(parents=True, exist_ok=True)

    def begin(self, since: float, *, ended: bool = False) -> None:
        """Note the request of an attempt. `ended`: the attempt has left its record."""
        write_atomic(self.path / ATTEMPT, json.dumps({"since": since, "ended": ended}))

    def end(self, since: float) -> None:
        self.begin(since, ended=True)

    def forget_previous(self) -> None:
        """Delete what was kept in case of damage or a kill: the previous checkpoint and weights, and written texts."""
        for path in (self.previous, self.previous_best, *self.path.glob(WRITTEN)):
            path.unlink(missing_ok=True)

    def last_attempt(self) -> BegunAttempt | None:
        """None without a valid `attempt.json`."""
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError, OverflowError):
            attempt = read_json(self.path / ATTEMPT, MAX_BYTES)
            return BegunAttempt(float(attempt["since"]), attempt["ended"] is True)
        return None

    def write_config(self, config: dict[str, Any] | DictConfig, overrides: Sequence[str]) -> None:
        write_atomic(self.path / HYDRA / CONFIG, yaml_files.text_of(resolved(config)), durable=False)
        write_atomic(self.path / HYDRA / OVERRIDES, yaml_files.text_of(list(overrides)), durable=False)

    def read_hydra(self, name: str) -> Any:
        """The content of CONFIG or OVERRIDES as it was resolved when it was written. Raises UsageError."""
        file = self.path / HYDRA / name
        try:
            return yaml_files.read(file, follow=False)
        except (OSError, ValueError, YAMLError, UsageError, RecursionError) as error:
            reason = getattr(error, "strerror", None) or one_line(error)[:120]
            raise UsageError(f"{shown(file)}: cannot be read ({reason}); rerun=all trains from the start") from error

    def append_log(self, line: str) -> None:
        with contextlib.suppress(OSError), self.log.open("a", encoding="utf-8", errors="replace") as log:
            log.write(line + "\n")  # a full disk may cost the log, but not the run

    def write_metrics(self, rows: Sequence[dict[str, Any]]) -> None:
        """All rows so far; each has the same columns."""
        table = io.StringIO()
        writer = csv.DictWriter(table, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        write_atomic(self.metrics, table.getvalue(), durable=False)


def set_aside(path: Path, *, is_folder: bool) -> None:
    """Rename, and so keep, anything else that has the path of a folder or of a regular file."""
    right = (path.is_dir() if is_folder else path.is_file()) and not path.is_symlink()
    if (path.is_symlink() or path.exists()) and not right:
        number = next(n for n in range(1, 10**6) if not path.with_name(f"{path.name}.aside-{n}").exists())
        path.rename(path.with_name(f"{path.name}.aside-{number}"))
