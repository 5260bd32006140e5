"""Records: the schema, writes that are whole or absent, and many writers at once."""

import copy
import hashlib
import multiprocessing
import re
from collections import Counter
from pathlib import Path

import pytest
from helpers.synthetic import record as made
from pydantic import ConfigDict

from harness.config.places import ROOT
from harness.config.validation import parse
from harness.errors import UsageError
from harness.records.record import SCHEMA_VERSION, RecordError, read, validate, write
from harness.records.shared_file import SharedFile


def changed(key, value, **kwargs):
    """A record with one entry, addressed by its dotted key, set; or removed if the value is `...`."""
    record = copy.deepcopy(made(**kwargs))
    *parents, last = key.split(".")
    node = record
    for parent in parents:
        node = node[parent]
    if value is ...:
        del node[last]
    else:
        node[last] = value
    return record


def test_a_written_record_is_read_back(tmp_path):
    path = tmp_path / "new" / "folder" / "one.json"
    write(made(), path)
    assert read(path) == made()
    assert made()["schema_version"] == SCHEMA_VERSION
    assert [file.name for file in path.parent.iterdir()] == ["one.json"]


def test_same_record_same_bytes(tmp_path):
    shuffled = dict(reversed(made().items()))
    write(made(), tmp_path / "a.json")
    write(shuffled, tmp_path / "b.json")
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


def test_a_share_is_between_0_and_100():
    for key, value in (("metrics.best.test.acc", 140.0), ("metrics.best.val.acc", -1.0)):
        with pytest.raises(RecordError, match=f"^{key}: {value:g} is no percentage$"):
            validate(changed(key, value))
    with pytest.raises(RecordError, match=r"evaluations\.decoded\.metrics\.bleu: 101 is no percentage"):
        validate(translated({"bleu": 101.0}))
    validate(translated({"bleu": 100.00000000000004}))


def translated(scores, task="mt/wmt14_ende"):
    return made(task=task, evaluations={"decoded": evaluation(metrics=scores)})


def evaluation(**entries):
    defaults = {"status": "done", "message": None, "metrics": {"acc": 60.0}, "n": 10}
    return defaults | {"seconds": 1.0, "peak_memory_mb": None, "predictions": None} | entries


# test_mutated_records.py has every field with values of other types
@pytest.mark.parametrize(
    "key, value",
    [
        ("steps", ...),
        ("colour", "blue"),
        ("metrics.best.train", {}),
        ("cell.budget", "../huge"),
        ("cell.seed", True),
        ("wall_s", float("nan")),
        ("metrics.best.test.acc", float("inf")),
        ("config.lr", float("nan")),
        ("config.path", Path("x")),
        ("config.betas", (0.9, 0.99)),
        ("data.source", "unknown"),
        ("started", "yesterday"),
        ("metrics.last.val.acc", ...),
        ("error", {"type": "E", "message": "m", "traceback": ""}),
        ("config", {1: 2}),
        ("evaluations.test", evaluation(n=None)),
        ("evaluations.test", evaluation(status="oom", metrics=None)),
    ],
)
def test_refused_with_the_key_in_one_line(tmp_path, key, value):
    record = changed(key, value)
    with pytest.raises(RecordError) as refused:
        write(record, tmp_path / "one.json")
    message = str(refused.value)
    assert key in message and str(tmp_path / "one.json") in message and "\n" not in message
    assert not list(tmp_path.iterdir())


def test_a_leak_cannot_be_hidden():
    with pytest.raises(RecordError, match=r"selection\.leak"):
        validate(changed("selection", {"rule": "best_test", "after_steps": 0, "leak": False}))


@pytest.mark.parametrize("status", ["failed", "preempted"])
def test_an_unfinished_cell_may_lack_most_entries(status):
    record = made(status=status)
    for key in ("metrics", "metric", "parameters", "steps", "tokens", "examples", "examples_per_s", "peak_memory_mb"):
        record[key] = None
    record["data"] = {"source": "unknown", "fingerprint": "", "sizes": {}}
    validate(record)


def test_an_unfinished_cell_says_why():
    with pytest.raises(RecordError, match="error: null"):
        validate(changed("error", None, status="oom"))


def test_a_record_of_an_older_schema_says_what_to_do(tmp_path):
    path = tmp_path / "one.json"
    path.write_text('{"schema_version": 1}', encoding="utf-8")
    says = "schema_version: 1, but this Longhaul reads 2 alone; remove the record and run"
    with pytest.raises(RecordError, match=f"one.json: {says}"):
        read(path)


def write_in_turns(root, me, looked):
    """Twelve records of its own, and a shared one until another process has looked at that."""
    for turn in range(12):
        write(made(resumes=me), root / f"{me}-{turn}.json")
    while not looked.wait(0):
        write(made(resumes=me), root / "shared.json")


def test_many_processes_write_at_once(tmp_path):
    root, context = tmp_path / "records", multiprocessing.get_context("fork")
    looked = context.Event()
    writers = [context.Process(target=write_in_turns, args=(root, me, looked), daemon=True) for me in range(6)]
    for writer in writers:
        writer.start()
    for _ in range(30):
        while not (root / "shared.json").exists():
            assert any(writer.is_alive() for writer in writers)
        assert read(root / "shared.json")["resumes"] in range(6)  # never half a record
    looked.set()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * 6
    assert len([read(path) for path in root.iterdir()]) == 6 * 12 + 1


# removed to keep results/ small; their records keep the sha256
RETIRED_PICTURES = {"forecasting/etth1": 13, "forecasting/etth2": 12, "lm/openwebtext": 27, "lm/shakespeare": 6}


def test_every_committed_record_is_whole():
    """Its file's name ends in its id. Its artifacts are there, except for retired pictures."""
    missing = Counter()
    paths = sorted((ROOT / "results" / "records").rglob("*.json"))
    assert len(paths) >= 270
    for path in paths:
        record = read(path)
        assert path.stem.endswith(record["cell"]["id"][:8]), path
        for name, digest in record["artifacts"].items():
            file = path.parent / name
            if file.suffix == ".png" and not file.exists():
                missing[record["cell"]["task"]] += 1
            else:
                assert hashlib.sha256(file.read_bytes()).hexdigest() == digest, path
    assert missing == RETIRED_PICTURES


@pytest.mark.parametrize(("part", "problem"), [
    ({"a": [1, 2.5, "x é", 1e15, {"b": None}]}, ""), ({"a": [{"b": "x\u202e"}]}, "a.0.b: 'x\\u202e' has characters"),
    ({"a": {"\x7f": 1}}, "a: '\\x7f' has characters"), ({"a": 10**16}, "a: 10000000000000000 is out of range"),
    ({"a": [-1e16]}, "a.0: -1e+16 is out of range"), ({"a": {"b": "x" * 4001}}, "a.b: 4,001 characters are more"),
    ({"error": "x\n" * 4000}, ""),
])  # fmt: skip
def test_names_texts_and_numbers_of_any_part_are_bounded(part, problem):
    class File(SharedFile):
        FREE = frozenset({"error"})
        model_config = ConfigDict(extra="allow")

    if not problem:
        parse(File, part, "")
        return
    with pytest.raises(UsageError, match=re.escape(problem)):
        parse(File, part, "")
