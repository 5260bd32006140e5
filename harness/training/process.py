"""The process of a cell: signals that stop it, its rank among several, its threads and its kernels.

Signals are only noted: a run stops between two updates, once everything is saved. SIGINT (Ctrl-C), SIGTERM (scancel)
and SIGHUP (a closed terminal) end the run. submitit has SLURM send SIGUSR2 before the time limit; its handler queues
the job again and is called once the run is saved. A preemption arrives as SIGTERM or SIGUSR2. SIGUSR1, which most
sbatch scripts and Lightning send, means the same as SIGUSR2. In an sbatch script of one's own the process warns itself
(`warned_of_limit`), because sbatch signals only what srun starts, and queues the job again if `cluster.requeue` is set.

Importing this module does not import torch.
"""

import contextlib
import datetime
import functools
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from harness.config.allowed import devices_of
from harness.config.declared import declared
from harness.config.schema import Kernels
from harness.errors import UsageError, one_line
from harness.records.machine import other_cpu_s
from harness.records.provenance import command_output, version

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
SCHEDULER = signal.SIGUSR2
ENDS_LATER = (signal.SIGUSR1, SCHEDULER)  # of a time limit that is near
STOPPED = 128  # exit statuses from here on mean that a signal ended the run
REQUEUED = ("timeout", "preempted")  # states of a run whose job is queued again
# environment variables with the rank of a process in its group and with the group's size: torchrun's, srun's, and
# Lightning's for processes on the same machine
TORCHRUN, SRUN, LIGHTNING = "RANK", "SLURM_PROCID", "LOCAL_RANK"
GROUPS = {TORCHRUN: "WORLD_SIZE", SRUN: "SLURM_STEP_NUM_TASKS", LIGHTNING: "WORLD_SIZE"}
PARENT = "LONGHAUL_PARENT"  # environment variable with the id of the process of which Lightning starts copies
ONE_THREAD_BELOW = 1_000_000  # parameters
HOPPER = 9  # compute capability
# environment variables
SWITCHES = {kernels: f"LONGHAUL_{kernels.name.upper()}" for kernels in Kernels if kernels is not Kernels.torch}
FLEX_TORCH = (2, 9)  # the first with AuxRequest
LOAD_SAMPLE_S = 0.2  # duration of a measurement of the machine's load
REQUEUE_PAUSES_S = (1, 5, 15)  # before a command is tried again that the scheduler did not take
_group = ""  # the variable with the rank of this process in its group; `join_group` sets it


class SchedulerError(Exception):
    """A command of the scheduler failed. The run is saved, and the user's command resumes it."""


@dataclass
class StopSignal:
    number: int | None = None  # the signal that was received


@contextlib.contextmanager
def catch_stop_signals() -> Iterator[StopSignal]:
    """Note signals within this context; a second SIGINT, SIGTERM or SIGHUP ends the process at once.

    Under nohup, SIGHUP stays ignored.
    """
    stop_signal = StopSignal()

    def note(number: int, _frame: Any) -> None:
        # a signal that ends the job wins over the signal that queues it again
        if stop_signal.number in (None, *ENDS_LATER):
            stop_signal.number = number
        if number not in ENDS_LATER:
            signal.signal(number, signal.SIG_DFL)

    under_nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    before = {number: signal.signal(number, note) for number in NUMBERS if number != signal.SIGHUP or not under_nohup}
    try:
        yield stop_signal
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def warned_of_limit(warning_s: float) -> Iterator[None]:
    """Send this process SIGUSR1 so many seconds before the end of its SLURM job, or after half of the time left.

    Not in a job of submitit, which has SLURM send its own signal.
    """
    ends = None if "SUBMITIT_EXECUTOR" in os.environ else job_end()
    if ends is None:
        yield
        return
    left = max(0.0, ends - time.time())
    timer = threading.Timer(max(left - warning_s, left / 2), os.kill, (os.getpid(), signal.SIGUSR1))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@functools.cache
def job_end() -> float | None:
    """When the time limit of this SLURM job is reached, in seconds since 1970; None outside a job and without a limit.

    SLURM says it in a variable since 23.02.
    """
    job, ends = os.environ.get("SLURM_JOB_ID"), os.environ.get("SLURM_JOB_END_TIME")
    if not job or ends:
        return float(ends) if job and re.fullmatch(r"\d{1,12}", ends) else None
    said = (command_output("squeue", "--noheader", "--format=%e", f"--jobs={job}", timeout_s=20) or "").strip()
    with contextlib.suppress(ValueError):  # N/A
        return datetime.datetime.fromisoformat(said).timestamp()
    return None


