"""The rank of this process among those that share one cell, known before torch or Lightning are imported."""

import os

# set by torchrun; by srun; by Lightning for the processes that it starts on one machine
VARIABLES = ("RANK", "SLURM_PROCID", "LOCAL_RANK")


def rank() -> int:
    """0 for the process that claims the run directory, prints and writes; all others only compute."""
    return next((int(os.environ[name]) for name in VARIABLES if name in os.environ), 0)


def launched_as_group() -> bool:
    """Whether torchrun, srun or Lightning started this process as one of several."""
    return "LOCAL_RANK" in os.environ or int(os.environ.get("SLURM_STEP_NUM_TASKS", 1)) > 1
