"""Submit cells as arrays of jobs, through submitit, and return at once. Cells that cannot run are refused first.

A submission's folder holds `NNNN.yaml` (serialized cells) and submitit's files: per job a pickle and a log,
`<job>_<process>_log.out`. A cell's run folder names its job.
"""

import json
import shlex
import socket
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from harness.config.places import folder_below
from harness.config.plain import resolved
from harness.config.schema import Rerun
from harness.errors import UsageError, one_line
from harness.launch import serialized_cell, snapshot
from harness.launch.background import start_background_job
from harness.launch.cell_state import CellState, cell_state
from harness.launch.job import Job
from harness.launch.local import devices_per_cell
from harness.launch.queue import LOCAL, SLURM, Queue, Submission, read_submission
from harness.records.run_directory import RunDirectory
from harness.training.run_cell import CellRequest, earlier_attempt


def lost_weights(request: CellRequest) -> bool:
    """Whether a cell that is done has to run again for cells that start from its weights."""
    cell, cfg = request.cell, request.cfg
    return earlier_attempt(request, RunDirectory(cell.folder(cfg)), cell.record_path(cfg)).lost_weights is not None


def submit(requests: Sequence[CellRequest], scheduler: str) -> int:
    """Submit cells. Returns the exit status: 0, or 2 if cells were refused.

    Raises UsageError if there is no scheduler, or if it refuses a job.
    """
    cfg, queue, started = requests[0].cfg, Queue(), time.time()
    cells, skipped = [], Counter()
    unreadable: dict[str, list[str]] = defaultdict(list)  # fault of a record -> its cells
    active_jobs: dict[str, str] = {}  # id of a queued or running cell -> its SLURM job
    for request in requests:
        cell = request.cell
        state = cell_state(cell.record_path(request.cfg), cell.folder(request.cfg), queue)
        if state.name == "invalid" and cfg.rerun is not Rerun.all:
            unreadable[f"{state.detail}; remove the record"].append(str(cell))
        elif to_submit(state, request.cfg.rerun) or (not state.active and lost_weights(request)):
            cells.append(request)
        else:
            skipped[state.name] += 1
            earlier = read_submission(cell.folder(request.cfg)) if state.active else None
            if earlier and earlier.scheduler == SLURM:
                active_jobs[cell.id] = earlier.job
    cells, refused = split_refused(cells)
    refused |= unreadable
    for reason, names in refused.items():
        print(f"refused: {len(names)} x {names[0]} · {reason}", file=sys.stderr)
    skip_notes = [f"{count} {name}" for name, count in skipped.items()]
    if skipped.keys() - {"done", "queued", "running"} and cfg.rerun is Rerun.missing:
        skip_notes.append("rerun=failed runs failed cells again")
    if not cells:
        print(f"nothing to submit{': ' if skip_notes else ''}{', '.join(skip_notes)}")
        return 2 if refused else 0

    root = Path(cfg.cluster.folder or cfg.paths.outputs).expanduser().absolute()
    trusted = sorted({str(package) for request in cells for package in request.cfg.trusted_packages})
    code = snapshot.take(folder_below(root, "code"), packages=trusted)
    folder = serialized_cell.new_folder(folder_below(root, "jobs"))
    submitted = 0
    arrays: dict[int, set[str]] = defaultdict(set)  # level -> ids of its arrays
    for group in group_by_resources(cells, scheduler):
        level = group[0].level
        after = {array for below in range(level) for array in arrays[below]}
        after |= {active_jobs[first.id] for request in group for first in request.depends_on if first.id in active_jobs}
        batches = list(split_into_jobs(group, scheduler))
        for start in range(0, len(batches), cfg.cluster.array_size):
            array = batches[start : start + cfg.cluster.array_size]
            jobs = submit_array(array, scheduler, folder, code, first=submitted, after=sorted(after))
            arrays[level].add(jobs[0].split("_")[0])
            for job, batch in zip(jobs, array, strict=True):
                log = str(folder / f"{job}_0_log.out")
                for request in batch:
                    folder_of_run = request.cell.folder(request.cfg)
                    Submission(scheduler, job, log, socket.gethostname(), started).write(folder_of_run)
            count = sum(map(len, array))
            submitted += count
            size = describe_resources(array[0][0].cfg)
            print(f"job {jobs[0].split('_')[0]}: {count} cells in {len(jobs)} jobs of {size}")
    print(f"submitted: {', '.join([f'{submitted} cells', *skip_notes])}")
    print(f"code: {code} · logs: {folder}/<job>_0_log.out")
    print("next: python run.py do=status, then the same command again for what is left, then python run.py do=report")
    return 2 if refused else 0


