"""resources.compile: cells that torch.compile trains, and what refuses them."""

import functools
from types import SimpleNamespace

import pytest
import torch

from harness.bench.command import measure
from harness.config.compose import compose
from harness.config.source_code import code_of
from harness.errors import UsageError
from harness.records import record
from harness.training import compiled
from harness.training.compiled import CompiledLoss, compiling, require_compiler
from harness.training.conditions import require_same_recipe
from harness.training.run_cell import CellRequest, run_cell

CELL = ["model=latte", "task=lra/listops", "budget=smoke", "trainer=cpu"]
COMPILE = "resources.compile=true"


@pytest.fixture
def traced(monkeypatch):
    """torch.compile without a C++ compiler: traced, and run by torch. The number of its calls."""
    calls, compile_model = [], torch.compile

    def compile_traced(model):
        calls.append(model)
        return compile_model(model, backend="eager")

    monkeypatch.setattr(torch, "compile", compile_traced)
    monkeypatch.setattr(compiled, "missing_compiler", lambda device: "")
    yield calls
    torch._dynamo.reset()


def test_devices_kernels_and_measurements_that_cannot_be_compiled_are_refused():
    for overrides, devices, message in (
        ([], 2, r"a cell on 2 devices is not compiled"),
        (["resources.kernels=native"], 1, r"not those of resources\.kernels=native; leave one out"),
    ):
        with pytest.raises(UsageError, match=rf"^resources\.compile=true: .*{message}.*compile=false trains without$"):
            require_compiler(compose([COMPILE, *overrides]), "cpu", devices)
        require_compiler(compose(overrides), "cpu", devices)
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
        require_compiler(compose([COMPILE]), "cpu", 1)


class Summing(torch.nn.Module):
    """A model that is compiled anew for each number of rows."""

    def forward(self, x):
        return sum(row.sum() for row in x)


class SumTask:
    """The loss of a batch is what the model makes of it."""

    def loss(self, model, batch):
        return model(batch)


TASK = SimpleNamespace(loss=lambda model, batch: model(batch))


def test_a_loss_that_compiles_nothing_is_refused(traced):
    with pytest.raises(UsageError, match=r"^resources\.compile=true: nothing of Summing can be compiled"):
        # the model's forward, which torch.compile does not replace
        CompiledLoss(SimpleNamespace(loss=Summing.forward), Summing())(torch.ones(2))


def test_batches_of_too_many_sizes_are_refused_and_not_trained_uncompiled(traced, monkeypatch):
    monkeypatch.setattr(compiled, "GRAPHS", 2)
    cfg = compose([*CELL, COMPILE])
    model = Summing()
    loss = CompiledLoss(TASK, model)
    with (
        pytest.raises(UsageError, match=r"^resources\.compile=true: Summing with latte needs more than 2 graphs"),
        compiling(cfg, model, lambda: False),
    ):
        for rows in range(2, 9):
            assert loss(torch.ones(rows, 3)) == 3 * rows


def test_a_failure_of_the_compiler_is_one_line(monkeypatch):
    def fail(graph, inputs):
        raise RuntimeError("no such\ninstruction")

    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=fail))
    cfg, model = compose([*CELL, COMPILE]), torch.nn.Linear(2, 2)
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


def test_the_code_of_a_cell_covers_the_compiler():
    assert None not in (digests := [code_of(compose([*CELL, *more])) for more in ([], [COMPILE])])
    assert digests[0] != digests[1]


@pytest.mark.slow
def test_a_compiled_cell_is_the_same_cell_and_its_record_says_so(places, tmp_path, traced, capsys):
    """Training alone goes through the compiled model, and the checkpoint has the model's names."""
    run = lambda *overrides: run_cell(CellRequest(compose([*CELL, *places, *overrides])))  # noqa: E731
    assert run(COMPILE).state == "done" and len(traced) == 1
    assert "1 of" in (said := capsys.readouterr().err) and "threads, compiled" in said
    (path,) = (tmp_path / "records").rglob("*.json")
    entries = record.read(path)
    assert entries["hardware"]["compile"] is True
    assert "already done by other code" in run().detail, "the same cell"
    assert run("rerun=all").state == "done" and len(traced) == 1 and "threads, compiled" not in capsys.readouterr().err
    plain = record.read(path)
    assert plain["cell"] == entries["cell"] and "compile" not in plain["hardware"]
