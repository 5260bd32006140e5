"""The cache of results per record: the same results with it, without it, and with a cache that is wrong."""

import json
import multiprocessing
import os
import random
import signal
import time
from pathlib import Path

import pytest

import longhaul
from harness.commands import compare
from harness.config.compose import compose
from harness.config.schema import Paths
from harness.records import cache, index, record
from harness.records.cache import Cache
from harness.records.collect import load_records, valid_records
from harness.records.listing import record_files
from tests.helpers.copied_records import COMMITTED, save_copy, with_seed

SOURCE = next(iter(record_files(COMMITTED / "lra" / "listops" / "skyformer" / "reduced", [])))
NUMBER = 6


@pytest.fixture
def records(tmp_path, monkeypatch):
    """A folder of a few records, which the cache takes for many that changed long ago."""
    monkeypatch.setattr(cache, "FEW", 1)
    monkeypatch.setattr(cache, "RECENT_NS", -(10**18))
    entries = record.load_json(SOURCE)
    for seed in range(3001, 3001 + NUMBER):
        save_copy(tmp_path / "records", SOURCE, with_seed(entries, seed))
    return tmp_path / "records"


@pytest.fixture
def computed(monkeypatch):
    """The files whose summaries are computed."""
    files, original = [], index._summary

    def summary(file):
        files.append(file)
        return original(file)

    monkeypatch.setattr(index, "_summary", summary)
    return files


def summaries(root, folder):
    return index.summaries(root, list(record_files(root, [])), Cache(folder))


def test_a_second_reader_computes_nothing_and_has_the_same_results(records, tmp_path, computed):
    first = summaries(records, tmp_path / "cache")
    assert len(computed) == NUMBER
    assert summaries(records, tmp_path / "cache") == first and len(computed) == NUMBER
    assert index.summaries(records, list(record_files(records, []))) == first


def rewrite(file):
    file.write_text(file.read_text(encoding="utf-8").replace('"resumes": 0', '"resumes": 1'), encoding="utf-8")


def keep_time(change):
    """The change, with the size and the time of the old content."""

    def changed(file):
        before = os.stat(file)
        change(file)
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))

    return changed


def replace(file):
    new = file.with_name("new")
    new.write_bytes(file.read_bytes())
    os.replace(new, file)


@pytest.mark.parametrize("change", [rewrite, keep_time(rewrite), keep_time(replace), os.utime])
def test_a_file_that_changed_is_read_again(records, tmp_path, computed, change):
    summaries(records, tmp_path / "cache")
    file = list(record_files(records, []))[2]
    time.sleep(0.02)  # coarser than the clock of inodes
    change(file)
    del computed[:]
    again = summaries(records, tmp_path / "cache")
    assert computed == [file] and again == index.summaries(records, list(record_files(records, [])))


def test_files_come_and_go(records, tmp_path):
    summaries(records, tmp_path / "cache")
    first, second, *_ = record_files(records, [])
    first.unlink()
    second.write_text("{", encoding="utf-8")
    again = summaries(records, tmp_path / "cache")
    assert len(again) == NUMBER - 1 and [summary.file for summary in again if summary.problems] == [second]


def test_a_part_of_the_files_keeps_the_results_of_the_others(records, tmp_path, computed):
    files = list(record_files(records, []))
    for part in (files[:4], files[2:], files):
        index.summaries(records, part, Cache(tmp_path / "cache"))
    assert sorted(computed) == files
    files[0].unlink()
    os.utime(files[1])
    summaries(records, tmp_path / "cache")
    assert files[0].name not in next((tmp_path / "cache").iterdir()).read_text(encoding="utf-8")


def test_a_file_that_changed_a_moment_ago_is_not_kept(records, tmp_path, computed, monkeypatch):
    monkeypatch.setattr(cache, "RECENT_NS", 10**15)
    for _ in range(2):
        summaries(records, tmp_path / "cache")
    assert len(computed) == 2 * NUMBER


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: b"",
        lambda text: text.replace(b"done", b"fail", 1),
        lambda text: b"[" * 10**6,
        lambda text: b"0" * 64 + b"\n{}",
    ],
)
def test_a_broken_cache_is_replaced(records, tmp_path, damage):
    expected = summaries(records, tmp_path / "cache")
    (file,) = (tmp_path / "cache").iterdir()
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    assert summaries(records, tmp_path / "cache") == expected and file.read_bytes() == whole


