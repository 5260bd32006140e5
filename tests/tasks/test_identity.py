"""Data are known by every byte that their numbers follow from, and by nothing else."""

import os
import re

import pytest

from harness.config.compose import options
from harness.errors import UsageError
from longhaul import plan
from tasks import file_digests
from tasks.checks import DataError
from tests.helpers.layouts import LAYOUTS, Layout
from tests.helpers.tasks import info_of

STRANGERS = ("notes.log", ".DS_Store", "._a.txt", "Thumbs.db", "notes.ipynb")


def test_every_task_that_reads_files_is_tested():
    assert {name for name, _ in options("task") if not name.startswith("probe/")} == set(LAYOUTS)


@pytest.mark.parametrize("name", LAYOUTS)
def test_each_byte_of_each_file_counts_and_no_byte_of_a_stranger(tmp_path, monkeypatch, name):
    folder, own = tmp_path / "data", name.startswith(("data/", "forecasting/own"))
    layout = Layout(name, folder, tmp_path / "prepared", monkeypatch)

    def identity():
        """The fingerprint, and of own data the cell's id, which waits for no data; or why there is none."""
        try:
            task = layout.task()
            return info_of(task).fingerprint, plan("model=vanilla", *layout.words)["id"].iloc[0] if own else ""
        except (DataError, UsageError) as error:
            return str(error), "none" if own else ""

    before = identity()
    assert re.fullmatch("[0-9a-f]{64}", before[0]), before[0]
    for file in [path for path in sorted(folder.rglob("*")) if path.is_file()]:
        data = file.read_bytes()
        at = len(data) // 2
        file.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        assert all(new != old for new, old in zip(identity(), before, strict=True) if old), file
        file.write_bytes(data)
    cache = folder / "lra/listops/0123456789ab"
    cache.mkdir(parents=True)
    for place in [path for path in folder.rglob("*") if path.is_dir() and path != cache] + [folder]:
        for stranger in STRANGERS:
            (place / stranger).write_text("a stranger")
    for prepared in ("manifest.json", "train.arrow"):
        (cache / prepared).write_text("prepared")
    assert identity() == before


def test_a_digest_that_is_remembered_is_that_of_the_content(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(file_digests, "WORTH_REMEMBERING", 10)
    file = tmp_path / "a.txt"
    file.write_bytes(b"a" * 100)
    made = []
    whole = file_digests._sha256
    monkeypatch.setattr(file_digests, "_sha256", lambda file: made.append(file) or whole(file))

    def digest():
        monkeypatch.setattr(file_digests, "_known", {})  # another process
        return file_digests.identity(file)

    first = digest()
    assert digest() == first and made == [file], "remembered"
    status = file.stat()
    with open(file, "r+b") as stream:  # as many bytes, in place, under the old time
        stream.seek(50)
        stream.write(b"b")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert digest() != first and len(made) == 2
