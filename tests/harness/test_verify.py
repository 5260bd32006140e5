"""do=verify finds a model that does not keep its declarations."""

import json
import sys

import pytest
from helpers.saved_cells import made

from harness.commands.verify import run, verify_model
from harness.commands.verify_record import CONDITIONS, RESULTS, conditions_in, differences
from harness.config.compose import compose
from harness.config.schema import NEVER, Train, conditions, names_of

MODULE = '''
from models.attention.base import MultiHead, Pattern
from models.attention.vanilla import Vanilla


class Leaky(Vanilla):
    """Declares itself causal and looks ahead."""

    patterns = frozenset({Pattern.CAUSAL_SELF})

    def attend(self, q, k, v, key_padding_mask):
        return (q @ k.mT).softmax(-1) @ v


class Forgetful(Vanilla):
    """Attends to padding."""

    patterns = frozenset({Pattern.NONCAUSAL_SELF})

    def attend(self, q, k, v, key_padding_mask):
        return super().attend(q, k, v, None)


class Restless(Vanilla):
    """Its chunks over a context are those of other queries."""

    patterns = frozenset({Pattern.NONCAUSAL_CROSS})

    def chunk(self, x, state):
        return super().chunk(x.flip(1), state)


class Stepless(MultiHead):
    patterns = frozenset({Pattern.NONCAUSAL_SELF, Pattern.CAUSAL_SELF})

    def attend(self, q, k, v, key_padding_mask):
        return v
'''


@pytest.fixture
def verify(foreign):
    def row_of(name):
        cfg = foreign(name)
        return verify_model(cfg, cfg.model)

    return row_of


@pytest.fixture
def foreign(tmp_path, monkeypatch):
    (tmp_path / "foreign.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    yield lambda name: compose(
        ["model=custom", f"model._target_=foreign.{name}", "model.name=mine", "trusted_packages=[foreign]"]
    )
    sys.modules.pop("foreign", None)


def test_a_leak_is_found_whatever_the_model_declares(verify):
    row = verify("Leaky")
    assert row.patterns == ["-", "LEAK", "-", "-"]
    assert {"causal_self depends on the future", "causal_self depends on the total length"} <= set(row.faults)
    for method in ("step", "chunk"):
        assert any(fault.startswith(f"causal_self: {method} differs from forward") for fault in row.faults)


def test_attention_to_padding_is_found(verify):
    row = verify("Forgetful")
    assert row.patterns[0] == "LEAK" and row.faults == ["noncausal_self depends on padding"]


def test_a_chunk_that_differs_is_found(verify):
    (fault,) = verify("Restless").faults
    assert fault.startswith("noncausal_cross: chunk differs from forward")


def test_a_model_without_a_step_is_verified_without_it(foreign, capsys):
    assert run(foreign("Stepless"), ["model=custom"]) == 0
    shown = capsys.readouterr().out
    (row,) = (line.split() for line in shown.splitlines() if line.startswith("mine"))
    assert row[1:6] == ["ok", "ok", "-", "-", "none"] and "broken" not in shown


@pytest.mark.parametrize(
    "words",
    [["model=lavo"], ["model=perceiver_ar"], pytest.param([], marks=pytest.mark.slow)],
    ids=["layer", "decoder", "all"],
)
def test_every_model_of_this_project_passes(words, capsys):
    assert run(compose(words), words) == 0
    shown = capsys.readouterr().out
    assert "LEAK:" in shown and shown.count("LEAK") == 1 and "broken" not in shown


def test_a_broken_model_gives_exit_status_1(foreign, capsys):
    assert run(foreign("Leaky"), ["model=mine"]) == 1
    assert "broken: mine: causal_self depends on the future" in capsys.readouterr().out


# do=verify record=FILE: the cell is run again

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


def test_conditions_are_set_as_the_record_has_them_and_nothing_else():
    """An older record has some of them elsewhere; one of somebody else may have keys that are none."""
    older = made() | {"update": {"examples": 16, "micro_batch_size": 4, "devices": 1}}
    older["hardware"] = older["hardware"] | {"threads": 3, "kernels": "native"}
    assert conditions_in(older) == {
        "train.micro_batch_size": 4, "resources.cpus": 3, "resources.kernels": "native",
    }  # fmt: skip
    newer = older | {"conditions": {"train.eval_batch_size": 7, "resources.cpus": None, "paths.outputs": "/"}}
    assert conditions_in(newer) == {"train.eval_batch_size": 7}


def test_every_setting_outside_the_identity_is_a_condition_or_changes_no_number():
    assert {f"train.{name}" for name in names_of(Train, NEVER)} <= {*conditions()}
    assert set(conditions()) - {f"train.{name}" for name in names_of(Train, NEVER)} == {
        "resources.cpus", "resources.kernels", "resources.compile", "resources.matmul", "resources.checkpoint_layers",
    }  # fmt: skip


@pytest.mark.slow
def test_a_record_is_run_again_and_a_consistent_lie_is_found(tmp_path, run_here, capfd):
    divided = ("train.micro_batch_size=4", "train.eval_batch_size=7")
    assert run_here([*CELL, "++task.train=64", *divided, *folders(tmp_path)]) == 0
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
