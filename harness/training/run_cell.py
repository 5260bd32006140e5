"""One cell from its request to its result: skipped, refused, run to its record, or failed with a record."""

import contextlib
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from harness.config.cell import Cell
from harness.config.declared import explained
from harness.config.places import ROOT
from harness.config.schema import Rerun
from harness.config.source_code import code_of
from harness.errors import UsageError, one_line
from harness.garbage import end_imports, rare_garbage_collection
from harness.masking import masked, masked_override, masked_texts
from harness.progress import Progress, announce_torch, fitted
from harness.records import baselines, predictions, record
from harness.records.files import is_storage_failure, remove_temporaries, require_writable, storage_message
from harness.records.ownership import OwnershipLostError, read_heartbeat
from harness.records.run_directory import RunDirectory
from harness.training.checkpoints.dependency import Dependency, chosen_weights
from harness.training.extras.long_run import refuse_long_run
from harness.training.lean_imports import import_lean
from harness.training.process import REQUEUED, SchedulerError, exit_status, keep_compiler_cache_private, rank, requeue

if TYPE_CHECKING:
    from harness.training.attempt import Attempt

TRACEBACK_CHARACTERS = 4000


@dataclass(frozen=True)
class CellResult:
    """How a cell ended. `code`: the exit status, 128 + n after signal n."""

    cell: str
    state: str  # done, skipped, waiting, running, interrupted, timeout, preempted, refused, dead, or a record's status
    code: int
    detail: str


@dataclass(frozen=True)
class CellRequest:
    """A cell to run. `since` (time.time()) identifies the request, also when its job is queued again."""

    cell: Cell  # of `cfg` and `depends_on`
    cfg: DictConfig
    overrides: Sequence[str] = ()
    search: Sequence[str] = ()  # configuration folders that the command added to conf/
    since: float = field(default_factory=time.time)
    depends_on: Sequence[Dependency] = ()  # cells that must be done first
    dependents: Sequence[str] = ()  # records of the cells that start from this cell's weights
    level: int = 0  # one more than the highest level of the cells that it depends on; 0 without any
    longest_s: float | None = None  # without a GPU: longer runs are refused
    searched: Mapping[str, Any] | None = None  # the search that chose the learning rate, as in a record


def run_cell(request: CellRequest) -> CellResult:
    """Train, select, test and record a cell, unless it is done or refused. Errors of the user become a result.

    The model and the Trainer are built before the run directory is touched, so a refusal leaves no file.
    """
    result = _run_cell(request)
    return replace(result, detail=masked(result.detail))


def _run_cell(request: CellRequest) -> CellResult:
    cell, cfg = request.cell, request.cfg
    try:
        run_dir, record_path = RunDirectory(cell.folder(cfg)), cell.record_path(cfg)
    except UsageError as error:
        return CellResult(str(cell), "refused", 2, str(error))
    try:
        earlier = earlier_attempt(request, run_dir, record_path)
    except record.RecordError as error:
        cure = "move it away" if record_path.is_dir() else f"remove {record_path}"
        return CellResult(str(cell), "refused", 2, f"{error}; {cure}, and the same command runs the cell again")
    if result := earlier_result(request, record_path, earlier) or missing_dependency(request, earlier):
        settle(run_dir, record_path)
        return result

    announce_torch()
    keep_compiler_cache_private()
    import_lean()
    from harness.training.attempt import Attempt  # imports torch, which a finished cell does not need

    end_imports()

    attempt = Attempt(cell, cfg, run_dir, request.search, request.depends_on)
    build_error = None
    try:
        attempt.build()
        attempt.choose_start(resumable=earlier.resumable)
        if request.longest_s is not None and attempt.on_cpu and not earlier.resumable:
            refuse_long_run(cell, request.overrides, request.longest_s)
            attempt.callback.pace.longest_s = request.longest_s
        require_writable(record_path.parent, record_path, predictions.path_of(record_path))
        require_writable(run_dir.path)
    except UsageError as error:
        return CellResult(str(cell), "refused", 2, explained(error, cfg))
    except Exception as error:
        build_error = error  # such as a lack of memory: recorded once the run directory is acquired
    if rank():
        return _assist(attempt)
    try:
        if not run_dir.acquire(lambda line: print(line, file=sys.stderr, flush=True)):
            detail = f"another process runs it ({run_dir.path}); python run.py do=status"
            return CellResult(str(cell), "running", 0, detail)
    except OSError as error:
        return CellResult(str(cell), "interrupted", 1, not_written(error))
    try:
        remove_temporaries(record_path.parent, f"{cell.path.name}.*")
        earlier = earlier_attempt(request, run_dir, record_path)  # another process may have finished the cell meanwhile
        return earlier_result(request, record_path, earlier) or _run(attempt, request, earlier, build_error)
    finally:
        run_dir.ownership.release()


