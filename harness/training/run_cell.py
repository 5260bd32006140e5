"""What becomes of a cell when its command is typed: skipped, refused, run to its record, or failed with one."""

import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from harness.config.cell import Cell, cell_of
from harness.config.compose import ROOT
from harness.config.schema import Rerun
from harness.errors import UsageError, one_line
from harness.progress import Progress, clock
from harness.records import record
from harness.records.run_directory import RunDirectory
from harness.training.attempt import Interrupted, Run, make_trainer
from harness.training.rank import rank
from harness.training.signals import REQUEUED, STOPPED, requeue

TRACEBACK_CHARACTERS = 4000


@dataclass(frozen=True)
class CellResult:
    """How a cell ended for whoever typed the command. `code` is the exit status, 128 + n after signal n."""

    cell: str
    state: str  # done, skipped, waiting, running, interrupted, timeout, preempted, refused, dead, or a record's status
    code: int
    detail: str


@dataclass(frozen=True)
class CellRequest:
    """A cell to be run. `since` (time.time()): for `rerun=all`, what was left before it does not count."""

    cfg: DictConfig
    overrides: Sequence[str] = ()
    search: Sequence[str] = ()  # folders of configuration that the command added to conf/
    since: float = field(default_factory=time.time)
    needs: Sequence[tuple[str, str]] = ()  # (name, record) of each cell that must be done before

    def counts(self, path: Path) -> bool:
        """Whether a file of an earlier attempt, or of this one before it was queued again, is one to go by."""
        return path.exists() and (self.cfg.rerun is not Rerun.all or path.stat().st_mtime >= self.since)


def run_cell(request: CellRequest) -> CellResult:
    """Train, select, test and record one cell; or say why that is not to be done. Raises nothing a user can cause."""
    cfg = request.cfg
    try:
        cell = cell_of(cfg)
    except UsageError as error:
        return CellResult(str(cfg.model.get("name", "?")), "refused", 2, str(error))
    folder = RunDirectory(cell.folder(cfg))
    settled = earlier_result(cell, request) or missing_dependency(cell, request)
    if settled:
        return settled
    try:
        from harness.config.build import refuse_what_cannot_run

        refuse_what_cannot_run(cfg)
        make_trainer(cfg, folder)
    except UsageError as error:
        return CellResult(str(cell), "refused", 2, str(error))

    if rank():
        return _assist(cell, request, folder)
    if not folder.claim():
        return CellResult(str(cell), "running", 0, f"another process is at it ({folder.path}); python run.py do=status")
    try:
        settled = earlier_result(cell, request)  # it may have finished while we asked
        return settled or _attempt(cell, request, folder)
    finally:
        folder.release()


def earlier_result(cell: Cell, request: CellRequest) -> CellResult | None:
    """What an earlier record leaves to do: None if the cell is to be run."""
    path, folder = cell.record_path(request.cfg), RunDirectory(cell.folder(request.cfg))
    if not request.counts(path) or (request.counts(folder.last) and unfinished(folder, path)):
        return None
    earlier = record.read(path)
    if earlier["status"] == "done":
        return CellResult(str(cell), "skipped", 0, f"already done: {summary(earlier)} · {path}")
    if request.cfg.rerun is Rerun.failed and path.stat().st_mtime < request.since:
        return None
    what = f"{earlier['status']} earlier ({one_line(earlier['error']['message'])[:120]})"
    return CellResult(str(cell), earlier["status"], 1, f"{what}; rerun=failed tries again · {path}")


def missing_dependency(cell: Cell, request: CellRequest) -> CellResult | None:
    """What a cell that it needs leaves to do first."""
    for name, path in request.needs:
        if not Path(path).exists() or record.read(path)["status"] != "done":
            return CellResult(str(cell), "waiting", 2, f"needs {name}, which is not done ({path}); do=status says why")
    return None


def unfinished(folder: RunDirectory, path: Path) -> bool:
    """A run that was begun (again) and did not come to its record: its last checkpoint is younger than any record."""
    return folder.last.exists() and not (path.exists() and path.stat().st_mtime >= folder.last.stat().st_mtime)