def test_a_cache_of_other_code_is_replaced(records, tmp_path, computed, monkeypatch):
    summaries(records, tmp_path / "cache")
    monkeypatch.setattr(cache, "code_version", lambda: "another")
    summaries(records, tmp_path / "cache")
    assert len(computed) == 2 * NUMBER


def test_the_version_follows_the_sources(tmp_path, monkeypatch):
    (tmp_path / "harness").mkdir()
    (tmp_path / "tasks").mkdir()
    source = tmp_path / "harness" / "a.py"
    source.write_text("a = 1")
    monkeypatch.setattr(cache, "ROOT", tmp_path)
    monkeypatch.setattr(cache, "folders", lambda: [tmp_path / "conf"])
    versions = [cache.code_version()]
    source.write_text("a = 12")
    versions.append(cache.code_version())
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "x.yaml").write_text("a: 1")
    versions.append(cache.code_version())
    assert len(set(versions)) == 3 and versions[-1] == cache.code_version()


def test_a_cache_that_cannot_be_written_costs_nothing_but_time(records, tmp_path):
    (tmp_path / "file").write_text("")
    expected = index.summaries(records, list(record_files(records, [])))
    assert summaries(records, tmp_path / "file" / "cache") == expected


def test_scores_of_examples_that_changed_are_read_again(records, tmp_path, capsys):
    kept = Cache(tmp_path / "cache")
    assert valid_records(records, published=True, cache=kept)[1] == 0
    file = next(iter(record_files(records, []))).with_suffix(".npz")
    file.unlink()
    assert valid_records(records, published=True, cache=kept)[1] == 1
    assert str(file) in capsys.readouterr().err


def test_processes_give_the_same_results_in_the_same_order(records, tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "MANY", 1)
    monkeypatch.setattr(cache, "CHUNK", 2)
    files = list(record_files(records, []))
    reports = []
    assert index.summaries(records, files, Cache(tmp_path / "cache", workers=2), reports.append) == index.summaries(
        records, files
    )
    assert reports[-1] == NUMBER and reports == sorted(reports)


def dies_elsewhere(file):
    if multiprocessing.parent_process() is not None:
        os.kill(os.getpid(), signal.SIGKILL)
    return str(file)


def test_files_of_killed_processes_are_read_here(monkeypatch):
    monkeypatch.setattr(cache, "MANY", 1)
    monkeypatch.setattr(cache, "CHUNK", 1)
    files = [Path(str(number)) for number in range(9)]
    assert Cache(workers=2).results("x", Path(), files, dies_elsewhere) == list(map(str, files))


def test_a_record_that_was_checked_is_not_checked_again(records, tmp_path, monkeypatch):
    checked = []
    monkeypatch.setattr(record, "validate", checked.append)
    first = load_records(records, cache=Cache(tmp_path / "cache"))
    assert len(first) == NUMBER and checked == []
    kept = index.summaries(records, list(record_files(records, [])), Cache(tmp_path / "cache"))
    monkeypatch.setattr("harness.records.collect.index.summaries", lambda *arguments: kept)
    rewrite(file := kept[0].file)
    assert load_records(records)[0]["resumes"] == 1 and len(checked) == 1, "it was replaced a moment ago"
    assert record.read(file)["resumes"] == 1 and len(checked) == 2


def test_python_and_compare_use_the_cache(records, tmp_path, computed, monkeypatch):
    paths = Paths(records=str(records), outputs=str(tmp_path / "outputs"))
    monkeypatch.setattr("longhaul.api.Paths", lambda: paths)
    cells = longhaul.records()
    assert len(cells) == len(computed) == NUMBER
    assert len(longhaul.records()) == NUMBER
    longhaul.compare(*cells["id"][:2])
    cfg = compose([f"paths.records={records}", f"paths.outputs={paths.outputs}"])
    cfg.cells = list(cells["id"][:2])
    compare.run(cfg, [])
    assert len(computed) == NUMBER


def test_both_parsers_of_records_agree(tmp_path):
    """What pydantic's parser takes is what json reads, for numbers of any form."""
    draws, file = random.Random(0), tmp_path / "x.json"
    for _ in range(300):
        exponent = draws.choice(["", f"e{draws.randint(-330, 330)}", f"E+{draws.randint(0, 20)}"])
        number = f"{draws.choice(['', '-'])}{draws.getrandbits(draws.randint(1, 70))}"
        text = f"[{number}{draws.choice(['', f'.{draws.getrandbits(60)}'])}{exponent}]"
        file.write_text(text)
        assert repr(record.load_json(file)) == repr(json.loads(text))