@dataclass(frozen=True)
class EarlierAttempt:
    """What earlier attempts left of a cell.

    `record`: its entries; None without a record, or if a later attempt was begun and has none yet.
    `resumable`: there is a checkpoint to go on from, after a kill or a failure other than a loss that is NaN.
    `of_this_request`: the record is of this request, whose job was queued again.
    `lost_weights`: the missing file of a done cell's weights, if a cell that starts from them has yet to run.
    """

    record: dict[str, Any] | None
    resumable: bool = False
    of_this_request: bool = False
    lost_weights: Path | None = None


def earlier_attempt(request: CellRequest, run_dir: RunDirectory, path: Path) -> EarlierAttempt:
    """Read the record and the run directory. Raises RecordError if the record is not valid."""
    begun, has_checkpoint = run_dir.last_attempt(), run_dir.has_checkpoint
    if request.cfg.rerun is Rerun.all and (begun is None or begun.since < request.since):
        return EarlierAttempt(None)
    unfinished = begun is not None and not begun.ended
    if not path.exists() or (unfinished and (has_checkpoint or request.cfg.rerun is Rerun.all)):
        return EarlierAttempt(None, resumable=has_checkpoint)
    entries = record.read(path)
    if entries["status"] != "done":
        resumable = has_checkpoint and entries["status"] != "nan"
        of_this_request = begun is not None and begun.ended and begun.since >= request.since
        return EarlierAttempt(entries, resumable, of_this_request)
    weights = chosen_weights(run_dir, entries)
    lost = not weights.exists() and not all(map(record.is_done, request.dependents))
    return EarlierAttempt(entries, lost_weights=weights if lost else None)


def settle(run_dir: RunDirectory, record_path: Path) -> None:
    """Remove the temporary files of a killed process from the run directory of a cell that keeps its record.

    An attempt that was begun but has no checkpoint to go on from is marked as ended.
    """
    beat = read_heartbeat(run_dir.path)
    if rank() or (beat and beat["alive"]) or not record_path.exists() or not run_dir.is_half_written:
        return
    with contextlib.suppress(OSError):  # nothing depends on it
        if run_dir.acquire():
            if (begun := run_dir.last_attempt()) and not run_dir.has_checkpoint:
                run_dir.end(begun.since)
            run_dir.ownership.release()


def earlier_result(request: CellRequest, path: Path, earlier: EarlierAttempt) -> CellResult | None:
    """The result of an earlier attempt; None if the cell has to run."""
    if earlier.record is None or earlier.lost_weights:
        return None
    cell, status = request.cell, earlier.record["status"]
    if status == "done":
        done = f"already done{other_code(earlier.record, request.cfg)}"
        return CellResult(str(cell), "skipped", 0, f"{done}: {record.score_text(earlier.record)} · {path}")
    if request.cfg.rerun is Rerun.failed and not earlier.of_this_request:
        return None
    failure = f"{status} earlier ({one_line(earlier.record['error']['message'])[:120]})"
    return CellResult(str(cell), status, 1, f"{failure}; rerun=failed tries again · {path}")


