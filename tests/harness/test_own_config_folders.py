"""Yamls of one's own with a fault: one line with the file and the key, also where the command is about another yaml."""

import pytest
from hydra.errors import HydraException

from harness.commands.mistakes import explain

HEAD = "title: T\nledger: null\nprotocol: skyformer\ncontrol: no_mixing\nreference: vanilla\n"
COLUMNS = 'columns:\n  a: {task: lra/listops, metric: acc, unit: "%", decimals: 1, higher_is_better: true}\n'
LAVO = "_target_: models.attention.lavo.LAVO\n"
TABLE = f"{HEAD}seeds: [1]\nrows:\n  x: lavo\n  y: no_mixing\n  z: vanilla\n{COLUMNS}"


def write(folder, files):
    for name, text in files.items():
        path = folder / "conf" / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())


@pytest.fixture
def refusal(tmp_path, places, run_here, capfd):
    """(files below the folder, words) -> the line that the command ends with."""

    def run(files, *words):
        write(tmp_path, files)
        (tmp_path / "records").mkdir()
        assert run_here(["--config-dir", str(tmp_path / "conf"), *words, *places]) == 2
        line = capfd.readouterr().err.replace("importing torch ...\n", "")
        assert line.startswith("error: ") and line.count("\n") == 1, line
        assert list((tmp_path / "records").iterdir()) == []
        return line

    return run


SMOKE = ("task=lra/listops", "budget=smoke")


@pytest.mark.parametrize(
    ("files", "words", "message"),
    [
        ({"model/latin": b"# caf\xe9\n"}, ("model=latin", *SMOKE), "model/latin.yaml: no yaml: 'utf-8' codec"),
        ({"model/empty": ""}, ("model=empty", *SMOKE), "model.name is no text: its yaml has no name"),
        ({"task/x/y": "name: x/y\n"}, ("task=x/y", "budget=smoke"), "protocols that have a recipe for it: own"),
        (
            {"table/a": TABLE.replace("y: no_mixing", "y: local")},
            ("do=plan", "table=a"),
            "control: there is no 'no_mixing'",
        ),
        ({"table/a": TABLE.replace("[1]", "[1, 1]")}, ("do=plan", "table=a"), "seeds: 1 stands twice"),
        (
            {"table/a": TABLE.replace("  x:", "\tx:")},
            ("do=plan", "table=a"),
            "a.yaml:8: found character that cannot start",
        ),
        (
            {"task/x/y": "defaults: [/task/data/clasification@_here_, _self_]\nname: x/y\n"},
            ("task=x/y", "budget=smoke"),
            "did you mean 'data/classification'",
        ),
    ],
)
def test_a_fault_is_one_line_with_the_file(files, words, message, refusal):
    assert message in refusal(files, *words)


OTHERS = {"model/other": b"# caf\xe9\n", "table/other": HEAD, "model/empty": ""}


@pytest.mark.parametrize("words", [("do=plan", "table=a"), ("model=lavo", "model.window=x", *SMOKE)])
def test_the_yaml_of_another_option_may_be_broken(words, tmp_path, places, run_here, capfd):
    write(tmp_path, {**OTHERS, "table/a": TABLE})
    status = run_here(["--config-dir", str(tmp_path / "conf"), *words, *places])
    out = capfd.readouterr()
    if "table=a" in words:
        assert status == 0 and "cells: 3, 3 missing" in out.out
    else:
        assert status == 2 and "model.window: " in out.err


def test_the_local_file_of_a_machine_without_its_first_line():
    raised = "In 'local/default': ConfigKeyError raised while composing config:\nKey 'local' not in 'Config'"
    assert "lacks # @package _global_" in explain(HydraException(f"{raised}\n    full_key: local"), [])
