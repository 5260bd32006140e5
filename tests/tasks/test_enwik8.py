"""enwik8 and text8 on small texts: the shares at bytes, copies packed or not, and what is not the published text."""

import gzip
import hashlib
import zipfile

import pytest

from tasks.data_sources import Download
from tasks.lm import enwik8
from tasks.lm.enwik8 import Enwik8, Text8
from tests.helpers.tasks import info_of, no_progress, refused

TEXT = ("A line of Wikipédia\r\n" * 99).encode()[:1999]


def packed(file, text=TEXT):
    if file.suffix == ".zip":
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(file.stem, text)
    else:
        file.write_bytes(gzip.compress(text) if file.suffix == ".gz" else text)
    return file


def task(path, kind=Enwik8, **options):
    return kind(data_root=path.parent / "data", path=path, tokenizer="bytes", length=16, **options)


def parts(made):
    for name in ("train", "val", "test"):
        stream = made.split(name).stream
        yield made.tokens_from.text(stream.tokens(0, len(stream)).tolist()).encode()


@pytest.mark.parametrize("end", ["", ".gz", ".zip"])
def test_a_text_is_cut_at_bytes_and_no_byte_is_changed(tmp_path, monkeypatch, end):
    file = packed(tmp_path / f"enwik8{end}")
    with refused(file, "1,999 bytes, not the published text", enwik8.ENWIK8.url, "task=lm/enwik8"):
        task(file).prepare(no_progress)
    part = task(file, source="slice")
    assert info_of(part).source == "slice:enwik8"
    cut = list(parts(part))
    assert b"".join(cut) == TEXT and [len(text) for text in cut] == [1799, 100, 100]
    monkeypatch.setattr(Enwik8, "sha256", hashlib.sha256(TEXT).hexdigest())
    whole = task(file)
    assert info_of(whole).source == "full" and list(parts(whole)) == cut
    scores = {name for name in whole.baselines() if name.endswith("gram_with_cache")}
    assert scores == {"6gram_with_cache"}


def test_the_archive_is_fetched_and_checked(tmp_path, monkeypatch):
    file = packed(tmp_path / "text8.zip", b"anarchism originated as a term of abuse first " * 60)
    data = file.read_bytes()
    download = Download("http://127.0.0.1:9/text8.zip", len(data), hashlib.sha256(data).hexdigest())
    monkeypatch.setattr(Text8, "archive", download)
    monkeypatch.setattr(Text8, "sha256", "0" * 64)
    made = Text8(data_root=tmp_path / "data", tokenizer="bytes", length=16)
    with refused("http://127.0.0.1:9/text8.zip", "not fetched", "task=lm/text8"):
        made.prepare(no_progress)
    (tmp_path / "data" / "downloads").mkdir(parents=True, exist_ok=True)
    (tmp_path / "data" / "downloads" / "text8.zip").write_bytes(data)
    with refused("2,760 bytes, not the published text"):
        made.prepare(no_progress)


@pytest.mark.parametrize("content", [b"no archive", None])
def test_an_archive_that_is_not_one_text_is_one_line(tmp_path, content):
    file = tmp_path / "text8.zip"
    if content is None:
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("a", "a")
            archive.writestr("b", "b")
    else:
        file.write_bytes(content)
    with refused(f"{file}:1: ", "put the file there"):
        task(file, Text8, source="slice").prepare(no_progress)
