"""The rules that every reader of records applies, and do=check: one broken record per rule."""

import copy
import json
import random
import re
from types import SimpleNamespace

import pytest

from harness.commands import check
from harness.config.cell import cell_of, identity
from harness.config.compose import compose
from harness.records import checks, predictions, record
from harness.records.collect import load_records, valid_records
from harness.records.record import RecordError
from harness.training.run_cell import run_cell
from tests.helpers.cells import request_of
from tests.helpers.hostile import CONTRADICTIONS, RELABELLED
from tests.helpers.saved_cells import save

CELL = ("model=latte", "task=lra/listops", "budget=smoke", "trainer=cpu", "resources.cpus=1", "train.max_steps=4")


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """The record of a run."""
    folder = tmp_path_factory.mktemp("real")
    cfg = compose([*CELL, *(f"paths.{name}={folder / name}" for name in ("data", "outputs", "records"))])
    assert run_cell(request_of(cfg)).state == "done"
    return cell_of(cfg).record_path(cfg)


def fitted(entries):
    """The record with the id of its configuration."""
    config = {key: value for key, value in entries["config"].items() if key != "trainer"}
    return entries | {"cell": entries["cell"] | {"id": identity(config)}}


def contradicting(real, name):
    CONTRADICTIONS[name](entries := record.load_json(real), random.Random(1))
    return entries


@pytest.mark.parametrize("name", sorted(CONTRADICTIONS))
def test_a_contradiction_is_found(real, name):
    """Even if the id fits, unless all else agrees."""
    record.validate(record.load_json(real))
    entries = contradicting(real, name)
    with pytest.raises(RecordError) as error:
        record.validate(entries if name in (*RELABELLED, "another id") else fitted(entries))
    assert "\n" not in str(error.value) and ": " in str(error.value)


@pytest.mark.parametrize(("budget", "source", "wrong"), [
    ("paper", "full", False), ("mine", "full", False), ("paper", "slice:x", True), ("smoke", "full", True)
])  # fmt: skip
def test_generated_data_of_the_published_sizes_are_full(budget, source, wrong):
    config = SimpleNamespace(task=SimpleNamespace(source="generated"))
    data = SimpleNamespace(source=source, sizes={})
    parts = SimpleNamespace(config=config, data=data, cell=SimpleNamespace(budget=budget), metrics=None, finals={})
    assert any("config.task.source is" in problem for problem in checks.data(parts)) == wrong


def test_every_rule_is_broken_by_one_of_them(real):
    broken = set()
    for name in CONTRADICTIONS:
        try:
            parsed = record.parsed(contradicting(real, name))
        except RecordError:
            continue
        broken |= {rule.__name__ for rule in checks.RULES if list(rule(parsed))}
    assert broken == {rule.__name__ for rule in checks.RULES}


@pytest.mark.parametrize("name", RELABELLED)
def test_a_record_relabelled_as_a_whole_is_in_no_column_of_the_paper(real, tmp_path, capsys, name):
    """Names, configuration and id agree, but the recipe with these names is another one."""
    entries = contradicting(real, name)
    CONTRADICTIONS["another budget"](entries, random.Random(1))
    entries["data"]["source"] = "synthetic"
    entries = fitted(entries)
    record.write(entries, tmp_path / "one.json")
    assert load_records(tmp_path), "nothing within the record tells"
    assert valid_records(tmp_path, published=True) == ([], 1)
    assert "by the recipe, which `changed` does not say" in capsys.readouterr().err


NO_RECORDS = {
    "empty": b"",
    "a list": b"[]",
    "half": b'{"schema_version": 2, "cell": {"id": ',
    "deep": b"[" * 200_000 + b"]" * 200_000,
    "huge": b'{"a": "' + b"x" * 2**23 + b'"}',
    "half a character": b'{"schema_version": 2, "cell": "\\ud800"}',
    "a number of many digits": b'{"schema_version": ' + b"9" * 10_000 + b"}",
    "infinite": b'{"schema_version": 2, "steps": 1e999}',
    "no text": b"\xff\xfe\x00",
}


