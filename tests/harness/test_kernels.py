"""resources.kernels and resources.compile: cells with compiled kernels, and cells that torch.compile trains."""

import functools
import logging
import os
import re
from types import SimpleNamespace

import pytest
import torch

from harness.bench.command import measure
from harness.config.build import build
from harness.config.compose import compose
from harness.config.source_code import code_of
from harness.errors import UsageError
from harness.records import record
from harness.training import compiled as compiled_training
from harness.training import process
from harness.training.compiled import CompiledLoss, compiling, require_compiler
from harness.training.conditions import require_same_recipe
from harness.training.process import choose_kernels, kernels_in_use
from harness.training.run_cell import run_cell
from models.ops import fla_kernels, flex, native
from tests.helpers.cells import request_of
from tests.helpers.kernels import compiled

CELL = ["model=lavo", "task=lra/listops", "budget=smoke", "trainer=cpu"]
NATIVE, FLA, FLEX = (f"resources.kernels={name}" for name in ("native", "fla", "flex"))


@pytest.fixture(autouse=True)
def torch_again():
    yield
    choose_kernels(compose([]))


@compiled
@pytest.mark.slow
def test_a_cell_is_the_same_cell_with_other_kernels(places, tmp_path, capsys):
    """Neither its identity nor its code change, and the record names the kernels: losses differ by rounding."""
    run = lambda *overrides: run_cell(request_of(compose([*CELL, *places, *overrides])))  # noqa: E731
    done = run(NATIVE)
    assert done.state == "done" and "1 of" in (said := capsys.readouterr().err) and "kernels=native" in said
    (path,) = (tmp_path / "records").rglob("*.json")
    native = record.read(path)
    assert native["code_sha256"] == code_of(compose([*CELL, *places])) and native["hardware"]["kernels"] == "native"
    assert "already done: " in run().detail, "the same cell"
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
    assert run_cell(request_of(compose([*CELL, *places, NATIVE]))).state == "done"
    assert [line for line in caplog.messages if line.startswith("resources.kernels=native: ")]
    (path,) = (tmp_path / "records").rglob("*.json")
    assert "kernels" not in record.read(path)["hardware"]


