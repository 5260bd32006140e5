"""Small files that a task makes with a trained model: a figure, a text, a sound.

They are stored beside the record as `<record stem>.<suffix>` and committed with it, so their size is limited. A file
that cannot be made is reported in one line and never costs the record.
"""

import glob
import hashlib
import io
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from harness.errors import one_line
from harness.records.files import write_bytes_atomic
from harness.records.png import with_palette
from harness.records.predictions import path_of
from models.generation.state import evaluating

if TYPE_CHECKING:
    from tasks.base import Task

DPI = (100, 72, 50)
MAX_PNG_BYTES = 150_000  # a figure takes the first resolution below this, or else the last
MAX_BYTES = 500_000


def save_artifacts(task: "Task", model: nn.Module, record_path: Path, say: Callable[[str], object]) -> dict[str, str]:
    """Write the task's artifacts beside the record and remove those of an earlier attempt: {file name: sha256}."""
    devices = {parameter.device for parameter in model.parameters() if parameter.device.type == "cuda"}
    try:
        with evaluating(model), torch.random.fork_rng(devices=sorted(devices, key=str)):
            contents = dict(task.artifacts(model))
    except Exception as error:
        say(f"no artifacts: {type(error).__name__}: {one_line(error)}")
        contents = {}
    saved = {}
    for suffix, content in contents.items():
        name = f"{record_path.stem}.{suffix}"
        try:
            data = encoded(suffix, content)
            write_bytes_atomic(record_path.with_name(name), data)
            saved[name] = hashlib.sha256(data).hexdigest()
        except Exception as error:
            say(f"no artifact {name}: {type(error).__name__}: {one_line(error)}")
    remove_artifacts(record_path, keep=saved)
    return saved


def remove_artifacts(record_path: Path, keep: Collection[str] = ()) -> None:
    """Remove the artifacts of a record, because they show an earlier model. Its predictions and folders stay."""
    for path in record_path.parent.glob(f"{glob.escape(record_path.stem)}.*"):
        is_folder = path.is_dir() and not path.is_symlink()
        if path not in (record_path, path_of(record_path)) and path.name not in keep and not is_folder:
            path.unlink(missing_ok=True)


def encoded(suffix: str, content: Any) -> bytes:
    """The bytes of an artifact. Raises ValueError for a suffix or a size that is not allowed, TypeError for a type."""
    if suffix in ("json", "npz", "") or "/" in suffix:
        raise ValueError(f"an artifact cannot be named .{suffix}")
    if hasattr(content, "savefig"):
        data = png(content)
    elif isinstance(content, str):
        data = content.encode()
    elif isinstance(content, bytes):
        data = content
    else:
        raise TypeError(f"an artifact is a figure, str or bytes, not {type(content).__name__}")
    if len(data) > MAX_BYTES:
        raise ValueError(f"{len(data):,} bytes are more than {MAX_BYTES:,}")
    return data


def png(figure: Any) -> bytes:
    for dpi in DPI:
        page = io.BytesIO()
        figure.savefig(page, format="png", dpi=dpi, metadata={"Software": None})
        data = with_palette(page)
        if len(data) <= MAX_PNG_BYTES:
            break
    return data
