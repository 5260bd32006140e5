"""The parts of `make gpu` on the CPU: comparisons, measurements, and results of parts that fail or hang."""

import json
import os
import types
from pathlib import Path

import pytest
import torch

from benchmarks import goals
from benchmarks.gpu import __main__ as command
from benchmarks.gpu import cells, forms, models, part
from benchmarks.gpu.page import page, verdict
from benchmarks.gpu.part import FAILED, MEASURED, OK, SKIPPED, UNFINISHED, PartRun, row
from models.attention.base import Pattern
from models.ops import fla_kernels
from models.ops.gated_linear import gated_linear_attention
from tests.helpers import gpu_parts

ROOT = Path(__file__).resolve().parents[1]
CPU = torch.device("cpu")


@pytest.fixture
def part_run(tmp_path):
    return PartRun(CPU, 60.0, tmp_path, tiny=True)


# the CPU instead of CUDA: without a GPU, the functions of the parts are tested with known results


@pytest.mark.parametrize("name", ["lavo", "local", "no_cross"])
def test_a_device_that_computes_the_same_passes(part_run, name):
    rows = list(models.model_rows(part_run, [name]))
    assert rows and all(entry["state"] == OK and entry["repeats"] for entry in rows)
    assert all(set(entry["float32"].values()) == {0.0} for entry in rows)
    assert all(entry["bfloat16"][kind] < 0.2 for entry in rows for kind in ("output", "gradient"))


@pytest.mark.parametrize(
    ("dtype", "error", "kind"),
    [(torch.float32, 1.01, "gradient"), (torch.bfloat16, 1.5, "gradient"), (torch.float32, float("nan"), "gradient")],
)
def test_a_device_that_computes_something_else_fails(part_run, monkeypatch, dtype, error, kind):
    """The gradient of one parameter is wrong, only on the device."""
    right, calls = models.run, []

    def wrong(model, given, device, asked):
        results = right(model, given, device, asked)
        calls.append(asked)
        first = calls.count(asked) == 1  # the device comes before the CPU
        if asked is dtype and first:
            results["q_proj.weight"] = results["q_proj.weight"] * error
        return results

    monkeypatch.setattr(models, "run", wrong)
    results = models.compare_devices(models.Case("vanilla", Pattern.CAUSAL_SELF), CPU)
    assert (
        results["state"] == FAILED and kind in results["text"] and str(dtype).removeprefix("torch.") in results["text"]
    )


def test_a_model_that_fails_costs_no_other(part_run, monkeypatch):
    def compare(case, device):
        if case.pattern is Pattern.CAUSAL_SELF:
            raise RuntimeError("CUDA error:\nno kernel <image>")
        return row(case.model, OK)

    monkeypatch.setattr(models, "compare_devices", compare)
    results = list(models.model_rows(part_run, ["vanilla"]))
    assert [entry["state"] for entry in results].count(OK) == len(results) - 1 == 3
    assert "RuntimeError: CUDA error: no kernel <image>" in [entry["text"] for entry in results]


def test_every_goal_is_measured(part_run):
    results = list(goals.speed_rows(part_run))
    assert {entry["id"] for entry in results} == {f"G{number}" for number in range(1, 7)}
    measured = [entry for entry in results if entry["state"] == MEASURED]
    assert len(measured) >= 15 and all(entry["met"] == meets(entry) and entry["value"] > 0 for entry in measured)
    assert {entry["state"] for entry in results if "chunk_lightnet" in entry["name"]} <= {MEASURED, SKIPPED}


def meets(entry):
    return entry["value"] >= entry["goal"] if entry["at_least"] else entry["value"] <= entry["goal"]


@pytest.mark.parametrize(("error", "state"), [(1.0, OK), (3.0, FAILED)])
def test_a_layer_with_other_kernels_is_compared(monkeypatch, error, state):
    """On the CPU, where the kernels are a stand-in."""

    def chunk_gla(q, k, v, g, *, scale, initial_state, output_final_state):
        with forms.kernels(""):
            y, final = gated_linear_attention(*(x.transpose(1, 2) for x in (q, k, v, g)), initial_state=initial_state)
        y = torch.cat([error * y[..., :1], y[..., 1:]], -1)
        return y.transpose(1, 2), final

    monkeypatch.setattr(fla_kernels, "DEVICE", "cpu")
    monkeypatch.setattr(fla_kernels, "function", {"chunk_gla": chunk_gla}.get)
    results = forms.compare_forms("kernels", "gla", CPU, 64, rounds=1)
    assert results["state"] == state and results["ratio"] > 0 and max(results["deviation"].values()) > 0
    assert os.environ.get(fla_kernels.SWITCH, "0") == "0"


def test_a_cell_stops_at_its_time_and_says_how_fast_it_was(tmp_path, capfd):
    (results,) = cells.paper_cell(PartRun(CPU, 2.0, tmp_path, tiny=True))
    assert results["state"] == MEASURED and 0 < results["steps"] < results["of_steps"]
    assert results["examples_per_s"] > 0 and results["hours_of_recipe"] > 0 and results["peak_memory_mb"] > 0
    assert "stopped by the time limit" in results["text"] and list(tmp_path.rglob("last.ckpt"))


RECORD = {"weights_sha256": "a", "tested_weights_sha256": "a", "tokens": 3, "update": {"devices": 2}}


def record(loss=1.0, **changed):
    return RECORD | {"metrics": {"last": {"val": {"loss": loss}}}} | changed


@pytest.mark.parametrize(("second", "state"), [(record(), OK), (record(weights_sha256="b"), FAILED)])
def test_two_runs_are_the_same_in_every_bit(part_run, monkeypatch, second, state):
    given = iter([record(), second])
    monkeypatch.setattr(cells, "trained", lambda part_run, name, *overrides: next(given))
    assert [entry["state"] for entry in cells.repeated(part_run)] == [state]