def test_kernels_of_a_gpu_are_refused_without_one_or_without_the_library(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for override in (FLA, FLEX):
        with pytest.raises(UsageError, match=rf"^{re.escape(override)}: torch sees no CUDA device here"):
            choose_kernels(compose([override]))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(process, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"the package fla is not installed: pip install fla-core"):
        choose_kernels(compose([FLA]))
    choose_kernels(compose([FLEX]))
    monkeypatch.setattr(torch, "__version__", "2.8.0+cu128")
    with pytest.raises(UsageError, match=r"^resources\.kernels=flex: torch 2\.8\.0\+cu128 is too old"):
        choose_kernels(compose([FLEX]))


def test_kernels_that_a_compiler_gets_wrong_are_refused_before_the_first_update(monkeypatch):
    """As on an H200 with Triton 3.6, where each cell failed in its first backward pass."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(process, "find_spec", lambda name: name == "fla" or None)

    def choose(model, triton, capability):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
        monkeypatch.setattr(process, "version", lambda name: triton)
        choose_kernels(compose([FLA, f"model={model}"]))

    with pytest.raises(UsageError, match=r"^resources\.kernels=fla: Triton 3\.6\.0 compiles the kernels of gated_d"):
        choose("gated_deltanet", "3.6.0", (9, 0))
    choose("gated_deltanet", "3.7.1", (9, 0))
    choose("gated_deltanet", "3.6.0", (8, 0))
    choose("kda", "3.6.0", (9, 0))


def test_one_choice_of_kernels_at_a_time(monkeypatch):
    monkeypatch.setattr(process, "missing_for_gpu", lambda kernels, model: "")
    for override, name in ((NATIVE, "native"), (FLA, "fla"), (FLEX, "flex"), ("resources.kernels=torch", "torch")):
        cfg = compose([override])
        choose_kernels(cfg)
        assert kernels_in_use(cfg) == name
        switches = {"native": native.SWITCH, "fla": fla_kernels.SWITCH, "flex": flex.SWITCH}
        assert {kernels for kernels, switch in switches.items() if os.environ[switch] == "1"} == {name} - {"torch"}


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


LATTE = ["model=latte", "task=lra/listops", "budget=smoke", "trainer=cpu"]
COMPILE = "resources.compile=true"


@pytest.fixture
def traced(monkeypatch):
    """torch.compile without a C++ compiler: traced, and run by torch. The number of its calls."""
    calls, compile_model = [], torch.compile

    def compile_traced(model):
        calls.append(model)
        return compile_model(model, backend="eager")

    monkeypatch.setattr(torch, "compile", compile_traced)
    monkeypatch.setattr(compiled_training, "missing_compiler", lambda device: "")
    yield calls
    torch._dynamo.reset()


def test_devices_kernels_and_measurements_that_cannot_be_compiled_are_refused():
    for overrides, message in (
        (["trainer=fsdp"], r"parameters are sharded \(trainer=fsdp\)"),
        (["resources.checkpoint_layers=true"], r"layers that are computed again"),
        (["resources.kernels=native"], r"not those of resources\.kernels=native; leave one out"),
    ):
        with pytest.raises(UsageError, match=rf"^resources\.compile=true: .*{message}.*compile=false trains without$"):
            require_compiler(compose([COMPILE, *overrides]), "cpu")
        require_compiler(compose(overrides), "cpu")
    with pytest.raises(UsageError, match="do=bench measures without it"):
        measure(compose([COMPILE, "trainer=cpu"]), [])
    with pytest.raises(UsageError, match=r"last\.ckpt: was trained with resources\.compile true, now false; rerun=all"):
        require_same_recipe({"resources.compile": "true"}, {"resources.compile": "false"}, "last.ckpt")


def test_a_machine_without_a_compiler_is_refused(monkeypatch):
    from torch._inductor import cpp_builder
    from torch._inductor.exc import InvalidCxxCompiler

    def fail():
        raise InvalidCxxCompiler

    monkeypatch.setattr(cpp_builder, "get_cpp_compiler", fail)
    with pytest.raises(UsageError, match=r"^resources\.compile=true: there is no C\+\+ compiler: install g\+\+"):
        require_compiler(compose([COMPILE]), "cpu")


class Summing(torch.nn.Module):
    """A model that is compiled anew for each number of rows."""

    def forward(self, x):
        return sum(row.sum() for row in x)


TASK = SimpleNamespace(loss=lambda model, batch: model(batch), with_common_length=lambda batch: batch)


def test_a_loss_that_compiles_nothing_is_refused(traced):
    with pytest.raises(UsageError, match=r"^resources\.compile=true: nothing of Summing can be compiled"):
        # the model's forward, which torch.compile does not replace
        CompiledLoss(SimpleNamespace(**vars(TASK) | {"loss": Summing.forward}), Summing())(torch.ones(2))


def test_batches_of_too_many_sizes_are_refused_and_not_trained_uncompiled(traced, monkeypatch):
    monkeypatch.setattr(compiled_training, "GRAPHS", 2)
    cfg = compose([*LATTE, COMPILE])
    model = Summing()
    loss = CompiledLoss(TASK, model)
    with (
        pytest.raises(UsageError, match=r"^resources\.compile=true: Summing with latte needs more than 2 graphs"),
        compiling(cfg, model, lambda: False),
    ):
        for rows in range(2, 9):
            assert loss(torch.ones(rows, 3)) == 3 * rows


def test_a_compiled_task_has_few_lengths_and_the_same_loss():
    built = build(compose(["task=lra/listops", "model=vanilla", "budget=smoke"]))
    task, model, lengths = built.task, built.model.eval(), set()
    for length in range(1, task.max_length + 1, 3):
        tokens = torch.randint(1, 9, (2, length), generator=torch.Generator().manual_seed(length))
        batch = {"tokens": tokens, "label": torch.tensor([0, 1])}
        padded = task.with_common_length(batch)
        lengths.add(padded["tokens"].shape[1])
        torch.testing.assert_close(task.loss(model, padded), task.loss(model, batch))
        assert task.tokens(padded) == task.tokens(batch)
    assert len(lengths) == 8 and max(lengths) == task.max_length


def test_a_failure_of_the_compiler_is_one_line(monkeypatch):
    def fail(graph, inputs):
        raise RuntimeError("no such\ninstruction")

    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=fail))
    cfg, model = compose([*LATTE, COMPILE]), torch.nn.Linear(2, 2)
    loss = CompiledLoss(TASK, model)
    with (
        pytest.raises(UsageError, match=r"^resources\.compile=true: Linear with latte does not") as raised,
        compiling(cfg, model, lambda: False),
    ):
        loss(torch.ones(2, 2))
    assert "no such instruction" in str(raised.value) and "\n" not in str(raised.value)
    torch._dynamo.reset()
    with compiling(cfg, model, lambda: True):  # a signal, which ended the compiler, too
        loss(torch.ones(2, 2))
    torch._dynamo.reset()


@pytest.mark.slow
def test_a_compiled_cell_is_the_same_cell_and_its_record_says_so(places, tmp_path, traced, capsys):
    """Training alone goes through the compiled model, and the checkpoint has the model's names."""
    run = lambda *overrides: run_cell(request_of(compose([*LATTE, *places, *overrides])))  # noqa: E731
    assert run(COMPILE).state == "done" and len(traced) == 1
    assert "1 of" in (said := capsys.readouterr().err) and "threads, compiled" in said
    (path,) = (tmp_path / "records").rglob("*.json")
    entries = record.read(path)
    assert entries["hardware"]["compile"] is True
    assert "already done: " in run().detail, "the same cell"
    assert run("rerun=all").state == "done" and len(traced) == 1 and "threads, compiled" not in capsys.readouterr().err
    plain = record.read(path)
    assert plain["cell"] == entries["cell"] and "compile" not in plain["hardware"]
