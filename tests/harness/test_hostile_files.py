"""FIFOs, devices, links and large files in the place of records: each is one line, and hides no other file."""

import io
import json
import os
import tracemalloc
import zipfile

import numpy as np
import pytest
from helpers.saved_cells import save

from harness.commands import check, status
from harness.config.compose import compose
from harness.records import predictions
from harness.records.collect import frame, load_records, valid_records
from harness.records.record import RecordError
from harness.report.scores.per_example import examples_of
from harness.report.spec.parts import Column

pytestmark = pytest.mark.usefixtures("alarm")
RIGHT = [1, 0, 1, 0]

IN_PLACE_OF_A_FILE = {
    "a FIFO": os.mkfifo,
    "a directory": os.mkdir,
    "a link that leads out of its folder": lambda path: path.symlink_to("/etc/hostname"),
    "a link to a device": lambda path: path.symlink_to("/dev/zero"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a broken link": lambda path: path.symlink_to("nowhere"),
    "more than 4,194,304 bytes": lambda path: path.touch() or os.truncate(path, 10**13),
}


@pytest.mark.parametrize("kind", [kind for kind in IN_PLACE_OF_A_FILE if kind != "a directory"])
def test_what_is_no_file_is_named_and_hides_no_other_record(tmp_path, capsys, kind):
    entries = [save(tmp_path, RIGHT, seed=seed) for seed in (1, 2)]
    strange = entries[0]["file"].with_name("aaa.json")
    IN_PLACE_OF_A_FILE[kind](strange)
    records, broken = valid_records(tmp_path)
    said = capsys.readouterr().err
    assert len(records) == 2 and broken == 1
    assert said.startswith(f"left out: {strange}: ") and said.count("\n") == 1 and len(said) < 300
    if not kind.startswith("a link to") and kind != "a broken link":
        assert kind in said


def test_a_folder_that_is_not_read_is_named(tmp_path, monkeypatch):
    save(tmp_path / "records", RIGHT)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "records" / "aaa").symlink_to(tmp_path / "elsewhere")
    (unread := tmp_path / "records" / "aab").mkdir()
    scan = os.scandir

    def refused(path):
        if path == str(unread):
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", refused)
    broken = []
    assert len(load_records(tmp_path / "records", broken)) == 1
    assert broken == [
        f"{tmp_path / 'records' / 'aaa'}: a link to a folder, which is not followed; move the folder here",
        f"{unread}: cannot be read: Permission denied",
    ]


@pytest.mark.parametrize(("name", "depth"), [pytest.param("a", 1100, marks=pytest.mark.slow), ("x" * 250, 20)])
def test_folders_in_folders_hide_no_record(tmp_path, name, depth):
    """More of them than Python's recursion takes, and a path that is longer than system calls take."""
    save(tmp_path, RIGHT)
    here = os.getcwd()
    try:
        os.chdir(tmp_path)
        for _ in range(depth):
            os.mkdir(name)
            os.chdir(name)
        os.chdir(here)
        broken = []
        assert len(load_records(tmp_path, broken)) == 1
        too_long = [problem for problem in broken if problem.endswith(": cannot be read: File name too long")]
        assert broken == too_long and len(broken) == (len(name) > 1)
    finally:
        os.chdir(tmp_path)
        for _ in range(depth):
            os.chdir(name)
        for _ in range(depth):
            os.chdir("..")
            os.rmdir(name)
        os.chdir(here)


NAMES = ("\x1b]0;title\x07", "\x1b[2J", "a\nleft out: all is well", "a\r", "\u202egnp", "\u2066b\u2069", "\udcff")


@pytest.mark.parametrize("name", NAMES)
def test_names_of_files_act_on_no_terminal(places, tmp_path, capsys, name):
    cfg = compose(["model=latte", "task=lra/text", *places])
    save(cfg.paths.records, RIGHT)
    for end in (".json", ".txt"):
        (tmp_path / "records" / f"{name}{end}").write_text("{")
    (run := tmp_path / "outputs" / "cells" / f"lra/text/skyformer/reduced/{name}-s1-12345678").mkdir(parents=True)
    beat = {"state": name, "host": name, "step": 1, "steps": 2, "pid": 1, "time": 0}
    (run / "heartbeat.json").write_text(json.dumps(beat))
    assert check.run(cfg, []) == 1 and status.run(cfg, []) == 0
    printed = capsys.readouterr()
    escaped = name.encode("unicode_escape", "surrogatepass").decode()
    lines = (printed.out + printed.err).split("\n")
    assert all(line.isprintable() for line in lines), lines
    assert sum(escaped in line for line in lines) >= 4, lines
    assert not any(line.startswith("left out: all") for line in lines)


@pytest.mark.parametrize("kind", ["a FIFO", "a directory", "a link to a device", "a broken link"])
def test_an_artifact_is_read_only_as_a_file(places, capsys, kind):
    cfg = compose(["model=latte", "task=lra/text", *places])
    file = save(cfg.paths.records, RIGHT, budget="reduced")["file"]
    name = f"{file.stem}.png"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"artifacts": {name: "f00d"}}))
    IN_PLACE_OF_A_FILE[kind](file.with_name(name))
    check.run(cfg, [])
    assert (f"artifacts: {name}" in capsys.readouterr().out) == (kind != "a broken link")