@pytest.mark.parametrize("name", NO_RECORDS)
def test_a_file_that_is_no_record_is_named_and_stops_nothing(tmp_path, capsys, name):
    save(tmp_path, [1, 0, 1, 0])
    (tmp_path / "strange.json").write_bytes(NO_RECORDS[name])
    records, broken = valid_records(tmp_path)
    said = capsys.readouterr().err
    assert len(records) == broken == 1 and said.startswith("left out: ") and "strange.json" in said
    assert said.count("\n") == 1 and len(said) < 500


def test_folders_links_and_hidden_files_are_no_records(tmp_path):
    save(tmp_path, [1, 0, 1, 0])
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "nowhere.json").symlink_to(tmp_path / "no file")
    (tmp_path / ".hidden.json").write_text("{")
    broken = []
    assert len(load_records(tmp_path, broken)) == 1
    assert broken == [f"{tmp_path / 'nowhere.json'}: cannot be read: No such file or directory"]


def test_of_two_records_of_one_cell_neither_counts(tmp_path, capsys):
    entries = save(tmp_path, [1, 0, 1, 0])
    (tmp_path / "copy.json").write_bytes(entries["file"].read_bytes())
    assert valid_records(tmp_path) == ([], 1)
    assert "copy.json" in (said := capsys.readouterr().err) and "remove all but one" in said


def test_a_file_in_the_place_of_a_record_stops_its_own_cell_alone(places, capsys):
    cfgs = [compose([*CELL, *places, f"seed={seed}"]) for seed in (1, 2)]
    path = cell_of(cfgs[0]).record_path(cfgs[0])
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    results = [run_cell(request_of(cfg)) for cfg in cfgs]
    assert [result.state for result in results] == ["refused", "done"]
    assert str(path) in results[0].detail and f"remove {path}, and the same command" in results[0].detail
    path.unlink()
    assert run_cell(request_of(cfgs[0])).state == "done"


# do=check


def checked(folder, capsys):
    status = check.run(compose([f"paths.records={folder}"]), [])
    return status, capsys.readouterr().out


def test_the_verb_finds_nothing_wrong_with_a_run(real, capsys):
    folder = real.parents[4]
    status, said = checked(folder, capsys)
    assert status == 0 and re.fullmatch(r"1 records, \d+ rules: no problem\n", said)


@pytest.mark.parametrize(
    ("rule", "break_it"),
    [
        ("place", lambda path, entries: path.rename(path.parent.parent / path.name)),
        ("recent", lambda path, entries: entries.update(finished="2999-01-01T00:00:00+00:00", resumes=1)),
        ("scores", lambda path, entries: predictions.path_of(path).write_bytes(b"none")),
        ("artifacts", lambda path, entries: entries.update(artifacts={path.with_suffix(".png").name: "ab" * 32})),
        ("recipe", lambda path, entries: entries.update(changed={})),
        ("orphans", lambda path, entries: path.with_name("alone.png").write_bytes(b"?")),
        ("schema", lambda path, entries: entries.update(stepz=1)),
        ("counts", lambda path, entries: entries.update(steps=1)),
        ("metrics", lambda path, entries: entries["metrics"]["best"]["test"].update(acc=101.0)),
    ],
)
def test_the_verb_names_what_is_wrong(real, tmp_path, capsys, rule, break_it):
    path = tmp_path / real.relative_to(real.parents[4])
    path.parent.mkdir(parents=True)
    for file in real.parent.iterdir():
        path.with_name(file.name).write_bytes(file.read_bytes())
    path.with_suffix(".png").write_bytes(b"?")
    entries = json.loads(path.read_text())
    before = copy.deepcopy(entries)
    break_it(path, entries)
    if entries != before:
        path.write_text(json.dumps(entries))
    status, said = checked(tmp_path, capsys)
    assert status == 1 and f": {rule}: " in said and f" {rule}" in said.splitlines()[-1], said
