"""Records with one field of another type, missing, huge or nested: each is named on one line, and no reader stops."""

import copy
import itertools
import json
import re
import shutil
from pathlib import Path

import pytest
from omegaconf import OmegaConf

import longhaul
from harness.commands import check, compare, report, status
from harness.config.compose import compose
from harness.config.places import ROOT
from harness.records import record
from harness.records.collect import load_records
from harness.records.listing import record_files
from harness.records.schema import Record
from tests.helpers.copied_records import COMMITTED, fitted, save_copy, with_seed

TASK = "lra/listops"
SOURCE = next(iter(record_files(COMMITTED / TASK / "skyformer" / "reduced", [])))
MISSING = object()
DEEP: list = []
for _ in range(300):
    DEEP = [DEEP]
MUTATIONS = {
    "a list": [1],
    "a text": "x",
    "an object": {"a": [{"b": None}]},
    "a number": 7.5,
    "null": None,
    "missing": MISSING,
    "a long text": "x" * 5000,
    "a long name": {"x" * 5000: 1.0},
    "a huge number": 10**400,
    "a large number": 1e308,
    "a negative number": -5,
    "deep": DEEP,
}
OF_THE_REVIEW = [
    ("schema_version", 10**400),
    ("config.train", [1]),
    ("config.task.source", ["x"]),
    ("metrics.best.test", MISSING),
    ("artifacts", {".": "00"}),
    ("artifacts", {"..": "00"}),
    ("artifacts", {"x" * 5000 + ".png": "00"}),
    ("cell.task", "x/" * 2500 + "x"),
    ("metric.name", "x" * 5000),
    ("evaluations", {"x" * 5000: {"status": "failed", "message": "x"}}),
]


# what a finished record of one cell lacks
EXAMPLES = {
    "error": {"type": "ValueError", "message": "x", "traceback": "x"},
    "depends_on": [{"cell": "ab" * 8, "weights_sha256": "ab" * 32}],
    "conditions": {"train.eval_batch_size": 7},
    "changed_at_resume": ["step 16: torch 2.6.0, now 2.7.0"],
    "search": {
        "by": "validation loss",
        "rates": [1e-3, 3e-3],
        "scores": [1.0, None],
        "seeds": [101],
        "chosen": 1e-3,
        "error": 0.1,
        "on_edge": False,
        "floor": 2.0,
        "at_floor": False,
    },
}


def fields(node, path=()):
    """The dotted paths of all values below names without a dot; of a list its first entry, of the evaluations two."""
    items = list(node.items() if isinstance(node, dict) else enumerate(node[:1]) if isinstance(node, list) else ())
    items = [(key, value) for key, value in items if "." not in str(key)]
    for key, value in items[:2] if path == ("evaluations",) else items:
        yield ".".join(map(str, (*path, key)))
        yield from fields(value, (*path, key))


def full(entries):
    """The record with an example of each part that it lacks."""
    return entries | {key: example for key, example in EXAMPLES.items() if not entries.get(key)}


def mutated(entries, path, value):
    """The record with another value, or none, at a path; its id fits."""
    *parents, last = path.split(".")
    changed = copy.deepcopy(entries)
    if parents and not changed.get(parents[0]):
        changed[parents[0]] = copy.deepcopy(EXAMPLES[parents[0]])
    node = changed
    for parent in parents:
        node = node[int(parent)] if isinstance(node, list) else node[parent]
    if isinstance(node, list):
        node[:1] = [] if value is MISSING else [value]
    elif value is MISSING:
        node.pop(last, None)
    else:
        node[last] = value
    return fitted(changed) if path.startswith("config.") else changed


