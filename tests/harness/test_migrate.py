"""Records of schema version 1 become those of version 2: of the same commands, with the same content."""

import hashlib
import json
from pathlib import Path

import pytest
from helpers.synthetic import record as made
from omegaconf import OmegaConf

from harness.config.cell import cell_of, identity
from harness.config.compose import compose
from harness.records import record
from harness.records.migrate import converted, main
from harness.records.record import RecordError
from harness.records.run_directory import RunDirectory

COMMAND = ["model=lavo", "task=lra/listops", "budget=smoke"]
# where these classes and functions were in version 1
PATHS = {
    "LAVO": "models.attention.lavo.LAVO",
    "EncoderClassifier": "models.backbones.encoder.EncoderClassifier",
    "ListOps": "tasks.lra.listops.ListOps",
    "cosine": "harness.schedules.cosine",
}
NEW_KEYS = {"depends_on", "evaluations", "artifacts", "tested_weights_sha256"}


def with_paths(node):
    if not isinstance(node, dict):
        return node
    return {key: PATHS.get(value, value) if key == "_target_" else with_paths(value) for key, value in node.items()}


def old_record(cell, **entries):
    """A record of version 1 of this cell."""
    config = with_paths(cell.config)
    new = made() | {
        "schema_version": 1,
        "cell": cell.names() | {"id": identity(config)},
        "config": config | {"trainer": {"_target_": "lightning.pytorch.Trainer"}},
        "changed": {"train.schedule._target_": ["harness.schedules.linear", "harness.schedules.cosine"]},
        "steps": (steps := config["train"]["max_steps"]),
        "examples": (examples := steps * config["train"]["batch_size"]),
        "examples_per_s": examples / 1000.0,
        "metrics": {
            point: {"step": steps, **{split: {"acc": 60.0, "loss": 0.7, "n": 96} for split in ("val", "test")}}
            for point in ("best", "last")
        },
        "data": {"source": "synthetic", "fingerprint": "f00d", "sizes": {"train": 512, "val": 96, "test": 96}},
    }
    return {key: value for key, value in (new | entries).items() if key not in NEW_KEYS}


@pytest.fixture
def old(tmp_path):
    """A cell of today, and the record, the picture and the run directory that version 1 left of it."""
    cell = cell_of(compose([*COMMAND, "train.schedule._target_=harness.training.optim.schedules.cosine"]))
    entries = old_record(cell)
    name = f"lavo-s1-{entries['cell']['id'][:8]}"
    path = tmp_path / "records" / cell.path.parent / f"{name}.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(entries), encoding="utf-8")
    path.with_suffix(".png").write_bytes(b"picture")
    run = RunDirectory(tmp_path / "outputs" / "cells" / cell.path.parent / name)
    run.checkpoints.mkdir(parents=True)
    run.last.write_text("weights")
    run.write_config(with_paths(cell.config), COMMAND)
    return cell, path, run


def migrated(tmp_path, *options):
    return main([str(tmp_path / "records"), "--outputs", str(tmp_path / "outputs"), *options])


