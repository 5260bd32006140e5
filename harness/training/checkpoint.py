"""Checkpoints of a run: whether one can be resumed, and what its weights hash to."""

import hashlib
from pathlib import Path
from typing import Any

import torch
from torch import nn

from harness.errors import UsageError, one_line
from harness.training import fsdp

FORMAT = 3  # of what the callback saves; raised when an older checkpoint can no longer be resumed
CALLBACK = "TrainingCallback"  # its key in a checkpoint


def resumable_state(path: Path) -> dict[str, Any]:
    """What the callback saved as its state. Raises UsageError for a checkpoint that this version did not write."""
    try:
        checkpoint = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        saved = checkpoint.get("callbacks", {}).get(CALLBACK, {})
        written = saved.get("format")
    except Exception as error:
        raise UsageError(f"{path} cannot be read ({one_line(error)}): rerun=all trains from the start") from error
    if written != FORMAT:
        raise UsageError(
            f"{path} was written by another version and cannot be resumed: rerun=all trains from the start"
        )
    return saved["state"]


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