def mutants(entries):
    """(path, record): each field with two mutations in turn, and those of the review."""
    paths, kinds = list(fields(full(entries))), list(MUTATIONS.values())
    chosen = [(path, kinds[(2 * number + turn) % len(kinds)]) for number, path in enumerate(paths) for turn in range(2)]
    for seed, (path, value) in enumerate([*chosen, *OF_THE_REVIEW], 5000):
        yield path, mutated(with_seed(entries, seed), path, value)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two good records and all mutants, `<number>.json`, with the scores of their examples; and path by file."""
    root = tmp_path_factory.mktemp("mutants") / "records"
    entries = record.load_json(SOURCE)
    for seed in (3001, 3002):
        save_copy(root, SOURCE, with_seed(entries, seed))
    paths = {}
    for number, (path, changed) in enumerate(mutants(entries)):
        file = root / "mutants" / f"{number}.json"
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(changed, ensure_ascii=False), encoding="utf-8")
        file.with_suffix(".npz").write_bytes(SOURCE.with_suffix(".npz").read_bytes())
        paths[file] = path
    return root, paths


@pytest.fixture
def cfg(folder, tmp_path):
    places = [f"paths.{name}={tmp_path / name}" for name in ("outputs", "tables", "figures", "bench")]
    return compose([f"paths.records={folder[0]}", *places])


def test_no_part_of_the_schema_is_left_out():
    assert {path.partition(".")[0] for path in fields(full(record.load_json(SOURCE)))} == {*Record.model_fields}


def test_each_is_named_with_its_field_on_one_line(folder):
    root, paths = folder
    broken: list[str] = []
    accepted = {entries["file"] for entries in load_records(root, broken)} & set(paths)
    lines = {file: [line for line in broken if f"{file}: " in line] for file in paths}
    for file, path in paths.items():
        if file in accepted:
            continue
        (line,) = lines[file]
        field = line.partition(f"{file}: ")[2].split(":")[0]
        assert "\n" not in line and len(line) < len(str(file)) + 400, path
        # beyond the bounds of the file, which is refused before its fields are read
        beyond_bounds = field == "no record" and re.search("number out of range|recursion limit|bytes", line)
        assert beyond_bounds or re.match(r"\w+", field)[0] in {*Record.model_fields}, line
    refused = len(paths) - len(accepted)
    assert refused > 100, "the rest are still valid: a field that may be missing or null"
    for path in accepted:
        record.summary(record.read(path))


def left_out(capsys):
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    return captured.out, [line for line in captured.err.splitlines() if line.startswith("left out: ")]


def test_every_reader_goes_on(folder, cfg, capsys, tmp_path):
    root, paths = folder
    broken: list[str] = []
    good = [entries for entries in load_records(root, broken) if entries["file"] not in paths]
    assert len(good) == 2

    cfg.each_cell = True
    assert status.run(cfg, []) == 0
    said, lines = left_out(capsys)
    assert len(lines) == len(broken) and all(entries["cell"]["id"][:8] in said for entries in good)

    assert check.run(cfg, []) == 1
    said, _ = left_out(capsys)
    assert all(f"{Path(line.split(': ')[0])}: " in said for line in broken)

    left_out(capsys)

    OmegaConf.update(cfg, "cells", [entries["cell"]["id"][:10] for entries in good])
    assert compare.run(cfg, []) == 0
    said, _ = left_out(capsys)
    assert "nothing but the seed" in said

    assert report.run(cfg, ["do=report", "table=lavo/t11"]) == 0
    said, lines = left_out(capsys)
    assert len(lines) >= len(broken) - 1 and "ListOps" in said


def said_by(call):
    """The line of a UsageError; empty if the call gives data. Any other error fails the test."""
    try:
        call()
    except longhaul.UsageError as error:
        assert str(error).isprintable() and len(str(error)) < 700
        return str(error)
    return ""


def test_the_functions_of_python_go_on(folder, tmp_path, capsys):
    root, paths = folder
    cells = longhaul.records(root)
    assert {3001, 3002} <= set(cells["seed"])
    accepted = {entries["file"] for entries in load_records(root, [])}
    cells._repr_html_(), cells.to_csv(tmp_path / "cells.csv")
    problems = longhaul.check(root, **{"paths.outputs": tmp_path})
    assert set(problems["file"]) >= set(paths) - accepted
    places = {"paths.outputs": tmp_path, "paths.records": tmp_path / "records"}
    refused = [said_by(lambda file=file: longhaul.load(file, **places)) for file in list(paths)[::4]]
    assert all(refused)  # of the others, the weights are not there
    left_out(capsys)


def test_no_mutant_is_loaded_from_an_exported_folder_unless_it_is_valid(tmp_path):
    pytest.importorskip("safetensors")
    shutil.copytree(ROOT / "longhaul" / "weights" / "demo" / "lavo", tmp_path / "shared")
    file, refused = tmp_path / "shared" / "record.json", 0
    for path, entries in itertools.islice(mutants(record.load_json(file)), 0, None, 8):
        file.write_text(json.dumps(entries), encoding="utf-8")
        said = said_by(lambda: longhaul.load(tmp_path / "shared"))
        try:
            record.read(file)
        except record.RecordError:
            assert said, path
            refused += 1
    assert refused > 25
