"""resources.kernels: cells with compiled kernels."""

import logging
import os

import pytest
import torch

from harness.config import source_code
from harness.config.compose import compose
from harness.config.source_code import code_of
from harness.errors import UsageError
from harness.records import record
from harness.training import process
from harness.training.process import choose_kernels, kernels_in_use
from harness.training.run_cell import CellRequest, run_cell
from models.ops import fla_kernels
from tests.helpers.kernels import compiled

CELL = ["model=lavo", "task=lra/listops", "budget=smoke", "trainer=cpu"]
NATIVE, FLA = "resources.kernels=native", "resources.kernels=fla"


@pytest.fixture(autouse=True)
def torch_again():
    yield
    choose_kernels(compose([]))


@compiled
@pytest.mark.slow
def test_a_cell_is_the_same_cell_with_other_kernels(places, tmp_path, capsys):
    """Its identity does not change, and the code of its record does: losses differ by rounding."""
    run = lambda *overrides: run_cell(CellRequest(compose([*CELL, *places, *overrides])))  # noqa: E731
    done = run(NATIVE)
    assert done.state == "done" and "1 of" in (said := capsys.readouterr().err) and "kernels=native" in said
    (path,) = (tmp_path / "records").rglob("*.json")
    native = record.read(path)
    assert native["code_sha256"] != code_of(compose([*CELL, *places])) and native["hardware"]["kernels"] == "native"
    assert "already done by other code" in run().detail, "the same cell"
    assert run("rerun=all").state == "done" and "kernels=" not in capsys.readouterr().err
    plain = record.read(path)
    assert plain["cell"] == native["cell"] and "kernels" not in plain["hardware"]
    assert plain["metrics"]["last"]["val"]["loss"] == pytest.approx(native["metrics"]["last"]["val"]["loss"], rel=1e-3)


@pytest.mark.slow
def test_a_cell_whose_kernels_do_not_compile_ran_with_torchs(places, tmp_path, monkeypatch, caplog):
    from models.ops import native

    def fail(*arguments, **options):
        raise OSError("longhaul.so: undefined symbol")

    # another test may have disabled it, or raised its level
    monkeypatch.setattr(logging.getLogger(native.__name__), "disabled", False)
    caplog.set_level(logging.WARNING, native.__name__)
    native.load.cache_clear()
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))  # holds no library
    monkeypatch.setattr("torch.utils.cpp_extension.load", fail)
    assert run_cell(CellRequest(compose([*CELL, *places, NATIVE]))).state == "done"
    assert [line for line in caplog.messages if line.startswith("resources.kernels=native: ")]
    (path,) = (tmp_path / "records").rglob("*.json")
    assert "kernels" not in record.read(path)["hardware"]


def test_kernels_of_a_gpu_are_refused_without_one_or_without_the_library(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UsageError, match=r"^resources\.kernels=fla: torch sees no CUDA device here"):
        choose_kernels(compose([FLA]))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(process, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"no package fla: pip install flash-linear-attention"):
        choose_kernels(compose([FLA]))


@pytest.mark.parametrize(
    "model, triton, capability, refused",
    [
        ("gated_deltanet", "3.6.0", (9, 0), True),
        ("gated_deltanet", "3.7.1", (9, 0), False),
        ("gated_deltanet", "3.6.0", (8, 0), False),
        ("kda", "3.6.0", (9, 0), False),
    ],
)
def test_kernels_that_a_compiler_gets_wrong_are_refused_before_the_first_update(
    monkeypatch, model, triton, capability, refused
):
    """As on an H200 with Triton 3.6, where each cell failed in its first backward pass."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    monkeypatch.setattr(process, "find_spec", lambda name: name == "fla" or None)
    monkeypatch.setattr(process, "version", lambda name: triton)
    cfg = compose([FLA, f"model={model}"])
    if refused:
        with pytest.raises(
            UsageError, match=r"^resources\.kernels=fla: Triton 3\.6\.0 compiles the kernels of gated_d"
        ):
            choose_kernels(cfg)
    else:
        choose_kernels(cfg)


def test_one_choice_of_kernels_at_a_time(monkeypatch):
    monkeypatch.setattr(process, "missing_for_fla", lambda model: "")
    for override, name in ((NATIVE, "native"), (FLA, "fla"), ("resources.kernels=torch", "torch")):
        cfg = compose([override])
        choose_kernels(cfg)
        assert kernels_in_use(cfg) == name
        switches = {"native": os.environ["LONGHAUL_NATIVE"], "fla": os.environ[fla_kernels.SWITCH]}
        assert {kernels for kernels, switch in switches.items() if switch == "1"} == {name} - {"torch"}


def test_the_code_of_a_cell_covers_the_version_of_the_library(monkeypatch):
    digests = []
    for number in ("0.4.0", "0.4.1"):
        monkeypatch.setattr(source_code, "version", lambda name, number=number: number)
        source_code.source_digest.cache_clear()
        digests.append(code_of(compose([*CELL, FLA])))
    source_code.source_digest.cache_clear()
    assert None not in digests and len({*digests, code_of(compose(CELL))}) == 3


@compiled
@pytest.mark.slow
def test_kernels_are_called(monkeypatch):
    choose_kernels(compose([NATIVE]))
    from models.attention.lavo import LAVO

    layer = LAVO(64, 2, pattern="causal_self", max_length=256, bases=32, window=64)
    x = torch.randn(2, 256, 64, generator=torch.Generator().manual_seed(0))

    def operators():
        with torch.profiler.profile() as profile:
            layer(x)[0].sum().backward()
        return {event.key for event in profile.key_averages() if event.key.startswith("longhaul::")}

    four = {f"longhaul::{name}_{way}" for name in ("banded", "lavo_read") for way in ("forward", "backward")}
    assert operators() == four
    choose_kernels(compose([]))
    assert operators() == set()
