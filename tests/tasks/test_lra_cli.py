"""Broken data at the command line: exit status 2, one line with the file and its line, no cache, no record."""

import gzip
from pathlib import Path

import pytest

from harness.commands.cli import dispatch
from harness.config.compose import compose
from tests.helpers.tasks import tar

PAIR, REVIEW = "1.0\ta\tb\tone\ttwo\n", '{"text": "fine", "label": 1}\n'


def texts(folder: Path, files: dict[str, str | bytes]) -> Path:
    folder.mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data if isinstance(data, bytes) else data.encode())
    return folder


def reviews(folder: Path, train: str | bytes) -> Path:
    return texts(folder, {"imdb_train.jsonl": train, "imdb_test.jsonl": REVIEW})


def pairs(folder: Path, train: str | bytes) -> Path:
    return texts(folder, {f"new_aan_pairs.{name}.tsv": data for name, data in zip(
        ("train", "eval", "test"), (train, PAIR, PAIR), strict=True
    )})  # fmt: skip


def leading_out(folder: Path) -> Path:
    folder.mkdir()
    return tar(folder / "lra_release.gz", {"tsv_data/../../../evil.tsv": PAIR.encode()})


# task and source -> (what makes the broken input, what the line must say, `@` being the path)
BROKEN = {
    "text slice: bad label": (lambda at: reviews(at, REVIEW + '{"text": "x", "label": 7}'), "@/imdb_train.jsonl:2: "),
    "text official: wrong checksum": (
        lambda at: texts(at, {"aclImdb_v1.tar.gz": "<html>"}) / "aclImdb_v1.tar.gz",
        "@: 6 bytes instead of 84,125,825",
    ),
    "retrieval official: truncated": (lambda at: pairs(at, PAIR + PAIR[:9]), "@/new_aan_pairs.train.tsv:2: 4 columns"),
    "retrieval official: part": (lambda at: pairs(at, PAIR), "@: 2 + 1 instead of 165,176 + 17,437 examples"),
    "retrieval official: leads out": (leading_out, "leads out of it"),
    "image slice: no picture": (lambda at: texts(at, {"cifar10_train_labels.txt": "1\n"}), "cifar10_train_*.png"),
    "listops slice: cut gzip": (
        lambda at: texts(at, {"listops_d20s_test.tsv.gz": gzip.compress(b"9\t9\n" * 9999)[:-20]}),
        "@/listops_d20s_test.tsv.gz:",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_one_line_and_no_cache(case, tmp_path, places, capsys):
    make, says = BROKEN[case]
    task, source = case.split(":")[0].split()
    path = make(tmp_path / "input")
    typed = ["do=prepare", f"task=lra/{task}", f"task.source={source}", f"task.path={path}", *places]
    assert dispatch(compose(typed), typed) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.startswith("error: ") and printed.err.count("\n") == 1, printed
    assert says.replace("@", str(path)) in printed.err, printed.err
    assert f"do=prepare task=lra/{task}" in printed.err
    assert not [file for file in (tmp_path / "data").rglob("*") if file.is_file()], "nothing half-written"


@pytest.mark.parametrize("task", ["retrieval", "pathfinder", "listops", "pathx"])
def test_where_the_official_files_are(task, places, capsys):
    typed = ["do=prepare", f"task=lra/{task}", "task.source=official", *places]
    assert dispatch(compose(typed), typed) == 2
    output = capsys.readouterr().err
    assert "long-range-arena/lra_release.gz" in output and " ".join(typed[:2]) in output


def test_a_run_on_broken_data(tmp_path, places, run_here, monkeypatch, capfd):
    path = pairs(tmp_path / "input", PAIR + PAIR[:9])
    monkeypatch.chdir(tmp_path)
    typed = ["model=vanilla", "task=lra/retrieval", "task.source=slice", f"task.path={path}", "budget=smoke", *places]
    status, stderr = run_here(typed), capfd.readouterr().err
    assert status == 2, stderr
    assert [line for line in stderr.splitlines() if line.startswith("error: ")] == stderr.splitlines()[-1:]
    assert f"{path}/new_aan_pairs.train.tsv:2: 4 columns" in stderr and "Traceback" not in stderr
    assert not list(tmp_path.glob("data/**/*.arrow")) and not list(tmp_path.glob("records/**/*.json"))
