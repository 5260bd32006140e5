"""The picture that a task draws of a trained model: a PNG beside the record, linked from the pages of the tables."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn

from harness.errors import one_line
from harness.records.atomic import write_bytes_atomic

if TYPE_CHECKING:
    from tasks.base import Task

DPI = (100, 72, 50)
BYTES = 150_000  # it is committed with its record: the first resolution that stays below, or else the last


def save(task: "Task", model: nn.Module, path: Path, say: Callable[[str], object]) -> None:
    """Write what the task draws to `path`, whole or not at all. What it draws none of leaves no file there.

    A failure is said in one line: no record is lost for a picture.
    """
    try:
        drawn = draw(task, model)
        if drawn:
            write_bytes_atomic(path, drawn)
        else:
            path.unlink(missing_ok=True)
    except Exception as error:
        path.unlink(missing_ok=True)  # that of an earlier attempt shows another model
        say(f"no picture: {type(error).__name__}: {one_line(error)}")


def draw(task: "Task", model: nn.Module) -> bytes | None:
    """The PNG, in evaluation mode and without gradients; torch's generators are left as they were."""
    training = model.training
    devices = {parameter.device for parameter in model.parameters() if parameter.device.type == "cuda"}
    model.eval()
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=sorted(devices, key=str)):
            figure = task.artifacts(model).get("png")
    finally:
        model.train(training)
    if figure is None:
        return None
    for dpi in DPI:
        page = io.BytesIO()
        figure.savefig(page, format="png", dpi=dpi, metadata={"Software": None})
        if page.tell() <= BYTES:
            break
    return page.getvalue()