def requeue_own_job() -> str:
    """Queue the job of an sbatch script again, once its cells are saved: the script then starts anew. What happened."""
    job = os.environ.get("SLURM_JOB_ID", "")
    if not shutil.which("scontrol"):
        return (
            f"cluster.requeue: scontrol is not found, as in a container; outside it, scontrol requeue {job} resumes "
            f"the cells (exit status {exit_status(SCHEDULER)})"
        )
    done = subprocess.run(["scontrol", "requeue", job], capture_output=True, text=True, timeout=60, check=False)
    return f"job {job} is {f'not queued again: {one_line(done.stderr)}' if done.returncode else 'queued again'}"


def exit_status(number: int) -> int:
    """128 + n, as shells report. SIGUSR1 counts as SIGUSR2: 138 is the status of a run that SIGUSR1 killed, unsaved."""
    return STOPPED + (SCHEDULER if number in ENDS_LATER else number)


def stop_status(number: int) -> str:
    """The state of a stopped run: `timeout` or `preempted` if its job is queued again, else `interrupted`."""
    if not will_requeue(number):
        return "interrupted"
    # by submitit's own rule: its count of timeouts decides whether the job is queued again
    job = getattr(signal.getsignal(SCHEDULER), "__self__", None)
    timed_out = number == signal.SIGUSR1 if job is None else job.has_timed_out()
    return "timeout" if timed_out else "preempted"


def will_requeue(number: int) -> bool:
    """Whether the scheduler will queue the job again after this signal.

    SLURM sends SIGTERM both before a preemption and to a cancelled job, but only a cancelled job is no longer running.
    """
    if number != signal.SIGTERM or not callable(signal.getsignal(SCHEDULER)) or "SLURM_JOB_ID" not in os.environ:
        return number in ENDS_LATER
    job = f"--jobs={os.environ['SLURM_JOB_ID']}"
    return (command_output("squeue", "--noheader", "--format=%T", job, timeout_s=20) or "").strip() == "RUNNING"


def requeue() -> None:
    """Call the scheduler's handler, if there is one: it queues the job again and ends this process.

    Raises submitit's UncompletedJobError if the job was queued too often, and SchedulerError if the scheduler did not
    take the command: a busy one may refuse it for a moment, so it is tried again first.
    """
    handler = signal.getsignal(SCHEDULER)
    if not callable(handler):
        return
    for pause_s in (*REQUEUE_PAUSES_S, None):
        try:
            return handler(SCHEDULER, None)
        except (subprocess.SubprocessError, OSError) as error:
            if pause_s is None:
                raise SchedulerError(f"the scheduler did not queue the job again: {one_line(error)}") from error
            time.sleep(pause_s)


def join_group(configs: Iterable[DictConfig]) -> None:
    """Decide, before cells with these configurations run, whether this process is one of several that share each.

    A rank in the environment may be left from something else, or be that of one of many commands that srun started. So
    a process is a member only of a group with as many processes as each of the cells has devices. Any other rank is
    ignored with one line, and removed, because Lightning would read it.

    A process that Lightning started is killed when rank 0 ends, however that ends: it would keep its device, waiting
    for the others. It saves nothing, so there is nothing to wait for.
    """
    global _group
    sizes = {devices_of(cfg) for cfg in configs}
    size = sizes.pop() if len(sizes) == 1 else 1
    _group = next((name for name in GROUPS if size > 1 and is_member(name, size)), "")
    for name, of_size in () if _group else GROUPS.items():
        if (number := os.environ.get(name, "0")) != "0":
            del os.environ[name]
            started = f"{of_size}={os.environ.get(of_size, '')[:20]} is not the number of devices of its cells"
            print(f"{name}={number[:20]} is ignored: {started}, so this process runs them itself", file=sys.stderr)
    if _group == LIGHTNING and rank() and PARENT in os.environ:
        from tasks.workers import terminate_with_parent

        terminate_with_parent(int(os.environ[PARENT]), signal.SIGKILL)


def is_member(name: str, size: int) -> bool:
    """Whether a variable has the rank in a group of this size. Torchrun leaves a mark of its own."""
    was_started = name != TORCHRUN or "TORCHELASTIC_RUN_ID" in os.environ
    rank = os.environ.get(name, "")
    return was_started and rank.isdecimal() and os.environ.get(GROUPS[name]) == str(size) and int(rank) < size


def group() -> str:
    """The variable by which this process is one of several that share cells; empty for a process of its own."""
    return _group


def rank() -> int:
    """The rank of this process in its cell. Rank 0 claims the run directory, prints and writes; others only compute."""
    return int(os.environ[_group]) if _group else 0


@functools.cache
def available_threads() -> int:
    """Threads of torch before a cell sets them: OMP_NUM_THREADS, or the number of cores."""
    import torch

    return torch.get_num_threads()


