"""Only regular files are opened: nothing hangs, and nothing large is read."""

import json
import os
import pickle
import socket

import pytest

from tasks.regular_files import RefusedFileError, open_regular, parse_json, read_bytes, read_json, read_text

pytestmark = pytest.mark.usefixtures("alarm")


def make_socket(path):
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.close()


OTHERS = {
    "a FIFO": os.mkfifo,
    "a directory": os.mkdir,
    "a socket": make_socket,
    "a device": lambda path: path.symlink_to("/dev/zero"),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_another_kind_of_file_is_refused_at_once(tmp_path, kind):
    OTHERS[kind](path := tmp_path / "x")
    for read in (open_regular, read_bytes, read_text, read_json):
        with pytest.raises(RefusedFileError, match=rf"{kind}, not a regular file: '{path}'"):
            read(path, 100, follow=True)


def test_a_file_is_read_up_to_its_limit(tmp_path):
    (tmp_path / "x").write_bytes(b"a\r\nb")
    assert read_bytes(tmp_path / "x", 4) == b"a\r\nb" and read_text(tmp_path / "x", 4) == "a\nb"
    with pytest.raises(RefusedFileError, match="more than 3 bytes"):
        read_bytes(tmp_path / "x", 3)
    os.truncate(tmp_path / "x", 10**13)
    with pytest.raises(RefusedFileError, match="more than 1,000 bytes"):
        open_regular(tmp_path / "x", 1000)


def test_a_file_of_the_kernel_has_a_size_of_0_and_is_bounded_too():
    assert os.stat("/proc/self/status").st_size == 0 and read_bytes("/proc/self/status", 10**5)
    with pytest.raises(RefusedFileError, match="more than 100 bytes"):
        read_bytes("/proc/self/status", 100)


def test_a_link_leads_to_a_file_of_its_folder(tmp_path):
    (tmp_path / "outside.txt").write_text("outside")
    (folder := tmp_path / "folder").mkdir()
    (folder / "inside.txt").write_text("inside")
    (folder / "in").symlink_to("inside.txt")
    (folder / "out").symlink_to("../outside.txt")
    assert read_text(folder / "in", 100) == "inside"
    with pytest.raises(RefusedFileError, match="a link that leads out of its folder"):
        read_text(folder / "out", 100)
    assert read_text(folder / "out", 100, follow=True) == "outside"
    (tmp_path / "moved").symlink_to(folder)
    assert read_text(tmp_path / "moved" / "in", 100) == "inside", "the folder may lie on another disk"


@pytest.mark.parametrize("target", ["x", "nowhere"])
def test_a_link_to_itself_or_to_nothing_is_an_error(tmp_path, target):
    (tmp_path / "x").symlink_to(target)
    for follow in (False, True):
        with pytest.raises(OSError):
            open_regular(tmp_path / "x", follow=follow)


def test_the_error_comes_from_another_process_as_it_is(tmp_path):
    error = pickle.loads(pickle.dumps(RefusedFileError("a FIFO", tmp_path / "x")))
    assert (type(error), error.strerror, error.filename) == (RefusedFileError, "a FIFO", str(tmp_path / "x"))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[" * 10**6, "more than 64 levels"),
        ("[" * 65 + "]" * 65, "more than 64 levels"),
        ('{"a":' * 65 + "1" + "}" * 65, "more than 64 levels"),
        ("9" * 5000, "an integer of 5,000 characters"),
        ('{"a": NaN}', "NaN is not a finite number"),
        ("[-Infinity]", "-Infinity is not a finite number"),
        ("{", "Expecting property name"),
    ],
    ids=range(7),
)
def test_json_is_bounded(text, problem):
    with pytest.raises(ValueError, match=problem):
        parse_json(text)


def test_json_below_the_bounds_is_what_it_was():
    content = {"a": [1, -2.5, None, "x", 2**63, {"b": []}], "deep": json.loads("[" * 62 + "]" * 62)}
    assert parse_json(json.dumps(content)) == content


def test_a_file_of_the_kernel_is_no_data(tmp_path):
    """It names no end: what it holds, such as the environment of a process, is not for a link in a folder of data."""
    (tmp_path / "a.csv").symlink_to("/proc/self/environ")
    with pytest.raises(RefusedFileError, match="a file of the kernel"):
        open_regular(tmp_path / "a.csv", follow=True)
    (tmp_path / "b.csv").touch()
    with open_regular(tmp_path / "b.csv", follow=True) as stream:
        assert stream.read() == b""
