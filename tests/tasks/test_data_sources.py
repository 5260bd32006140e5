"""Downloads that resume and are checked, archives, text files: all that can be wrong with them is one line."""

import functools
import gzip
import hashlib
import io
import re
import sys
import tarfile
import threading
import types
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tasks import data_sources
from tasks.checks import DataError
from tasks.data_sources import Download
from tests.helpers.tasks import no_progress, refused, tar

BODY = bytes(range(256)) * 5000


class Server(BaseHTTPRequestHandler):
    """Serves BODY; `mode` says how badly."""

    def do_GET(self):
        server = self.server
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        start = int(asked[1]) if asked and server.mode != "no ranges" else 0
        server.starts.append(start)
        if server.mode == "missing":
            return self.send_error(404)
        body = {"other": b"x" * len(BODY), "long": BODY + b"more"}.get(server.mode, BODY)[start:]
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 3] if server.mode == "breaks off" else body)

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    server.mode, server.starts = "good", []
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def download(server):
    url = f"http://127.0.0.1:{server.server_port}/data.tar.gz"
    return Download(url, len(BODY), hashlib.sha256(BODY).hexdigest())


def test_fetched_once_and_checked(download, server, tmp_path):
    calls = []
    file = download.fetch(tmp_path / "new", lambda *call: calls.append(call))
    assert file == tmp_path / "new" / "data.tar.gz" and file.read_bytes() == BODY
    assert calls[-1] == ("fetching data.tar.gz", len(BODY), len(BODY))
    assert download.fetch(tmp_path / "new", no_progress) == file
    assert server.starts == [0], "what is there is not fetched again"
    assert sorted(path.name for path in file.parent.iterdir()) == ["data.tar.gz"]