def to_submit(state: CellState, rerun: Rerun) -> bool:
    """Whether to submit a cell in this state. A cell that runs or is queued is not submitted again."""
    if state.active:
        return False
    if rerun is Rerun.all or not state.recorded:
        return True
    return rerun is Rerun.failed and state.name != "done"


def split_refused(requests: Sequence[CellRequest]) -> tuple[list[CellRequest], dict[str, list[str]]]:
    """The cells that can run, and {reason: names of refused cells}. Seeds of the same cell are checked once."""
    reasons: dict[str, str | None] = {}
    accepted, refused = [], defaultdict(list)
    for request in requests:
        key = json.dumps(request.cell.config | {"seed": None}, sort_keys=True)
        if key not in reasons:
            reasons[key] = refusal(request.cfg)
        if reasons[key] is None:
            accepted.append(request)
        else:
            refused[reasons[key]].append(str(request.cell))
    return accepted, refused


def refusal(cfg: DictConfig) -> str | None:
    """The reason why a cell would fail at once (its model, task, resources or data); None if it can run."""
    from harness.training.lean_imports import import_lean

    import_lean()
    from harness.config.build import build_or_refuse
    from tasks.checks import DataError

    try:
        check_resources(cfg)
        build_or_refuse(cfg).task.check_is_prepared()
    except UsageError as error:
        return one_line(error)
    except DataError as error:
        overrides = [word for word in sys.argv[1:] if not word.startswith(("do=", "hydra/launcher="))]
        error.command = shlex.join(["python", "run.py", "do=prepare", *overrides])  # it fetches these data
        return one_line(error)
    return None


def check_resources(cfg: DictConfig) -> None:
    """Raises UsageError for resources that contradict each other."""
    resources, trainer = cfg.resources, cfg.trainer
    if (trainer.devices, trainer.num_nodes) != (resources.devices, resources.nodes):
        raise UsageError(
            "trainer.devices and trainer.num_nodes follow resources.devices and resources.nodes: set those"
        )
    if resources.nodes * resources.devices > 1 and max(resources.cells_per_job, resources.at_once) > 1:
        raise UsageError("a cell on several devices takes a job of its own: set resources.cells_per_job=1")


def group_by_resources(requests: Sequence[CellRequest], scheduler: str) -> list[list[CellRequest]]:
    """Groups of cells that may share an array: they need the same resources and do not depend on each other."""
    groups = defaultdict(list)
    for request in requests:
        cfg = request.cfg
        if scheduler == SLURM:
            resources = resolved(cfg.resources)
            groups[request.level, json.dumps([resources, sbatch_parameters(cfg)], sort_keys=True)].append(request)
        else:
            groups[0, str(devices_per_cell(cfg))].append(request)
    return [group for _, group in sorted(groups.items(), key=lambda item: item[0][0])]


