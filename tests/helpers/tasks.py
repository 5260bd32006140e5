"""Helpers for tests of tasks: silent progress, one-line errors, archives, and ways to break bytes."""

import contextlib
import hashlib
import io
import random
import sys
import tarfile
import types
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tasks.base import Task
from tasks.checks import DataError
from tasks.data_sources import Download


def no_progress(*_):
    """Progress that is not shown."""


def info_of(task):
    """What the task says of its data when it is prepared and loaded."""
    task.prepare(no_progress)
    return task.load()


def ready(task):
    """The task, prepared and loaded."""
    info_of(task)
    return task


def never(*call):
    raise AssertionError(f"worked although all was there: {call}")


def one_line(error, *parts):
    """The caught error says all of `parts` in one line."""
    text = str(error.value)
    assert "\n" not in text
    for part in parts:
        assert str(part) in text, text


@contextlib.contextmanager
def refused(*parts: object, kind: type[Exception] = DataError, match: str | None = None) -> Iterator[None]:
    """The block raises an error of one line with all of `parts`, and with the pattern."""
    with pytest.raises(kind, match=match) as error:
        yield
    one_line(error, *parts)


def refuses(task: Task, *parts: object) -> None:
    """Preparing raises one line with all of `parts` and the next command, and leaves no cache, whole or half."""
    with refused(*parts, f"do=prepare task={task.name}"):
        task.prepare(no_progress)
    assert not list(task.data_root.rglob("*.arrow")) and not list(task.data_root.rglob("manifest.json"))


def survives(task: Task) -> bool:
    """Preparing succeeds and its result loads, or one of the two is refused. Returns whether both succeeded."""
    is_prepared = False
    try:
        task.prepare(no_progress)
        is_prepared = True
        info = task.load()  # do=prepare does so, too
    except DataError as error:
        assert "\n" not in str(error) and f"do=prepare task={task.name}" in str(error)
        written = [file for file in task.data_root.rglob("*.arrow") if not file.parent.name.startswith(".")]
        assert is_prepared or not written
        return False
    for name in ("train", "val", "test"):
        task.split(name).batch(range(info.sizes[name]))
    return True


def mutations(data: bytes, count: int, seed: int = 0) -> Iterator[bytes]:
    """`count` broken copies of the bytes: cut, or with changed, lost, doubled and foreign pieces."""
    draw = random.Random(seed)
    for _ in range(count):
        broken = bytearray(data)
        for _ in range(draw.randint(1, 3)):
            at = draw.randrange(len(broken) + 1)
            length = draw.choice((1, 1, 2, 7, 60))
            foreign = bytes(draw.choice((0, 9, 10, 13, 34, 46, 47, 128, 255)) for _ in range(length))
            kind = draw.randrange(5)
            if kind == 0:
                del broken[at:]
            elif kind == 1:
                broken[at : at + length] = foreign
            elif kind == 2:
                del broken[at : at + length]
            elif kind == 3:
                broken[at:at] = broken[max(0, at - length) : at]
            else:
                broken[at:at] = foreign
        yield bytes(broken)


def tar(file: Path, members: Mapping[str, bytes]) -> Path:
    """A gzipped archive of these members under any names."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(file, "w:gz") as archive:
        for name, data in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return file


def baseline_scores(task: Task, name: str = "", split: str = "test") -> dict[str, float]:
    """The metrics of a baseline of the loaded task, of the chance level unless named, on all of a split at once."""
    metrics, examples = task.metrics(), task.split(split)
    task.score(task.baselines()[name or task.baseline_name](), examples.batch(range(len(examples))), metrics)
    return {metric: float(value) for metric, value in metrics.compute().items()}


def library(monkeypatch, kind: str, data: Mapping[str, list[dict]]) -> None:
    """The hub, or TFDS, with these rows in its splits."""
    if kind == "hf":
        import datasets

        monkeypatch.setattr(datasets, "load_dataset", lambda name, revision, split: data[split])
        return
    builder = types.SimpleNamespace(download_and_prepare=lambda: None, as_data_source=data.__getitem__)
    module = types.SimpleNamespace(builder=lambda name, data_dir, file_format: builder)
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", module)


def published(monkeypatch, module, file: Path, members: Mapping[str, bytes]) -> Path:
    """An archive of these members that `module.ARCHIVE` now means."""
    data = tar(file, members).read_bytes()
    download = Download(f"http://127.0.0.1:9/{file.name}", len(data), hashlib.sha256(data).hexdigest())
    monkeypatch.setattr(module, "ARCHIVE", download)
    return file