def other_code(entries: dict[str, Any], cfg: DictConfig) -> str:
    """A remark on a record whose code has changed since; empty if it has not, or if that is unknown."""
    then, now = entries.get("code_sha256"), code_of(cfg)
    if None in (then, now) or then == now:
        return ""
    return f" by other code ({then[:8]}, now {now[:8]}; rerun=all runs it again)"


def missing_dependency(request: CellRequest, earlier: EarlierAttempt) -> CellResult | None:
    """A result that names the cell to be done first; None if all dependencies are done."""
    for dependency in request.depends_on:
        name, detail = dependency.name, None
        if not record.is_done(dependency.record):
            detail = f"depends on {name}, which is not done ({dependency.record}); do=status says why"
        elif dependency.weights and not earlier.resumable and not dependency.weights_path.exists():
            detail = f"starts from the weights of {name}, which are gone ({dependency.weights_path})"
            detail += "; python run.py with the same overrides trains them again"
        if detail:
            return CellResult(str(request.cell), "waiting", 2, detail)
    return None


def _assist(attempt: "Attempt") -> CellResult:
    """Compute the share of a device. Only the process of rank 0 acquires the directory, prints and writes."""
    from harness.training.attempt import Interrupted

    name = str(attempt.cell)
    try:
        attempt.run(Progress(silent=True))
    except Interrupted as stop:
        return CellResult(name, stop.state, exit_status(stop.number), str(stop))
    return CellResult(name, "done", 0, "")


def _run(
    attempt: "Attempt", request: CellRequest, earlier: EarlierAttempt, build_error: Exception | None
) -> CellResult:
    """Run the attempt in its acquired run directory and write its record."""
    from harness.training.attempt import Interrupted
    from tasks.checks import DataError

    started = time.time()
    cell, run_dir = attempt.cell, attempt.run_dir
    record_path = cell.record_path(attempt.cfg)
    with Progress(run_dir.append_log) as progress:
        try:
            run_dir.write_config(cell.config, [masked_override(override) for override in request.overrides])
            if build_error is not None:
                raise build_error
            attempt.take_start(resumable=earlier.resumable)
            run_dir.begin(request.since)
            progress.say(" · ".join(filter(None, [str(cell), str(run_dir.path), attempt.description])))
            if earlier.lost_weights:
                message = f"done, but its weights are gone ({earlier.lost_weights})"
                progress.say(f"{message}: trained again for the cells that start from them")
            entries = attempt.run(progress)
            run_dir.ownership.require()
        except Interrupted as stop:
            detail = str(stop)
            if stop.state in REQUEUED:
                try:
                    requeue()
                except SchedulerError as error:
                    detail += f"; {error}"
                except Exception as refusal:  # submitit's: the job was queued too often
                    return _record_failure(attempt, request, refusal, started, stop.state)
            return CellResult(str(cell), stop.state, exit_status(stop.number), detail)
        except (DataError, UsageError) as error:
            return _without_record(attempt, "refused", 0, 2, explained(error, attempt.cfg))
        except OwnershipLostError as lost:
            return CellResult(str(cell), "running", 1, str(lost))
        except Exception as error:
            if is_storage_failure(error):
                return _storage_failed(attempt, error)
            return _record_failure(attempt, request, error, started)
        if request.searched:  # the record holds the score of the best predictor
            with rare_garbage_collection():
                attempt.measure_baselines(progress)
            entries["search"] = baselines.with_floor(request.searched, attempt.cfg.paths.records, entries)
        entries |= {"started": iso(started), "finished": iso(time.time())}
        try:
            if attempt.predictions:
                predictions.write(record_path, attempt.predictions)
            else:  # a trial has none
                predictions.remove(record_path)
            record.write(without_secrets(entries), record_path)
            run_dir.end(request.since)
        except record.RecordError as error:  # not the weights but what the task returned is at fault
            kept = f"the trained weights are kept ({run_dir.last}); after a correction the same command tests them"
            return _without_record(attempt, "refused", attempt.cfg.train.max_steps, 2, f"{error}; {kept}")
        except OSError as error:
            return _storage_failed(attempt, error)
        run_dir.forget_previous()
        run_dir.ownership.beat("done", step=entries["steps"], steps=entries["steps"], force=True)
        if not (attempt.cfg.train.trial or request.searched):
            with rare_garbage_collection():  # it imports scikit-learn
                attempt.measure_baselines(progress)
        return CellResult(str(cell), "done", 0, f"{record.score_text(entries)} · {record_path}")


