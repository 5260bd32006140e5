"""Files of weights and checkpoints: whole and of the right cell, or refused.

Each is what torch.save writes, and behind it a line with the id of its cell and a sha256 over all that stands before
the digest. `torch.load` reads such a file as any other. Of `last.ckpt` and of `best.pt` the one before is kept, so a
damaged file costs the updates between two checkpoints.
"""

import errno
import hashlib
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins.io.checkpoint_io import CheckpointIO
from torch import nn

from harness.errors import UsageError, one_line
from harness.records.atomic import replace_atomic
from harness.records.run_directory import RunDirectory
from harness.training import fsdp

FORMAT = 4  # of what the callback saves; raised when an older checkpoint can no longer be resumed
CALLBACK = "TrainingCallback"  # its key in a checkpoint
SEAL = re.compile(rb"\nlonghaul ([0-9a-f]{16}) ([0-9a-f]{64})\n")
SEAL_BYTES = len("\nlonghaul  \n") + 16 + 64
DIGEST_BYTES = 64 + 1  # at the end of the line
BLOCK = 2**20


class DamagedError(UsageError):
    """A file that is not what was written, or of another cell. One line: file, what is wrong."""


def write_sealed(path: Path, content: Any, cell: str, keep: Path | None = None) -> str:
    """Replace a file by tensors, of the cell with this id; returns its digest. The old file is kept at `keep`."""
    digest = ""

    def write(temporary: Path) -> None:
        nonlocal digest
        try:
            torch.save(content, temporary)
        except RuntimeError as error:  # of torch's own writer
            raise OSError(
                errno.EIO, f"cannot be written ({one_line(error)[:80]}); is the disk full?", str(path)
            ) from error
        with temporary.open("r+b") as file:
            sha = hashlib.file_digest(file, "sha256")
            line = f"\nlonghaul {cell} ".encode()
            sha.update(line)
            digest = sha.hexdigest()
            file.write(line + f"{digest}\n".encode())

    replace_atomic(path, write, keep=keep)
    return digest


def seal_of(path: Path, cell: str) -> str:
    """The digest of a file, which is compared with its content. Raises DamagedError."""
    try:
        size = os.stat(path).st_size
        with path.open("rb") as file:
            sha, left = hashlib.sha256(), max(0, size - DIGEST_BYTES)
            while left and (block := file.read(min(BLOCK, left))):
                sha.update(block)
                left -= len(block)
            file.seek(max(0, size - SEAL_BYTES))
            seal = SEAL.fullmatch(file.read())
    except OSError as error:
        raise DamagedError(f"{path} cannot be read ({error.strerror})") from error
    if seal is None or sha.hexdigest() != seal[2].decode():
        raise DamagedError(f"{path} is damaged")
    if seal[1].decode() != cell:
        raise DamagedError(f"{path} belongs to another cell ({seal[1].decode()}, not {cell})")
    return seal[2].decode()


def read_sealed(path: Path, cell: str) -> Any:
    """What `write_sealed` was given, on the CPU. Raises DamagedError."""
    seal_of(path, cell)
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
class Resumption:
    """Where a run goes on. `state`: what the callback saved. `problems`: why younger checkpoints cannot be used."""

    checkpoint: Path | None  # None: from the start
    state: Mapping[str, Any]
    problems: tuple[str, ...]


def resumption(run_dir: RunDirectory, cell: str) -> Resumption:
    """The youngest checkpoint that is whole, with the weights that it refers to, of this cell; writes no file.

    Raises UsageError if there is only what another version wrote.
    """
    problems, other_version = [], None
    for path in filter(Path.is_file, (run_dir.last, run_dir.previous)):
        try:
            saved = read_sealed(path, cell)["callbacks"].get(CALLBACK, {})
            if saved.get("format") != FORMAT:
                raise DamagedError(f"{path} was written by another version and cannot be resumed")
            for name, digest in saved["state"]["weights"].items():
                whole_weights(run_dir, name, digest, cell)
            return Resumption(path, saved["state"], tuple(problems))
        except DamagedError as error:
            problems.append(str(error))
            if format_of(path) not in (FORMAT, None):
                other_version = other_version or f"{path} was written by another version and cannot be resumed"
    if other_version:
        raise UsageError(f"{other_version}: rerun=all trains from the start")
    return Resumption(None, {}, tuple(problems))


def format_of(path: Path) -> int | None:
    """What a checkpoint says of itself, 0 if it says nothing; None for a file that cannot be read."""
    try:
        saved = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        return saved["callbacks"].get(CALLBACK, {}).get("format", 0)
    except Exception:  # whatever torch's reader makes of a damaged file
        return None


def whole_weights(run_dir: RunDirectory, name: str, digest: str, cell: str) -> Path:
    """The file with these weights: of that name, or the best ones of before. Raises DamagedError."""
    path = run_dir.checkpoints / name
    try:
        if seal_of(path, cell) == digest:
            return path
        problem = f"{path} is not of the same run as the checkpoint"
    except DamagedError as error:
        problem = str(error)
    before = run_dir.previous_best
    if path == run_dir.best and before.is_file() and seal_of(before, cell) == digest:
        return before
    raise DamagedError(problem)


def put_back(run_dir: RunDirectory, start: Resumption, cell: str) -> None:
    """Put weights that a checkpoint refers to back in their place, where younger or damaged ones stand there."""
    for name, digest in start.state.get("weights", {}).items():
        found = whole_weights(run_dir, name, digest, cell)
        if found != run_dir.checkpoints / name:
            replace_atomic(run_dir.checkpoints / name, partial(shutil.copyfile, found))


def read_weights(run_dir: RunDirectory, cell: str, digest: str) -> Any:
    """The best weights, which must be those that the run chose. Raises DamagedError."""
    if seal_of(run_dir.best, cell) != digest:
        raise DamagedError(f"{run_dir.best} is not what this run wrote; rerun=all trains from the start")
    return read_sealed(run_dir.best, cell)


def weights_sha256(model: nn.Module) -> str:
    """sha256 over names, types and values of all weights: equal for two runs only if they agree to the last bit.

    A collective call where the model is sharded.
    """
    return state_sha256(model.state_dict())


def state_sha256(state: dict[str, Any]) -> str:
    sha = hashlib.sha256()
    for name, tensor in sorted(state.items()):
        sha.update(name.encode() + str(tensor.dtype).encode())
        sha.update(fsdp.full_tensor(tensor).detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return sha.hexdigest()
