"""A small cell that a test can kill between two updates and start again."""

import functools
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harness.config.cell import cell_of
from harness.config.compose import compose
from harness.records import record
from harness.records.run_directory import RunDirectory
from harness.training.callback import TrainingCallback
from harness.training.run_cell import run_cell
from tests.helpers.cells import SAVED_OFTEN, request_of

_KEPT = tempfile.TemporaryDirectory()  # run folders of killed cells, which several tests resume


class Killed(BaseException):
    pass


@dataclass
class Run:
    """A cell in folders of its own; the data are shared."""

    places: list[str]

    def config(self, *typed: str) -> Any:
        return compose([*SAVED_OFTEN, *self.places, *typed])

    def __call__(self, *typed: str) -> Any:
        return run_cell(request_of(self.config(*typed)))

    @functools.cached_property
    def folder(self) -> RunDirectory:
        cfg = self.config()
        return RunDirectory(cell_of(cfg).folder(cfg))

    @functools.cached_property
    def record_path(self) -> Path:
        cfg = self.config()
        return cell_of(cfg).record_path(cfg)

    def record(self) -> dict[str, Any]:
        return record.read(self.record_path)

    def killed(self, monkeypatch: pytest.MonkeyPatch, saves: int, *typed: str) -> None:
        """Kills the cell after this number of saved checkpoints; a new cell is killed once, and copied after that."""
        outputs = Path(self.config().paths.outputs)
        kept, is_new = Path(_KEPT.name) / " ".join([str(saves), *typed]), not outputs.exists()
        if is_new and kept.exists():
            shutil.copytree(kept, outputs)
            return
        real, seen = TrainingCallback._save, []

        def save(callback, trainer):
            real(callback, trainer)
            seen.append(trainer.global_step)
            if len(seen) == saves:
                raise Killed

        with monkeypatch.context() as patched:
            patched.setattr(TrainingCallback, "_save", save)
            with pytest.raises(Killed):
                self(*typed)
        if is_new:
            shutil.copytree(outputs, kept)