def busy_cores() -> float:
    """Cores that other processes use at the moment; 0 without /proc."""
    started, before = time.perf_counter(), other_cpu_s()
    time.sleep(LOAD_SAMPLE_S)
    return max(0.0, other_cpu_s() - before) / (time.perf_counter() - started)


def choose_threads(parameters: int) -> int:
    """Threads for a new run of a model with this many parameters on the CPU, unless `resources.cpus` is set.

    Small models get one thread. Measured with LAVO on reduced ListOps (86,000 parameters) on two cores: two threads
    train 1.2 times as many examples per second on a quiet machine, but a third as many beside another busy process,
    which does not slow down a single thread. Two cells with one thread each train 1.7 times as many.
    """
    available = available_threads()
    if parameters < ONE_THREAD_BELOW or available == 1:
        return 1
    return max(1, round(available - busy_cores()))


def set_threads(earlier: int | None, typed: int | None, parameters: int | None) -> int | None:
    """Set the threads of torch: those of a resumed attempt, else the typed number, else one for model and machine.

    The last bits of a sum depend on the number of threads, so a resumed cell keeps its number. `parameters`: None on a
    GPU, where the number stays as it is unless it is typed.
    """
    import torch

    available_threads()  # measured before the first cell sets them
    threads = earlier or typed
    if threads is None and parameters is not None:
        threads = choose_threads(parameters)
    if threads:
        torch.set_num_threads(threads)
    return threads


def require_machine(accelerator: str, cpus: int | None) -> None:
    """Raises UsageError for a GPU that is not there, and for more threads than this machine runs at once."""
    import torch

    if accelerator in ("gpu", "cuda") and not torch.cuda.is_available():
        raise UsageError(
            f"{accelerator}: there is no GPU here: leave resources= and trainer= out to run on the CPU, "
            "or send the cells to a machine that has one: python run.py -m hydra/launcher=slurm"
        )
    most = max(os.cpu_count() or 1, available_threads())
    if cpus is not None and cpus > most:
        raise UsageError(f"resources.cpus={cpus} is more than the {most} CPU threads of this machine")


def keep_compiler_cache_private() -> None:
    """Give torch's compiler a cache below the user's own folder, before torch is imported.

    torch's default is a folder for temporary files with a predictable name, which another user can make first.
    """
    if "TORCHINDUCTOR_CACHE_DIR" in os.environ:
        return
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "longhaul" / "torchinductor"
    with contextlib.suppress(OSError):  # a home that takes no files: torch's default
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder)


def choose_kernels(cfg: DictConfig) -> None:
    """Set `resources.kernels` for `models.ops`, in this process and in those that it starts.

    Raises UsageError for `fla` and `flex` on a machine without a GPU or without what they need.
    """
    chosen = cfg.resources.kernels
    if chosen in (Kernels.fla, Kernels.flex) and (reason := missing_for_gpu(chosen, cfg.model)):
        raise UsageError(f"resources.kernels={chosen.name}: {reason}")
    for kernels, switch in SWITCHES.items():
        os.environ[switch] = str(int(chosen is kernels))


def missing_for_gpu(kernels: Kernels, model: Mapping[str, Any]) -> str:
    """What these kernels need for a model and this machine lacks; empty if nothing.

    Triton from 3.4 to before 3.7.1 compiles the backward pass of some kernels of `fla` wrongly for Hopper, so that
    the library refuses it (github.com/fla-org/flash-linear-attention, issue 640), in the middle of the first update.
    """
    import torch

    if not torch.cuda.is_available():
        return "torch sees no CUDA device here; resources.kernels=torch needs none"
    if kernels is Kernels.flex:
        old = tuple(int(part) for part in torch.__version__.split(".")[:2]) < FLEX_TORCH
        return (
            f"torch {torch.__version__} is too old for it; 2.9 is not, and resources.kernels=torch needs none"
            if old
            else ""
        )
    if find_spec("fla") is None:
        return "the package fla is not installed: pip install fla-core; resources.kernels=torch needs none"
    if not declared(model).gated_kernels or torch.cuda.get_device_capability()[0] != HOPPER or find_spec("tilelang"):
        return ""
    triton = re.match(r"(\d+)\.(\d+)\.(\d+)", version("triton"))
    if triton and (3, 4, 0) <= tuple(int(part) for part in triton.groups()) < (3, 7, 1):
        wrong = f"Triton {triton[0]} compiles the kernels of {model.get('name')} wrongly for this GPU"
        return f"{wrong}; 3.7.1 does not, and resources.kernels=torch needs none"
    return ""


def kernels_in_use(cfg: DictConfig) -> str:
    """`resources.kernels`, or `torch` if the native ones did not compile."""
    chosen = cfg.resources.kernels
    return chosen.name if os.environ.get(SWITCHES.get(chosen, "")) == "1" else Kernels.torch.name