def _storage_failed(attempt: "Attempt", error: Exception) -> CellResult:
    """The result if files cannot be written; the last checkpoint and an earlier record are untouched."""
    last = attempt.start.state.get("last") or {"step": 0}
    return _without_record(attempt, "interrupted", last["step"], 1, not_written(error))


def _without_record(attempt: "Attempt", state: str, step: int, code: int, detail: str) -> CellResult:
    """The result of an attempt that leaves no record."""
    attempt.run_dir.ownership.beat(state, step=step, steps=attempt.cfg.train.max_steps, force=True)
    return CellResult(str(attempt.cell), state, code, detail)


def not_written(error: Exception) -> str:
    """A file that could not be written, in one line, and when the run can go on."""
    then = "once it takes writes again" if is_storage_failure(error) else "after that"
    return f"{storage_message(error)}; {then}, the same command goes on"


def _record_failure(
    attempt: "Attempt", request: CellRequest, error: Exception, started: float, status: str | None = None
) -> CellResult:
    """Write a record with the status of the failure, and the traceback to the run directory."""
    from harness.training.extras.artifacts import remove_artifacts
    from harness.training.failures import failure_status
    from harness.training.memory import smaller

    status = status or failure_status(error)
    text = without_folders("".join(traceback.format_exception(error)), attempt.cfg)
    name = type(error).__name__
    message = without_folders(one_line(error) or name, attempt.cfg)
    if status == "oom" and attempt.built is not None:
        message = f"{smaller(attempt.cfg)} takes less memory: {message}"
    entries = attempt.entries(status)
    entries |= {"error": {"type": name, "message": message, "traceback": text[-TRACEBACK_CHARACTERS:]}}
    entries |= {"started": iso(started), "finished": iso(time.time())}
    record_path, run_dir = attempt.cell.record_path(attempt.cfg), attempt.run_dir
    try:
        run_dir.error.write_text(text, encoding="utf-8", errors="replace")
        remove_artifacts(record_path)
        predictions.remove(record_path)
        record.write(without_secrets(entries), record_path)
        run_dir.end(request.since)
    except OSError as full:
        return _storage_failed(attempt, full)
    run_dir.ownership.beat(status, step=entries["steps"], steps=attempt.cfg.train.max_steps, force=True)
    detail = f"{name}: {message[:200]} · {run_dir.error} · rerun=failed tries again"
    return CellResult(str(attempt.cell), status, 1, detail)


def without_folders(text: str, cfg: DictConfig) -> str:
    """A text without the folders of this machine, because records are published."""
    for name, folder in cfg.paths.items():
        if folder:
            text = text.replace(f"{Path(folder).absolute()}/", f"<paths.{name}>/")
    return masked(text.replace(f"{ROOT}/", "").replace(f"{sys.prefix}/", "").replace(f"{Path.home()}/", "~/"))


def without_secrets(entries: dict[str, Any]) -> dict[str, Any]:
    """A record that can be published. Its identity was masked before its id was computed."""
    return {
        key: value if key in ("cell", "config", "changed") else masked_texts(value) for key, value in entries.items()
    }


def report_line(result: CellResult, file: Any = None) -> None:
    if rank() == 0:
        file = file or sys.stdout
        print(fitted(f"{result.state}: {result.cell} · {result.detail}", file), file=file, flush=True)


def iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