def archive(header: bytes, content: bytes = b"", name: str = "test/acc.npy", **options) -> bytes:
    """An npz with one member; a header of 118 bytes as numpy pads it."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as file:
        header = header.ljust(max(117, len(header))) + b"\n"
        file.writestr(name, b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + content)
    return made.getvalue()


def header(shape: str, kind: str = "|u1", order: str = "False") -> bytes:
    return f"{{'descr': '{kind}', 'fortran_order': {order}, 'shape': {shape}, }}".encode()


FORGED = {
    "10^13 numbers": archive(header("(10000000000000,)")),
    "5,000 open brackets": archive(header("(" * 5000)),
    "5,000 tuples": archive(header("(4," + "(" * 3000 + ")")),
    "code": archive(header("(__import__('os').system('true'),)")),
    "objects": archive(header("(4,)", "|O"), b"cos\nsystem\n(S'true'\ntR."),
    "two dimensions": archive(header("(4, 1)"), bytes(4)),
    "another type": archive(header("(4,)", "<f8"), bytes(32)),
    "more bytes": archive(header("(4,)"), bytes(5)),
    "other arrays": archive(header("(4,)"), bytes(4), name="test/loss.npy"),
    "a path": archive(header("(4,)"), bytes(4), name="../../test/acc.npy"),
    "a comment": archive(header("(4,)"), bytes(4))[:-2] + b"\x01\x00x",
    "nothing": b"",
    "no archive": b"PK\x05\x06" + bytes(18) + b"x" * 100,
}


@pytest.mark.parametrize("name", FORGED)
def test_forged_scores_of_examples_are_one_line(places, capsys, name):
    cfg = compose(["model=latte", "task=lra/text", *places])
    file = save(cfg.paths.records, RIGHT, budget="reduced")["file"]
    predictions.path_of(file).write_bytes(FORGED[name])
    (entries,) = load_records(cfg.paths.records)
    with pytest.raises(RecordError) as error:
        predictions.read(file, entries)
    said = str(error.value)
    assert str(predictions.path_of(file)) in said and "run its cell again" in said and len(said) < 400
    assert check.run(cfg, []) == 1 and f"{file}: scores: " in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["a FIFO", "a directory", "a link that leads out of its folder"])
def test_scores_of_examples_are_read_only_from_a_file(places, capsys, kind):
    """The table of another cell is made, too."""
    cfg = compose(["model=latte", "task=lra/text", *places])
    files = [save(cfg.paths.records, RIGHT, seed=seed)["file"] for seed in (1, 2)]
    path = predictions.path_of(files[0])
    path.unlink()
    IN_PLACE_OF_A_FILE[kind](path)
    cells = frame(load_records(cfg.paths.records))
    examples = examples_of(cells, Column(task="lra/text", metric="acc"))
    assert [len(array) for array in examples.values()] == [4]
    said = capsys.readouterr().err
    assert said.startswith(f"left out: {path}: ") and said.count("\n") == 1
    assert check.run(cfg, []) == 1 and f"{files[0]}: scores: " in capsys.readouterr().out


def test_a_small_file_unpacks_to_no_large_one(tmp_path):
    """100 MB of zeros in 100 kB, for a record that has four test examples or claims 10^8."""
    entries = save(tmp_path, RIGHT)
    predictions.path_of(entries["file"]).write_bytes(archive(header(f"({10**8},)"), bytes(10**8)))
    for count in (4, 10**8, 10**13):
        entries["evaluations"]["test"]["n"] = count
        tracemalloc.start()
        with pytest.raises(RecordError):
            predictions.read(entries["file"], entries)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 3e6, peak


def test_mutated_scores_are_the_same_or_one_line(tmp_path):
    entries = save(tmp_path, RIGHT, more={"baseline/x": {"acc": [0.0, 1.5, 2.0]}})
    path, draws = predictions.path_of(entries["file"]), np.random.default_rng(0)
    whole, expected = path.read_bytes(), predictions.read(entries["file"], entries)
    refused = 0
    for _ in range(300):
        data = bytearray(whole)
        for position in draws.integers(0, len(data), draws.integers(1, 6)):
            data[position] = draws.integers(0, 256)
        path.write_bytes(data if draws.random() < 0.7 else data[: draws.integers(0, len(data))])
        try:
            read = predictions.read(entries["file"], entries)
            assert all((read[name][key] == array).all() for name in expected for key, array in expected[name].items())
        except RecordError as error:
            refused += 1
            assert "\n" not in str(error)
    assert refused > 200


def test_an_archive_of_many_names_is_refused(tmp_path):
    entries = save(tmp_path, RIGHT * 10**5)
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as file:
        for number in range(2_000):
            file.writestr(f"{number:060}", b"")
    predictions.path_of(entries["file"]).write_bytes(made.getvalue())
    with pytest.raises(RecordError, match="other arrays"):
        predictions.read(entries["file"], entries)