def can_resume(folder: RunDirectory, path: Path, request: CellRequest) -> bool:
    """Go on from the last checkpoint? Yes after a kill or a failure; not after a loss that was no number."""
    if not request.counts(folder.last):
        return False
    return unfinished(folder, path) or record.read(path)["status"] not in ("done", "nan")


def _assist(cell: Cell, request: CellRequest, folder: RunDirectory) -> CellResult:
    """Compute one share of a cell that the first process runs; it alone claims, prints and writes."""
    resuming = can_resume(folder, cell.record_path(request.cfg), request)
    run = Run(cell, request.cfg, folder, Progress(silent=True), resuming=resuming, search=request.search)
    try:
        run.go()
    except Interrupted as stop:
        return CellResult(str(cell), stop.state, STOPPED + stop.number, str(stop))
    return CellResult(str(cell), "done", 0, "")


def _attempt(cell: Cell, request: CellRequest, folder: RunDirectory) -> CellResult:
    started = time.time()
    path = cell.record_path(request.cfg)
    resuming = can_resume(folder, path, request)
    if not resuming:
        folder.clear()
    folder.describe(cell.config, request.overrides)
    from tasks.base import DataError

    with Progress(folder.note) as progress:
        progress.say(f"{cell} · {folder.path}")
        run = Run(cell, request.cfg, folder, progress, resuming=resuming, search=request.search)
        try:
            entries = run.go()
        except Interrupted as stop:
            if stop.state in REQUEUED:
                try:
                    requeue()
                except Exception as refusal:  # submitit's: it was queued again too often
                    return _failure(run, refusal, started, stop.state)
            return CellResult(str(cell), stop.state, STOPPED + stop.number, str(stop))
        except (DataError, UsageError) as error:
            folder.beat("refused", step=0, steps=0, force=True)
            return CellResult(str(cell), "refused", 2, one_line(error))
        except Exception as error:
            return _failure(run, error, started)
        entries |= {"started": iso(started), "finished": iso(time.time())}
        record.write(entries, path)
        folder.beat("done", step=entries["steps"], steps=entries["steps"], force=True)
        return CellResult(str(cell), "done", 0, f"{summary(entries)} · {path}")


def _failure(run: Run, error: Exception, started: float, status: str | None = None) -> CellResult:
    """A failure is a value: a record with its status; the traceback goes to the run's folder."""
    status = status or status_of(error)
    # a record names no folder of this machine
    text = traceback.format_exc().replace(f"{ROOT}/", "").replace(f"{sys.prefix}/", "")
    run.folder.error.write_text(text, encoding="utf-8")
    entry = {"type": type(error).__name__, "message": one_line(error) or type(error).__name__}
    entries = run.entries(status) | {"error": entry | {"traceback": text[-TRACEBACK_CHARACTERS:]}}
    entries |= {"started": iso(started), "finished": iso(time.time())}
    path = run.cell.record_path(run.cfg)
    # the record last: what is younger than it would be a new attempt
    run.folder.beat(status, step=entries["steps"], steps=run.cfg.train.max_steps, force=True)
    record.write(entries, path)
    detail = f"{entry['type']}: {entry['message'][:200]} · {run.folder.error} · rerun=failed tries again"
    return CellResult(str(run.cell), status, 1, detail)


def status_of(error: Exception) -> str:
    import torch

    from harness.training.module import NonFiniteError

    if isinstance(error, NonFiniteError):
        return "nan"
    text = str(error).lower()
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "can't allocate memory" in text:
        return "oom"
    return "failed"


def report_line(outcome: CellResult, out: Any = None) -> None:
    if rank() == 0:
        print(f"{outcome.state}: {outcome.cell} · {outcome.detail}", file=out or sys.stdout, flush=True)


def summary(entries: dict[str, Any]) -> str:
    name, best = entries["metric"]["name"], entries["metrics"]["best"]
    test = best["test"]
    chance = f", chance {entries['baseline']['test']:.4g}" if entries["baseline"] else ""
    leak = " [selected on test]" if entries["selection"]["leak"] else ""
    return f"test {name} {test[name]:.4g}{leak} (n {test['n']}{chance}) · {clock(entries['wall_s'])}"


def iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