def split_into_jobs(group: Sequence[CellRequest], scheduler: str) -> Iterator[Sequence[CellRequest]]:
    """The cells of each job."""
    cfg = group[0].cfg
    if scheduler == SLURM:
        cells_per_job = cfg.resources.cells_per_job
    elif any(request.level for request in group):
        cells_per_job = len(group)  # this machine has no queue in which a job could wait for another
    else:
        cells_per_job = -(-len(group) // cfg.n_jobs)
    for start in range(0, len(group), cells_per_job):
        yield group[start : start + cells_per_job]


def submit_array(
    array: Sequence[Sequence[CellRequest]],
    scheduler: str,
    folder: Path,
    code: Path,
    *,
    first: int,
    after: Sequence[str],
) -> Sequence[str]:
    """Serialize the cells of these jobs, submit the jobs as an array and return their ids.

    `first`: the number of the first file. `after`: jobs that must end, successfully or not, before these start.
    """
    cfg, number, calls = array[0][0].cfg, first, []
    for batch in array:
        files = [folder / f"{number + i:04d}.yaml" for i in range(len(batch))]
        number += len(batch)
        calls.append([serialized_cell.write(file, request) for file, request in zip(files, batch, strict=True)])
    if scheduler == LOCAL:
        return [start_background_job(files, index, cfg, folder, code) for index, files in enumerate(calls)]

    from submitit import SlurmExecutor
    from submitit.core.utils import FailedJobError, FailedSubmissionError

    try:
        executor = SlurmExecutor(folder, max_num_timeout=cfg.cluster.max_requeues)
    except RuntimeError as error:
        raise UsageError(
            "SLURM is not installed here (no srun): submit on a login node, or use hydra/launcher=background"
        ) from error
    parameters = sbatch_parameters(cfg) | ({"dependency": "afterany:" + ":".join(after)} if after else {})
    parameters["setup"] = [
        *cfg.cluster.setup,
        f"export PYTHONPATH={shlex.quote(str(code))}${{PYTHONPATH:+:$PYTHONPATH}}",
    ]
    parameters["additional_parameters"] |= {"chdir": str(code)}
    executor.update_parameters(**parameters)
    try:
        with executor.batch():
            jobs = [
                executor.submit(Job(), files, max_workers=cfg.resources.at_once, devices_per_cell=1) for files in calls
            ]
    except (FailedJobError, FailedSubmissionError) as error:
        raise UsageError(
            f"sbatch refused: {one_line(error)[:300]} (cluster= and resources= set the request)"
        ) from error
    return [job.job_id for job in jobs]


def sbatch_parameters(cfg: DictConfig) -> dict[str, Any]:
    """The parameters of sbatch, under submitit's names."""
    resources, cluster = cfg.resources, cfg.cluster
    parameters = {
        "job_name": "longhaul",
        "time": resources.minutes,
        "nodes": resources.nodes,
        "ntasks_per_node": resources.devices,
        "cpus_per_task": (resources.cpus or 1) * resources.at_once,
        "signal_delay_s": cluster.signal_s,
        "array_parallelism": cluster.jobs_at_once,
        "stderr_to_stdout": True,
        # a failed process must not leave the others waiting
        "srun_args": ["--kill-on-bad-exit=1"],
        # some sites disable requeueing by default; jobs need it at their time limit
        "additional_parameters": {"requeue": True} | resolved(cluster.sbatch),
    }
    parameters |= {name: cluster[name] for name in ("partition", "account", "qos", "constraint") if cluster[name]}
    if resources.memory_gb:
        parameters["mem"] = f"{round(resources.memory_gb * 1024)}MB"
    if cfg.trainer.accelerator == "gpu":
        gres = cluster.gres and cluster.gres.format(devices=resources.devices)
        parameters |= {"gres": gres} if gres else {"gpus_per_node": resources.devices}
    return parameters


def describe_resources(cfg: DictConfig) -> str:
    resources = cfg.resources
    kind = "GPU" if cfg.trainer.accelerator == "gpu" else "process"
    nodes = [f"{resources.nodes} nodes"] if resources.nodes > 1 else []
    return " · ".join([*nodes, f"{resources.devices} x {kind}", f"{resources.minutes} min"])
