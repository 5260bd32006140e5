"""Jobs in the background of this machine (`hydra/launcher=background`), through submitit."""

import contextlib
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from omegaconf import DictConfig

from harness.launch.job import Job
from harness.launch.local import devices_per_cell, visible_gpus
from harness.launch.serialized_cell import CellFile

NO_TIME_LIMIT_MIN = 10**6  # submitit requires a limit; a job on this machine needs none


def start_background_job(cell_files: Sequence[CellFile], index: int, cfg: DictConfig, folder: Path, code: Path) -> str:
    """Start a job in the background of this machine and return its process id.

    `index` is the job's number within the command: jobs take turns at the visible GPUs.
    """
    from submitit import LocalExecutor

    gpus, devices = visible_gpus(), devices_per_cell(cfg)
    gpus_of_job = gpus[index * devices % max(1, len(gpus)) :][:devices]
    executor = LocalExecutor(folder, max_num_timeout=cfg.cluster.max_requeues)
    # submitit's own choice of GPUs handles indices, not UUIDs
    setup = [f"export CUDA_VISIBLE_DEVICES={shlex.quote(','.join(gpus_of_job))}"] if gpus_of_job else []
    executor.update_parameters(timeout_min=NO_TIME_LIMIT_MIN, stderr_to_stdout=True, setup=setup)
    with detached(code):
        return executor.submit(Job(), cell_files, max_workers=1, devices_per_cell=devices).job_id


@contextlib.contextmanager
def detached(code: Path) -> Iterator[None]:
    """Processes that start in this context import `code` and do not hold the terminal or the pipes of this process."""
    streams, python_path = [os.dup(1), os.dup(2)], os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(code), python_path]))
    sys.stdout.flush()
    try:
        with contextlib.chdir(code), open(os.devnull, "wb") as null:
            for descriptor in (1, 2):
                os.dup2(null.fileno(), descriptor)
            yield
    finally:
        for descriptor, stream in enumerate(streams, 1):
            os.dup2(stream, descriptor)
            os.close(stream)
        if python_path is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = python_path