@pytest.mark.parametrize(
    ("second", "state"),
    [(record(1.0 + 1e-6), OK), (record(1.1), FAILED), (record(1.0, update={"devices": 1}), FAILED)],
)
def test_several_devices_train_what_one_trains(part_run, monkeypatch, second, state):
    given = iter([record(), second])
    monkeypatch.setattr(cells, "trained", lambda part_run, name, *overrides: next(given))
    (results,) = cells.several_devices(part_run, 2)
    assert (results["state"], results["devices"]) == (state, 2)
    (alone,) = cells.several_devices(part_run, 1)
    assert alone["state"] == SKIPPED and "one device" in alone["text"]


@pytest.mark.slow
def test_cells_are_run_as_a_user_runs_them(tmp_path):
    (results,) = cells.several_devices(PartRun(CPU, 400.0, tmp_path, tiny=True))
    assert results["state"] == OK and results["losses"][0] == pytest.approx(results["losses"][1], rel=1e-5)


# the whole command


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """(parts as {name: rows or an error}, arguments) -> (exit status, numbers, page, output)"""

    def run(parts, *arguments):
        def launch(name, seconds, options):
            if isinstance(parts[name], Exception):
                raise parts[name]
            return parts[name]

        monkeypatch.setattr(command, "in_separate_process", launch)
        folders = ["--device", "cpu", "--out", str(tmp_path / "out"), "--work", str(tmp_path / "work")]
        status = command.main([*parts, *folders, *arguments])
        path = tmp_path / "out" / "the-cpu.json"
        text = path.read_text(encoding="utf-8")
        return status, json.loads(text), path.with_suffix(".md").read_text(encoding="utf-8"), capsys.readouterr().out

    return run


def model(state=OK, **changed):
    numbers = {"float32": {"output": 1e-6, "gradient": 2e-6}, "bfloat16": {"output": 0.01, "gradient": 0.02}}
    return row("lavo", state, pattern="causal_self", repeats=True, **numbers) | changed


def test_what_works_is_said_in_plain_words(run):
    goal = {"id": "G1", "unit": "µs", "goal": 90, "at_least": False}
    parts = {
        "models": [model()],
        "devices": [row("DDP", SKIPPED, "there is one device, and nothing to divide")],
        "speed": [row("Latte", MEASURED, value=120.0, met=False, **goal)],
    }
    status, measured, text, printed = run(parts)
    assert status == 0 and "Longhaul works on the CPU: all 1 checks hold." in text and "there is one device" in text
    assert "| G1 | Latte | 120 µs | ≤ 90 | missed |" in text and "0 of 1 goals met" in text
    assert "| lavo | causal_self |" in text and verdict(measured) in printed
    assert page(measured) == text and list(measured["parts"]) == list(parts)


def test_what_fails_is_counted_and_stops_nothing(run):
    numbers = {"output": float("nan"), "gradient": 0.0}
    parts = {
        "models": [model(), model(FAILED, text="output in float32 deviates <b>|", float32=numbers)],
        "repeat": OSError("cannot fork"),
        "compile": [row("torch.compile", UNFINISHED, "no time for luna")],
    }
    status, _, text, printed = run(parts)
    assert status == 1 and "2 of 3 checks failed on the CPU. Without enough time: compile" in text
    assert "deviates &lt;b&gt;&#124;" in text and "<b>" not in text and "not finite" in text
    assert "OSError: cannot fork" in text and "no time for luna" in text and "2 of 3 checks failed" in printed


CRASHED = "its process ended with status 3"


@pytest.mark.parametrize(
    ("function", "rows"),
    [
        ("crashes", [row("lavo", OK), row("models", FAILED, CRASHED)]),
        (
            "items_that_crash_and_hang",
            [
                row("lavo", OK),
                row("latte", FAILED, CRASHED),
                row("luna", FAILED, "no end within 2 s: it hangs, or compiles for longer; `--minutes` gives more"),
                row("longnet", OK),
            ],
        ),
    ],
)
def test_a_process_that_crashes_or_hangs_costs_no_other_row(tmp_path, monkeypatch, function, rows):
    monkeypatch.setattr(part, "serve", gpu_parts.serve)  # which knows the made-up part in its own process
    monkeypatch.setattr(part, "HANGS", 0.02)
    chosen = types.SimpleNamespace(device="cpu", tiny=True, work=tmp_path, function=function)
    assert part.in_separate_process("models", 100.0, chosen) == rows


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_cuda_it_says_so_and_succeeds(tmp_path, capsys):
    assert command.main(["--out", str(tmp_path / "out"), "--work", str(tmp_path / "work")]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("skipped: no GPU for torch ") and printed.count("\n") == 1 and not os.listdir(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["modles"], "unknown part modles; the parts are models, repeat,"),
        (["--minutes", "0"], "--minutes=0: it is a number of at least 0.2"),
        (["--minutes", "nan"], "--minutes=nan"),
        (["--minutes", "inf"], "--minutes=inf"),
        (["--device", "tpu"], "invalid choice: 'tpu'"),
    ],
)
def test_wrong_arguments_are_one_line(capsys, arguments, message):
    with pytest.raises(SystemExit) as stop:
        command.main(arguments)
    assert stop.value.code == 2 and message in capsys.readouterr().err.splitlines()[-1]


def test_the_committed_page_follows_from_its_numbers():
    for path in (ROOT / "results" / "gpu").glob("*.json"):
        assert path.with_suffix(".md").read_text(encoding="utf-8") == page(json.loads(path.read_text(encoding="utf-8")))
