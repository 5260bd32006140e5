"""do=verify record=FILE: the cell is run again, and each result that differs is named."""

import json

import pytest
from helpers.saved_cells import made

from harness.commands.verify_record import CONDITIONS, RESULTS, differences

CELL = ["model=latte", "task=lra/listops", "budget=smoke", "trainer=cpu", "resources.cpus=1", "train.max_steps=4"]


def folders(tmp_path):
    return [f"paths.{name}={tmp_path / name}" for name in ("data", "outputs", "records")]


def test_what_differs_is_one_line(tmp_path):
    then, now = made(), made()
    assert not list(differences(then, now, (*RESULTS, *CONDITIONS)))
    now["weights_sha256"], now["versions"]["torch"] = "0" * 64, "9"
    now["wall_s"] = now["evaluations"].get("test", {})["seconds"] = 1e6
    assert [line.partition(":")[0] for line in differences(then, now, RESULTS)] == ["weights_sha256"]
    assert [line.partition(":")[0] for line in differences(then, now, CONDITIONS)] == ["versions.torch"]


@pytest.mark.slow
def test_a_record_is_run_again_and_a_consistent_lie_is_found(tmp_path, run_here, capfd):
    assert run_here([*CELL, "++task.train=64", *folders(tmp_path)]) == 0
    (file,) = [path for path in (tmp_path / "records").rglob("*.json") if "baselines" not in path.parts]
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    words = ["do=verify", f"record={file}", *folders(tmp_path)]
    assert run_here(words) == 0 and "all results are equal to the bit, 0 conditions differ" in capfd.readouterr().out
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path in before} == before
    entries = json.loads(file.read_text())
    entries["weights_sha256"] = entries["tested_weights_sha256"] = "0" * 64  # a lie that no check of records can find
    file.write_text(json.dumps(entries))
    assert run_here(["do=check", *folders(tmp_path)]) == 0
    assert run_here(words) == 1
    assert "weights_sha256: '0000" in capfd.readouterr().out
    assert run_here([*words, "model=lavo"]) == 2 and "does not read model=" in capfd.readouterr().err
    assert run_here(["do=train", f"record={file}"]) == 2
