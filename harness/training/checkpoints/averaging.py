"""The mean of the weights of the last evaluations (`train.select.rule=last_mean`), as fairseq averages checkpoints.

Each evaluation leaves its weights in a file of the run's folder, of which the last ones are kept, so that a run that
was killed and resumed averages the same ones.
"""

import re
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from harness.records.run_directory import RunDirectory
from harness.training.checkpoints.checkpoint import read_sealed, write_sealed

NAME = re.compile(r"step-(\d+)\.pt")


def weights_file(run_dir: RunDirectory, step: int) -> Path:
    return run_dir.checkpoints / f"step-{step}.pt"


def weights_files(run_dir: RunDirectory) -> list[Path]:
    """Those that are there, in the order of their steps."""
    found = {int(match[1]): file for file in run_dir.checkpoints.iterdir() if (match := NAME.fullmatch(file.name))}
    return [found[step] for step in sorted(found)]


def keep_last(run_dir: RunDirectory, count: int) -> None:
    for file in weights_files(run_dir)[:-count]:
        file.unlink(missing_ok=True)


def write_mean(run_dir: RunDirectory, cell: str, count: int) -> str:
    """Write the mean of the last `count` as the chosen weights of the cell with this id; returns the file's digest."""
    keep_last(run_dir, count)
    return write_sealed(run_dir.best, mean_of(weights_files(run_dir), cell), cell)


def mean_of(files: Sequence[Path], cell: str) -> dict[str, Tensor]:
    """Means in float64, rounded to the type of each tensor; integers, such as counters, are those of the last file.

    Raises DamagedError.
    """
    totals: dict[str, Tensor] = {}
    for file in files:
        weights = read_sealed(file, cell)
        for name, tensor in weights.items():
            if is_integer(tensor):
                totals[name] = tensor
            else:
                wide = tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)
                totals[name] = totals[name] + wide if name in totals else wide
    return {
        name: total if is_integer(total) else (total / len(files)).to(weights[name].dtype)
        for name, total in totals.items()
    }


def is_integer(tensor: Tensor) -> bool:
    return not (tensor.is_floating_point() or tensor.is_complex())
