"""FIFOs, devices and folders in the place of data: each is one line at once, whichever reader meets it."""

import hashlib
import os
import shutil

import numpy as np
import pytest

from tasks import cache, data_sources, file_digests
from tasks.cache import CacheError
from tasks.checks import DataError
from tasks.completion.cloud_files import read_cloud
from tasks.data_sources import Download
from tasks.examples import Examples
from tasks.lm.json_tokenizer import JsonPieces
from tasks.lm.parquet import parquet_rows
from tasks.lm.wikitext103 import unpacked
from tasks.lra.image import opened, read_batches
from tasks.tts.phonemes import read_dictionary
from tests.helpers.layouts import KINDS, Layout
from tests.helpers.tasks import mutations, no_progress, survives

pytestmark = pytest.mark.usefixtures("alarm")
PARAMETERS = {"seed": 1}
EXAMPLES = Examples(np.arange(4, dtype=np.uint8), np.array([0, 2, 4]), np.zeros(2, np.uint8))

IN_PLACE_OF_A_FILE = {
    "a FIFO": os.mkfifo,
    "a directory": os.mkdir,
    "a device": lambda path: path.symlink_to("/dev/zero"),
}

READERS = {
    "the identity of a file": file_digests.identity,
    "the lines of a text": lambda file: list(data_sources.lines_of(file)),
    "the lines of a gzipped text": lambda file: list(data_sources.lines_of(file)),
    "an archive": lambda file: list(data_sources.archive(file, bool)),
    "a download": lambda file: Download("https://x.org/x", file.stat().st_size, "f00d").check(file),
    "a cloud": read_cloud,
    "a tokenizer": lambda file: JsonPieces(file, 10).identity,
    "a table of texts": parquet_rows,
    "an archive of texts": lambda file: unpacked(file, file.parent),
    "pictures": lambda file: read_batches(opened([file]), file),
    "a dictionary": read_dictionary,
}
ENDINGS = {"the lines of a gzipped text": ".gz", "a cloud": ".pcd"}


@pytest.mark.parametrize("kind", IN_PLACE_OF_A_FILE)
@pytest.mark.parametrize("reader", READERS)
def test_no_reader_of_data_waits(tmp_path, kind, reader):
    IN_PLACE_OF_A_FILE[kind](file := tmp_path / f"x{ENDINGS.get(reader, '')}")
    with pytest.raises(DataError) as error:
        READERS[reader](file)
    said = str(error.value)
    assert str(file) in said and f"{kind}, not a regular file" in said and "\n" not in said


@pytest.mark.parametrize("name", KINDS)
def test_files_that_are_missing_empty_or_damaged_are_one_line_or_read(tmp_path, monkeypatch, name):
    folder, root = tmp_path / "data", tmp_path / "prepared"
    layout = Layout(name, folder, root, monkeypatch)
    files = {file.suffix: file for file in sorted(folder.rglob("*")) if file.is_file()}
    for file in files.values():
        whole = file.read_bytes()
        for broken in (None, b"", *mutations(whole, 3)):
            file.unlink() if broken is None else file.write_bytes(broken)
            survives(layout.task())
            shutil.rmtree(root, ignore_errors=True)
        file.write_bytes(whole)
    shutil.rmtree(folder)
    assert not survives(layout.task()), "the folder is not there"
    folder.mkdir()
    assert not survives(layout.task()), "an empty folder"


def test_a_link_to_data_on_another_disk_is_followed(tmp_path):
    (disk := tmp_path / "disk").mkdir()
    (disk / "text").write_bytes(b"a\nb\n")
    (link := tmp_path / "text").symlink_to(disk / "text")
    assert [line for _, line in data_sources.lines_of(link)] == [b"a", b"b"]
    assert file_digests.identity(link) == hashlib.sha256(b"a\nb\n").hexdigest()


@pytest.mark.parametrize("kind", IN_PLACE_OF_A_FILE)
@pytest.mark.parametrize("name", ["manifest.json", "train.arrow"])
def test_no_reader_of_a_cache_waits_and_the_next_write_mends_it(tmp_path, kind, name):
    cache.write(folder := tmp_path / "set", {"train": EXAMPLES}, PARAMETERS)
    (folder / name).unlink()
    IN_PLACE_OF_A_FILE[kind](folder / name)
    with pytest.raises(CacheError, match=f"{name}: {kind}, not a regular file"):
        cache.read(folder, PARAMETERS)
    cache.write(folder, {"train": EXAMPLES}, PARAMETERS)
    assert cache.read(folder, PARAMETERS)[0]["train"].count == 2


@pytest.mark.parametrize("kind", [*IN_PLACE_OF_A_FILE, "a link"])
def test_a_lock_that_is_no_file_is_one_line(tmp_path, kind):
    (other := tmp_path / "other").write_text("of the user")
    IN_PLACE_OF_A_FILE.get(kind, lambda path: path.symlink_to(other))(tmp_path / ".set.lock")
    with pytest.raises(CacheError, match="cannot write"):
        cache.write(tmp_path / "set", {"train": EXAMPLES}, PARAMETERS)
    assert other.read_text() == "of the user"


@pytest.mark.parametrize("kind", [*IN_PLACE_OF_A_FILE, "a link"])
@pytest.mark.parametrize("name", [".x.lock", "x.part", "x"])
def test_a_download_writes_and_reads_only_files(tmp_path, monkeypatch, kind, name):
    (other := tmp_path / "other").write_text("of the user")
    IN_PLACE_OF_A_FILE.get(kind, lambda path: path.symlink_to(other))(tmp_path / name)
    asked = []
    monkeypatch.setattr("urllib.request.urlopen", lambda *_, **__: asked.append(1) or 1 / 0)
    with pytest.raises(DataError):
        Download("https://x.org/x", 99, "f00d").fetch(tmp_path, no_progress)
    assert other.read_text() == "of the user" and not asked


FORGED = ("[" * 10**6, "9" * 5000, "[]", "null", '{"format": NaN}', '{"format": 1, "parameters": {"seed": 1}}', "\xff")


@pytest.mark.parametrize("text", FORGED, ids=range(len(FORGED)))
def test_a_forged_manifest_is_one_line(tmp_path, text):
    cache.write(folder := tmp_path / "set", {"train": EXAMPLES}, PARAMETERS)
    (folder / "manifest.json").write_text(text, encoding="latin-1")
    with pytest.raises(CacheError) as error:
        cache.manifest(folder, PARAMETERS)
    assert "manifest.json" in str(error.value) and "\n" not in str(error.value) and len(str(error.value)) < 400
