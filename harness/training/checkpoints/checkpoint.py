"""The files below `checkpoints/` of a run: written whole, sealed for their cell, and chosen, checked and put back here.

Each file is what `torch.save` writes plus a seal (`harness.records.files`); `torch.load` reads it like any other. The
previous `last.ckpt` and the previous `best.pt` are kept, so a damaged file costs only the updates between two
checkpoints. `train.select.rule=last_mean` keeps the weights of the last evaluations, `step-<n>.pt`, and tests their
mean, as fairseq averages checkpoints. A run that was killed and resumed averages the same weights.
"""

import errno
import hashlib
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins.io.checkpoint_io import CheckpointIO
from torch import Tensor, nn

from harness.errors import UsageError, one_line
from harness.records.files import DamagedError, check_seal, replace_atomic, seal
from harness.records.run_directory import RunDirectory

FORMAT = 4  # of what the callback saves; raised when an older checkpoint can no longer be resumed
CALLBACK = "TrainingCallback"  # its key in a checkpoint
EVALUATED = re.compile(r"step-(\d+)\.pt")


def write_sealed(path: Path, content: Any, cell: str, keep: Path | None = None) -> str:
    """Replace a file by tensors of the cell with this id; returns its digest. The old file moves to `keep`."""
    digest = ""

    def write(temporary: Path) -> None:
        nonlocal digest
        try:
            torch.save(content, temporary)
        except RuntimeError as error:  # of torch's own writer
            raise OSError(
                errno.EIO, f"cannot be written ({one_line(error)[:80]}); is the disk full?", str(path)
            ) from error
        digest = seal(temporary, cell)

    replace_atomic(path, write, keep=keep)
    return digest


def read_sealed(path: Path, cell: str) -> Any:
    """What `write_sealed` was given, on the CPU. Raises DamagedError."""
    check_seal(path, cell)
    return torch.load(path, map_location="cpu", weights_only=True, mmap=True)


class SealedCheckpoints(CheckpointIO):
    """Lightning's plugin that writes and reads the checkpoints of one cell."""

    def __init__(self, cell: str, run_dir: RunDirectory):
        self.cell, self.run_dir = cell, run_dir

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        write_sealed(Path(path), checkpoint, self.cell, keep=self.run_dir.previous)

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = None) -> dict[str, Any]:
        return read_sealed(Path(path), self.cell)

    def remove_checkpoint(self, path: Any) -> None:
        Path(path).unlink(missing_ok=True)


@dataclass(frozen=True)
class Start:
    """Where an attempt starts. `state`: saved by the callback. `problems`: why younger checkpoints are not used."""

    checkpoint: Path | None = None  # None: from the first update
    state: Mapping[str, Any] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    def require_unchanged(self, key: str, now: str | None, subject: str) -> None:
        """Raises UsageError if the digest in the saved state differs: no run mixes two versions of code or data."""
        then = self.state.get(key)
        if None not in (then, now) and then != now:
            changed = f"{subject} changed since ({then[:8]}, now {now[:8]})"
            raise UsageError(f"{self.checkpoint}: {changed}; rerun=all trains from the start")


def find_start(run_dir: RunDirectory, cell: str) -> Start:
    """The youngest checkpoint of this cell that is whole, together with all weights it refers to; writes no file.

    Raises UsageError for a whole checkpoint of another version.
    """
    problems: list[str] = []
    for path in filter(Path.is_file, (run_dir.last, run_dir.previous)):
        try:
            saved = read_sealed(path, cell)["callbacks"].get(CALLBACK, {})
            if saved.get("format") != FORMAT:
                version = "was written by another version and cannot be resumed"
                raise UsageError(f"{path} {version}: rerun=all trains from the start")
            for name, digest in saved["state"]["weights"].items():
                find_weights(run_dir, name, digest, cell)
            return Start(path, saved["state"], tuple(problems))
        except DamagedError as error:
            problems.append(str(error))
    return Start(problems=tuple(problems))


def find_weights(run_dir: RunDirectory, name: str, digest: str, cell: str) -> Path:
    """The file with these weights: the one with this name, or the previous best weights. Raises DamagedError."""
    path = run_dir.checkpoints / name
    try:
        if check_seal(path, cell) == digest:
            return path
        problem = f"{path} is not of the same run as the checkpoint"
    except DamagedError as error:
        problem = str(error)
    previous = run_dir.previous_best
    if path == run_dir.best and previous.is_file() and check_seal(previous, cell) == digest:
        return previous
    raise DamagedError(problem)


def restore(run_dir: RunDirectory, start: Start, cell: str) -> None:
    """Prepare an acquired run directory for a start: put back the weights that its checkpoint refers to, or clear it.

    Younger or damaged weights may have their names.
    """
    if start.checkpoint is None:
        run_dir.clear()
    for name, digest in start.state.get("weights", {}).items():
        path = find_weights(run_dir, name, digest, cell)
        if path != run_dir.checkpoints / name:
            replace_atomic(run_dir.checkpoints / name, partial(shutil.copyfile, path))


def read_weights(run_dir: RunDirectory, cell: str, digest: str) -> Any:
    """The best weights, which must be those that the run chose. Raises DamagedError."""
    if check_seal(run_dir.best, cell) != digest:
        raise DamagedError(f"{run_dir.best} is not what this run wrote; rerun=all trains from the start")
    return read_sealed(run_dir.best, cell)


def evaluated_file(run_dir: RunDirectory, step: int) -> Path:
    return run_dir.checkpoints / f"step-{step}.pt"


def evaluated_files(run_dir: RunDirectory) -> list[Path]:
    """The weights of the last evaluations, in the order of their steps."""
    files = {int(match[1]): path for path in run_dir.checkpoints.iterdir() if (match := EVALUATED.fullmatch(path.name))}
    return [files[step] for step in sorted(files)]


def keep_last(run_dir: RunDirectory, count: int) -> None:
    for file in evaluated_files(run_dir)[:-count]:
        file.unlink(missing_ok=True)


def write_mean(run_dir: RunDirectory, cell: str, count: int) -> str:
    """Write the mean of the last `count` evaluated weights as the chosen weights; returns the digest of the file."""
    keep_last(run_dir, count)
    return write_sealed(run_dir.best, mean_of(evaluated_files(run_dir), cell), cell)


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


def weights_sha256(model: nn.Module) -> str:
    """sha256 over names, types and values of all weights: equal for two runs only if they agree to the last bit.

    A collective call if the model is sharded.
    """
    return state_sha256(model.state_dict())


def state_sha256(state: dict[str, Any]) -> str:
    sha = hashlib.sha256()
    for name, tensor in sorted(state.items()):
        sha.update(name.encode() + str(tensor.dtype).encode())
        whole = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor  # a sharded model has DTensors
        sha.update(whole.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return sha.hexdigest()