@pytest.mark.parametrize(("mode", "starts"), [("good", [0, len(BODY) // 3]), ("no ranges", [0, 0])])
def test_goes_on_where_it_broke_off(download, server, tmp_path, mode, starts):
    server.mode = "breaks off"
    with refused(download.url, "broke off after", f"of {len(BODY):,} bytes", tmp_path / "data.tar.gz"):
        download.fetch(tmp_path, no_progress)
    assert (tmp_path / "data.tar.gz.part").stat().st_size == len(BODY) // 3
    assert not (tmp_path / "data.tar.gz").exists()
    server.mode = mode
    assert download.fetch(tmp_path, no_progress).read_bytes() == BODY
    assert server.starts == starts


@pytest.mark.parametrize(("mode", "reason"), [("other", "sha256"), ("long", "bytes instead of")])
def test_the_wrong_file_is_thrown_away(download, server, tmp_path, mode, reason):
    server.mode = mode
    with refused(download.url, reason, "thrown away"):
        download.fetch(tmp_path, no_progress)
    assert not list(tmp_path.iterdir())
    server.mode = "good"
    assert download.fetch(tmp_path, no_progress).read_bytes() == BODY


def test_a_wrong_beginning_is_not_gone_on_with(download, tmp_path):
    (tmp_path / "data.tar.gz.part").write_bytes(b"x" * 1000)
    with pytest.raises(DataError, match="thrown away"):
        download.fetch(tmp_path, no_progress)
    assert download.fetch(tmp_path, no_progress).read_bytes() == BODY
    (tmp_path / "data.tar.gz").unlink()
    (tmp_path / "data.tar.gz.part").write_bytes(BODY * 2)
    assert download.fetch(tmp_path, no_progress).read_bytes() == BODY


def test_what_cannot_be_fetched_says_what_to_do(download, server, tmp_path):
    server.mode = "missing"
    with refused(download.url, "404", tmp_path / "data.tar.gz"):
        download.fetch(tmp_path, no_progress)
    nowhere = Download("http://127.0.0.1:9/data.tar.gz", 1, "00")
    with refused(nowhere.url, "not fetched"):
        nowhere.fetch(tmp_path, no_progress)
    (tmp_path / "file").write_text("")
    with refused(download.url, "not fetched"):
        download.fetch(tmp_path / "file", no_progress)


def test_a_copy_that_was_put_there_is_checked(download, server, tmp_path):
    (tmp_path / "data.tar.gz").write_bytes(BODY[:-1])
    with refused(tmp_path / "data.tar.gz", f"{len(BODY) - 1:,} bytes instead of {len(BODY):,}"):
        download.fetch(tmp_path, no_progress)
    (tmp_path / "data.tar.gz").write_bytes(BODY[:-1] + b"x")
    with refused(tmp_path / "data.tar.gz", "sha256", download.url):
        download.check(tmp_path / "data.tar.gz")
    with refused(tmp_path / "nothing", ":1: No such file"):
        download.check(tmp_path / "nothing")
    assert server.starts == []


def test_two_that_fetch_at_once(download, server, tmp_path):
    files, errors = [], []

    def fetch():
        try:
            files.append(download.fetch(tmp_path, no_progress).read_bytes())
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=fetch) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors and files == [BODY] * 4 and server.starts == [0]


# archives


def everything(file):
    return {name: stream.read() for name, stream in data_sources.archive(file, lambda name: True)}


def test_archive_gives_what_is_wanted(tmp_path):
    file = tar(tmp_path / "a.tar.gz", {"x/1.txt": b"one", "x/2.txt": b"two", "y": b""})
    assert everything(file) == {"x/1.txt": b"one", "x/2.txt": b"two", "y": b""}
    assert [name for name, _ in data_sources.archive(file, lambda name: name.endswith("2.txt"))] == ["x/2.txt"]
    assert [path.name for path in tmp_path.iterdir()] == ["a.tar.gz"], "nothing is unpacked"


@pytest.mark.parametrize("name", ["../evil.txt", "x/../../evil.txt", "/etc/evil.txt", "a\nb/../evil"])
def test_archive_that_leads_out_is_refused(tmp_path, name):
    file = tar(tmp_path / "a.tar.gz", {name: b"bad", "x/1.txt": b"one"})
    with refused(file, "leads out of it"):
        everything(file)


def test_links_are_no_files(tmp_path):
    file = tmp_path / "a.tar"
    with tarfile.open(file, "w") as archive:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE):
            entry = tarfile.TarInfo("member")
            entry.type, entry.linkname = kind, "/etc/passwd"
            archive.addfile(entry)
    assert everything(file) == {}


@pytest.mark.parametrize("kind", ["cut", "no archive", "empty", "missing", "folder"])
def test_broken_archives(tmp_path, kind):
    file = tar(tmp_path / "a.tar.gz", {"x/1.txt": bytes(i * i % 251 for i in range(50_000))})
    data = file.read_bytes()
    file.unlink()
    if kind == "folder":
        file.mkdir()
    elif kind != "missing":
        file.write_bytes({"cut": data[: len(data) // 2], "no archive": b"<html>" * 999, "empty": b""}[kind])
    with refused(file):
        for name, stream in data_sources.archive(file, lambda name: True):
            data_sources.content(stream, f"{file}/{name}")


@pytest.mark.parametrize("extra", [{"GNU.sparse.map": "x,y"}, {"GNU.sparse.size": "abc"}])
def test_headers_that_make_no_sense(tmp_path, extra):
    file = tmp_path / "a.tar"
    with tarfile.open(file, "w", format=tarfile.PAX_FORMAT) as archive:
        entry = tarfile.TarInfo("x/1.txt")
        entry.pax_headers = extra
        archive.addfile(entry)
    with refused(file):
        everything(file)


def test_a_member_that_is_too_large(tmp_path, monkeypatch):
    monkeypatch.setattr(data_sources, "LARGEST_MEMBER", 10)
    assert data_sources.content(io.BytesIO(b"x" * 10), "there") == b"x" * 10
    with pytest.raises(DataError, match="there:1: more than"):
        data_sources.content(io.BytesIO(b"x" * 11), "there")


# text files


def test_lines_with_their_numbers(tmp_path):
    (tmp_path / "a").write_bytes(b"one\r\n\ntwo")
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"one\r\n\ntwo"))
    for name in ("a", "a.gz"):
        assert list(data_sources.lines_of(tmp_path / name)) == [(1, b"one"), (2, b""), (3, b"two")]


@pytest.mark.parametrize("kind", ["cut", "no gzip", "missing", "checksum"])
def test_broken_text_files(tmp_path, kind):
    file = tmp_path / "a.gz"
    data = bytearray(gzip.compress(b"".join(b"%d\n" % (i * i) for i in range(9999))))
    if kind == "checksum":
        data[-5] ^= 1
    if kind != "missing":
        file.write_bytes({"cut": data[:-100], "no gzip": b"one\n"}.get(kind, data))
    with refused(f"{file}:"):
        list(data_sources.lines_of(file))


def test_a_line_without_an_end(monkeypatch):
    monkeypatch.setattr(data_sources, "LONGEST_LINE", 10)
    with pytest.raises(DataError, match="there:2: more than"):
        list(data_sources.lines(io.BytesIO(b"0123456789"[:9] + b"\n" + b"x" * 99), "there"))


def test_the_one_file_of_a_pattern(tmp_path):
    for name in ("imdb_train.jsonl", "other"):
        (tmp_path / name).write_text("")
    assert data_sources.only_file(tmp_path, "imdb_train*").name == "imdb_train.jsonl"
    (tmp_path / "imdb_train.jsonl.gz").write_text("")
    for pattern, reason in (("imdb_train*", "2 files"), ("imdb_test*", "No such file")):
        with refused(tmp_path, reason, pattern):
            data_sources.only_file(tmp_path, pattern)


# libraries


def test_the_hub_says_no_in_one_line(monkeypatch):
    import datasets

    def offline(name, revision, split):
        raise ConnectionError(f"Couldn't reach\n'{name}' on the Hub")

    monkeypatch.setattr(datasets, "load_dataset", offline)
    with refused("https://huggingface.co/datasets/stanfordnlp/imdb", "Couldn't reach"):
        data_sources.from_hub("stanfordnlp/imdb", "e628", ("train",))


def builder_that(raises):
    def download_and_prepare():
        raise raises

    return lambda name, data_dir, file_format: types.SimpleNamespace(download_and_prepare=download_and_prepare)


def test_tfds_is_an_extra(monkeypatch, tmp_path):
    ask = functools.partial(data_sources.from_tfds, "imdb_reviews", tmp_path, ("train",))
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    with refused("pip install -e .[tfds]"):
        ask()
    for raises, part in (
        (ModuleNotFoundError("No module named\n'tensorflow'", name="tensorflow"), "pip install -e .[tfds-tf]"),
        (ModuleNotFoundError("No module named 'etils'", name="etils"), "'etils'; pip install etils"),
        (RuntimeError("checksums\ndiffer"), "checksums differ"),
    ):
        module = types.SimpleNamespace(builder=builder_that(raises))
        monkeypatch.setitem(sys.modules, "tensorflow_datasets", module)
        with refused("tfds imdb_reviews", tmp_path, part):
            ask()


def test_a_small_file_that_unpacks_to_many_lines_is_refused_soon(tmp_path, monkeypatch):
    from tasks.seq2seq import pair_files

    monkeypatch.setattr(data_sources, "UNPACKED_OF_ANY", 1 << 19)
    file = tmp_path / "basic_train.tsv.gz"
    file.write_bytes(gzip.compress(b"Source\tTarget\n" + b"1\t1\n" * 500_000, 1))
    readers = (
        lambda: deque(data_sources.lines_of(file), maxlen=0),
        lambda: data_sources.opened(file).read(),
        lambda: pair_files._marks(file, 9),
    )
    for read in readers:
        with pytest.raises((DataError, OSError), match=r"unpacks to more than \d+ MiB"):
            read()
    held = gzip.compress(b"\n".join(hashlib.sha256(b"%d" % i).hexdigest().encode() for i in range(40_000)))
    file.write_bytes(held)  # 2.6 MB of text that is no bomb
    assert sum(1 for _ in data_sources.lines_of(file)) == 40_000