def files(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_record_is_found_by_the_same_command_and_keeps_its_content(tmp_path, old, capsys):
    cell, path, run = old
    before = record.load_json(path)
    assert migrated(tmp_path) == 0
    assert "1 records with 1 artifacts, 1 run directories" in capsys.readouterr().out
    target = path.with_name(f"{cell.path.name}.json")
    new = record.read(target)
    assert new["cell"] == cell.names() and new["config"] == cell.config | {"trainer": before["config"]["trainer"]}
    assert new["changed"] == {"train.schedule._target_": ["linear", "cosine"]}
    assert new["artifacts"] == {f"{target.stem}.png": hashlib.sha256(b"picture").hexdigest()}
    kept = before.keys() - {"schema_version", "cell", "config", "changed"}
    assert {key: new[key] for key in kept} == {key: before[key] for key in kept}
    assert files(target.parent).keys() == {Path(target.name), Path(f"{target.stem}.png")}
    moved = RunDirectory(run.path.with_name(cell.path.name))
    assert not run.path.exists() and moved.last.read_text() == "weights"
    assert OmegaConf.load(moved.path / ".hydra" / "config.yaml") == cell.config


def test_a_repeated_call_changes_nothing(tmp_path, old, capsys):
    migrated(tmp_path)
    after = files(tmp_path)
    assert migrated(tmp_path) == 0 and files(tmp_path) == after
    assert "0 records with 0 artifacts, 0 run directories; 2 were of this version" in capsys.readouterr().out


def test_a_dry_run_changes_nothing(tmp_path, old, capsys):
    before = files(tmp_path)
    assert migrated(tmp_path, "--dry-run") == 0 and files(tmp_path) == before
    assert "would be migrated: 1 records" in capsys.readouterr().out


def test_a_stopped_call_is_finished_by_the_next(tmp_path, old, monkeypatch):
    cell, path, _ = old

    def stop(*_, **__):
        raise OSError("stopped")

    monkeypatch.setattr(Path, "unlink", stop)
    assert migrated(tmp_path) == 1 and path.exists()
    monkeypatch.undo()
    assert migrated(tmp_path) == 0
    assert sorted(file.name for file in path.parent.iterdir()) == [f"{cell.path.name}.json", f"{cell.path.name}.png"]


@pytest.mark.parametrize(
    "text, says",
    [
        ('{"schema_version": 1', "no JSON"),
        ('{"schema_version": 0}', "schema_version: 0 is not 1"),
        ("[]", "schema_version: None is not 1"),
        ('{"schema_version": 1}', "no record of version 1"),
        (json.dumps(old_record(cell_of(compose(COMMAND)), steps="many")), "steps: input should be a valid integer"),
    ],
)
def test_what_is_refused_is_named_and_left(tmp_path, old, capsys, text, says):
    path = tmp_path / "records" / "other.json"
    path.write_text(text, encoding="utf-8")
    assert migrated(tmp_path) == 1
    printed = capsys.readouterr().out
    assert f"refused: {path}: " in printed and says in printed and "1 records with" in printed
    assert path.read_text(encoding="utf-8") == text


def test_another_record_of_the_cell_is_not_replaced(tmp_path, old, capsys):
    cell, path, _ = old
    migrated(tmp_path)
    path.write_text(json.dumps(old_record(cell, tokens=3)), encoding="utf-8")
    assert migrated(tmp_path) == 1 and "is another record of this cell" in capsys.readouterr().out
    assert path.exists() and record.read(path.with_name(f"{cell.path.name}.json"))["tokens"] != 3


def test_a_run_directory_in_use_is_left(tmp_path, old, capsys):
    run = old[2]
    assert run.acquire()
    run.write_heartbeat("running", step=1, steps=9, force=True)
    assert migrated(tmp_path) == 1 and "a process is running here" in capsys.readouterr().out
    run.release()
    assert migrated(tmp_path) == 0 and not run.path.exists()


@pytest.mark.parametrize("slots", [16, 256])
def test_the_number_of_luna_slots_becomes_a_setting(slots):
    cell = cell_of(compose(["model=luna", f"model.slots={slots}", *COMMAND[1:]]))
    entries = old_record(cell, changed={})
    entries["cell"] = entries["cell"] | {"model": f"luna_{slots}"}
    entries["config"] = entries["config"] | {"model": entries["config"]["model"] | {"name": f"luna_{slots}"}}
    new = converted(entries)
    assert new["cell"] == cell.names()
    assert new["changed"] == ({} if slots == 256 else {"model.slots": [256, slots]})


def test_a_key_that_version_2_lacks_is_refused():
    entries = old_record(cell_of(compose(COMMAND)))
    entries["config"]["earlier_cells"] = ["task=lra/text"]
    with pytest.raises(RecordError, match=r"config\.earlier_cells: version 2 has no such key; remove the record"):
        converted(entries)
