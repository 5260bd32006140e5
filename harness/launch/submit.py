"""Cells -> arrays of jobs, through submitit. What can be refused is refused here; then it returns at once.

A submission's folder holds `NNNN.yaml` (frozen cells), `submission.json` (which cell went into which job), and what
submitit keeps: a pickle and a log, `<job>_<process>_log.out`, for each job.
"""

import contextlib
import json
import shlex
import socket
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from harness.config.schema import Rerun
from harness.config.sweep import Plan, PlannedCell
from harness.errors import UsageError, one_line
from harness.launch import serialized_cell, snapshot
from harness.launch.background import send_here
from harness.launch.cell_state import State, state_of
from harness.launch.job import Job
from harness.launch.local import width
from harness.launch.queue import LOCAL, SLURM, Queue, Submission, submission
from harness.training.run_cell import CellRequest


@dataclass(frozen=True)
class Wanted:
    planned: PlannedCell
    request: CellRequest
    level: int  # of the cells that need others


def submit(plan: Plan, requests: Sequence[CellRequest], scheduler: str) -> int:
    """Exit status: 0, or 2 if cells were refused. Raises UsageError if there is no scheduler or nothing to submit."""
    cfg, queue, began = requests[0].cfg, Queue(), time.time()
    wanted, left_out = [], Counter()
    waiting: dict[str, str] = {}  # cells that are in a job already
    for planned, request, level in zip(plan.cells, requests, plan.levels(), strict=True):
        state = state_of(planned.cell, request.cfg, queue)
        if to_submit(state, request.cfg.rerun):
            wanted.append(Wanted(planned, request, level))
        else:
            left_out[state.name] += 1
            earlier = submission(planned.cell.folder(request.cfg)) if state.at_work else None
            if earlier and earlier.scheduler == SLURM:
                waiting[planned.cell.id] = earlier.job
    wanted, refused = checked(wanted)
    for reason, cells in refused.items():
        print(f"refused: {len(cells)} x {cells[0]} · {reason}", file=sys.stderr)
    said = [f"{count} {name}" for name, count in left_out.items()]
    if left_out.keys() - {"done", "queued", "running"} and cfg.rerun is Rerun.missing:
        said.append("rerun=failed tries failed ones again")
    if not wanted:
        print(f"nothing to submit{': ' if said else ''}{', '.join(said)}")
        return 2 if refused else 0

    root = Path(cfg.cluster.folder or cfg.paths.outputs).expanduser().absolute()
    code, folder = snapshot.take(root / "code"), serialized_cell.new_folder(root / "jobs")
    submitted: list[dict[str, Any]] = []
    sent: dict[int, set[str]] = defaultdict(set)  # arrays of each level
    for group in by_resources(wanted, scheduler):
        level = group[0].level
        after = {job for below in range(level) for job in sent[below]}
        after |= {waiting[needed] for one in group for needed in one.planned.depends_on if needed in waiting}
        batches = list(in_batches(group, scheduler))
        for start in range(0, len(batches), cfg.cluster.array_size):
            array = batches[start : start + cfg.cluster.array_size]
            jobs = send(array, scheduler, folder, code, first=len(submitted), after=sorted(after))
            sent[level].add(jobs[0].split("_")[0])
            for job, batch in zip(jobs, array, strict=True):
                for one in batch:
                    log = str(folder / f"{job}_0_log.out")
                    Submission(scheduler, job, log, socket.gethostname(), began).write(
                        one.planned.cell.folder(one.request.cfg)
                    )
                submitted += [{"job": job, "cell": one.planned.cell.names()} for one in batch]
            cells = sum(map(len, array))
            print(f"job {jobs[0].split('_')[0]}: {cells} cells in {len(jobs)} jobs of {size(array[0][0].request.cfg)}")
    (folder / "submission.json").write_text(json.dumps(submitted, indent=1), encoding="utf-8")
    print(f"submitted: {', '.join([f'{len(submitted)} cells', *said])}")
    print(f"code: {shown(code)} · logs: {shown(folder)}/<job>_0_log.out")
    for name, why in plan.absent.items():
        print(f"left out: {name} ({why})")
    print("next: python run.py do=status, then the same command again for what is left, then python run.py do=report")
    return 2 if refused else 0


def to_submit(state: State, rerun: Rerun) -> bool:
    """Whether a cell in this state goes into a job: never one that is in a job already."""
    if state.at_work:
        return False
    if rerun is Rerun.all or not state.recorded:
        return True
    return rerun is Rerun.failed and state.name != "done"


def checked(wanted: Sequence[Wanted]) -> tuple[list[Wanted], dict[str, list[str]]]:
    """The cells that can run, and {why not: names of the others}. Cells that differ in their seed are checked once."""
    verdicts: dict[str, str | None] = {}
    good, refused = [], defaultdict(list)
    for one in wanted:
        key = json.dumps(one.planned.cell.config | {"seed": None}, sort_keys=True)
        if key not in verdicts:
            verdicts[key] = refusal(one.request.cfg)
        if verdicts[key] is None:
            good.append(one)
        else:
            refused[verdicts[key]].append(str(one.planned.cell))
    return good, refused


def refusal(cfg: DictConfig) -> str | None:
    """Why a cell would fail at once: what it is built of, what it runs on, or data that are not there."""
    from harness.config.build import refuse_what_cannot_run
    from tasks.base import DataError

    try:
        fits(cfg)
        refuse_what_cannot_run(cfg).task.check_is_prepared()
    except UsageError as error:
        return one_line(error)
    except DataError as error:
        return f"{one_line(error).partition('; run:')[0]}; run: {prepare()}"
    return None


