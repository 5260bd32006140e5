"""Jobs in the background of this machine (`hydra/launcher=background`), through submitit."""

import contextlib
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from omegaconf import DictConfig

from harness.launch.job import Job
from harness.launch.local import gpus, width

UNTIL_DONE = 10**6  # minutes: nothing limits a job on one's own machine


def send_here(files: Sequence[str], place: int, cfg: DictConfig, folder: Path, code: Path) -> str:
    """Start a job in the background of this machine; returns its process' number."""
    from submitit import LocalExecutor

    seen, devices = gpus(), width(cfg)
    share = seen[place * devices % max(1, len(seen)) :][:devices]
    executor = LocalExecutor(folder, max_num_timeout=cfg.cluster.max_requeues)
    # submitit's own choice of GPUs knows numbers alone
    setup = [f"export CUDA_VISIBLE_DEVICES={shlex.quote(','.join(share))}"] if share else []
    executor.update_parameters(timeout_min=UNTIL_DONE, stderr_to_stdout=True, setup=setup)
    with in_the_background(code):
        return executor.submit(Job(), files, at_once=1, width=devices).job_id


@contextlib.contextmanager
def in_the_background(code: Path) -> Iterator[None]:
    """What is started now imports `code`, and holds neither our terminal nor our pipes."""
    before, modules = [os.dup(1), os.dup(2)], os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(code), modules]))
    sys.stdout.flush()
    try:
        with contextlib.chdir(code), open(os.devnull, "wb") as nowhere:
            for number in (1, 2):
                os.dup2(nowhere.fileno(), number)
            yield
    finally:
        for number, handle in enumerate(before, 1):
            os.dup2(handle, number)
            os.close(handle)
        if modules is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = modules