def fits(cfg: DictConfig) -> None:
    """Raises UsageError for resources that do not go together."""
    resources, trainer = cfg.resources, cfg.trainer
    if (trainer.devices, trainer.num_nodes) != (resources.devices, resources.nodes):
        raise UsageError(
            "trainer.devices and trainer.num_nodes follow resources.devices and resources.nodes: set those"
        )
    if resources.nodes * resources.devices > 1 and max(resources.cells_per_job, resources.at_once) > 1:
        raise UsageError("a cell that is shared between devices has its job for itself: resources.cells_per_job=1")


def prepare() -> str:
    """The command that makes the data of this one."""
    typed = [word for word in sys.argv[1:] if not word.startswith(("do=", "hydra/launcher="))]
    return shlex.join(["python", "run.py", "do=prepare", *typed])


def by_resources(wanted: Sequence[Wanted], scheduler: str) -> list[list[Wanted]]:
    """Cells that may share an array: all that run on the same resources and need nothing of each other."""
    groups = defaultdict(list)
    for one in wanted:
        cfg = one.request.cfg
        if scheduler == SLURM:
            resources = OmegaConf.to_container(cfg.resources, resolve=True)
            groups[one.level, json.dumps([resources, parameters(cfg)], sort_keys=True)].append(one)
        else:
            groups[0, str(width(cfg))].append(one)
    return [group for _, group in sorted(groups.items(), key=lambda item: item[0][0])]


def in_batches(group: Sequence[Wanted], scheduler: str) -> Iterator[Sequence[Wanted]]:
    """The cells of each job."""
    cfg = group[0].request.cfg
    if scheduler == SLURM:
        each = cfg.resources.cells_per_job
    elif any(one.level for one in group):
        each = len(group)  # nothing on this machine would make one job wait for another
    else:
        each = -(-len(group) // cfg.n_jobs)
    for start in range(0, len(group), each):
        yield group[start : start + each]


def send(
    array: Sequence[Sequence[Wanted]], scheduler: str, folder: Path, code: Path, *, first: int, after: Sequence[str]
) -> Sequence[str]:
    """Freeze the cells of these jobs and submit them as one array; returns the jobs' ids.

    `after`: jobs that must have ended, well or not, before these begin.
    """
    cfg, number, calls = array[0][0].request.cfg, first, []
    for batch in array:
        files = [folder / f"{number + i:04d}.yaml" for i in range(len(batch))]
        number += len(batch)
        for file, one in zip(files, batch, strict=True):
            serialized_cell.write(file, one.request)
        calls.append([str(file) for file in files])
    if scheduler == LOCAL:
        return [send_here(files, place, cfg, folder, code) for place, files in enumerate(calls)]

    from submitit import SlurmExecutor
    from submitit.core.utils import FailedJobError, FailedSubmissionError

    try:
        executor = SlurmExecutor(folder, max_num_timeout=cfg.cluster.max_requeues)
    except RuntimeError as error:
        raise UsageError(
            "SLURM is not here (no srun): submit on a login node, or use hydra/launcher=background"
        ) from error
    setup = [*cfg.cluster.setup, f"export PYTHONPATH={shlex.quote(str(code))}${{PYTHONPATH:+:$PYTHONPATH}}"]
    wanted = parameters(cfg) | ({"dependency": "afterany:" + ":".join(after)} if after else {})
    executor.update_parameters(
        **wanted | {"setup": setup, "additional_parameters": wanted["additional_parameters"] | {"chdir": str(code)}}
    )
    try:
        with executor.batch():
            jobs = [executor.submit(Job(), files, at_once=cfg.resources.at_once, width=1) for files in calls]
    except (FailedJobError, FailedSubmissionError) as error:
        raise UsageError(
            f"sbatch refused: {one_line(error)[:300]} (cluster= and resources= say what is asked for)"
        ) from error
    return [job.job_id for job in jobs]


def parameters(cfg: DictConfig) -> dict[str, Any]:
    """What sbatch is asked for, by submitit's names."""
    resources, cluster = cfg.resources, cfg.cluster
    found = {
        "job_name": "longhaul",
        "time": resources.minutes,
        "nodes": resources.nodes,
        "ntasks_per_node": resources.devices,
        "cpus_per_task": (resources.cpus or 1) * resources.at_once,
        "signal_delay_s": cluster.signal_s,
        "array_parallelism": cluster.jobs_at_once,
        "stderr_to_stdout": True,
        # one process that fails must not leave the others waiting for it
        "srun_args": ["--kill-on-bad-exit=1"],
        # sites may have it off; a job that was told of its end is queued again
        "additional_parameters": {"requeue": True} | OmegaConf.to_container(cluster.sbatch, resolve=True),
    }
    found |= {name: cluster[name] for name in ("partition", "account", "qos", "constraint") if cluster[name]}
    if resources.memory_gb:
        found["mem"] = f"{round(resources.memory_gb * 1024)}MB"
    if cfg.trainer.accelerator == "gpu":
        gres = cluster.gres and cluster.gres.format(devices=resources.devices)
        found |= {"gres": gres} if gres else {"gpus_per_node": resources.devices}
    return found


def size(cfg: DictConfig) -> str:
    resources = cfg.resources
    kind = "GPU" if cfg.trainer.accelerator == "gpu" else "process"
    several = (f"{resources.devices} x {kind}", f"{resources.minutes} min")
    return " · ".join([*([f"{resources.nodes} nodes"] if resources.nodes > 1 else []), *several])


def shown(path: Path) -> str:
    """Relative where that is shorter."""
    with contextlib.suppress(ValueError):
        return str(path.relative_to(Path.cwd()))
    return str(path)
