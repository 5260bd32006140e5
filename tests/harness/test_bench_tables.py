"""do=bench for recipes, texts and tables, and the pages that do=report makes from the measurements."""

import json
import time
from functools import partial

import pytest
import torch

from harness.bench import command as bench_command
from harness.bench import generate as bench_generate
from harness.bench import layer as bench_layer
from harness.bench import measure as bench_measure
from harness.bench import timing
from harness.bench.recipe import RecipeModel
from harness.bench.subjects import typed_subjects
from harness.commands.bench import measure
from harness.commands.bench import run as bench_verb
from harness.commands.rewrite import keys_of_verb
from harness.config.compose import compose, default_arguments
from harness.config.places import CONF, ROOT
from harness.config.table_rows import row_named
from harness.errors import UsageError
from harness.progress import Progress
from harness.report.pages import bench_tables
from harness.report.scores.measurements import measured_for
from harness.report.spec.measured import Run
from harness.report.spec_files import load_table

PAPER = ROOT / "results" / "paper"
CPU = torch.device("cpu")
TEXT = ["task=lra/text", "protocol=google", "bench.what=[train]", "bench.rounds=1", "trainer=cpu"]
SMALL = ["backbone.dim=16", "backbone.heads=2", "backbone.layers=1", "backbone.ffn_dim=16"]


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Samples are short, and none is repeated: no number is tested here."""
    monkeypatch.setattr(bench_measure, "time_alternating", partial(timing.time_alternating, min_sample_s=0.0))
    monkeypatch.setattr(timing, "other_cpu_s", lambda worker_pids: 0.0)
    monkeypatch.setattr(timing.gc, "collect", lambda: 0)
    monkeypatch.setattr(bench_command, "kernels", lambda call, device: [])


def composed(places, *overrides):
    typed = ["do=bench", *overrides]
    return compose([*places, *typed]), [*typed]


def test_a_training_step_of_a_recipe_is_measured_beside_the_peer_that_it_names(places):
    cfg, typed = composed(places, *TEXT, *SMALL, "bench.models=[luna_16,linformer]", "bench.lengths=[24,32]")
    measured = measure(cfg, typed)
    assert list(measured["models"]) == ["luna_16", "linformer", "vanilla_math"], "the recipe names the peer"
    assert measured["rows"] == {"luna_16": {"model": "luna", "set": {"model.slots": 16}}}
    assert measured["models"]["luna_16"]["slots"] == 16 and measured["settings"]["batch"] == 2
    assert all(p["status"] == "ok" and p["ms"] > 0 and p["memory_mb"] > 0 for p in measured["points"])
    assert {p["length"] for p in measured["points"]} == {24, 32}
    assert measured["timed"]["train"] == "loss, gradients, clipping and update of the recipe"


def test_a_step_of_a_recipe_is_loss_gradients_and_update(places):
    cfg, _ = composed(places, *TEXT, *SMALL, "model=linformer", "train.clip_norm=1.0")
    recipe = RecipeModel(cfg, CPU)
    built = recipe.built(24)
    batch = recipe.batch(built, 24)
    assert batch["tokens"].shape == (2, 24) and batch["tokens"].min() >= 1, "0 is padding"
    before = [parameter.detach().clone() for parameter in built.model.parameters()]
    timed = recipe.prepare("train", 24)
    timed.call()
    weights, buffers = (sum(x.nbytes for x in tensors) for tensors in (built.model.parameters(), built.model.buffers()))
    steps = 4 * len(before)  # AdamW's counters, a float each
    assert timed.resident() * 2**20 == 4 * weights + buffers + steps, "weights, gradients and AdamW's two moments"
    again = recipe.built(24)
    assert all(torch.equal(a, b) for a, b in zip(before, again.model.parameters(), strict=True)), "seed 0"


def test_names_of_rows_can_be_typed():
    assert row_named("luna_16") == ("luna", {"model.slots": 16})
    assert row_named("no_such_row") is None
    assert keys_of_verb(["do=bench", "model=luna_16,lavo"]) == ["do=bench", "bench.models=[luna_16,lavo]"]
    assert keys_of_verb(["do=bench", "model=lavo,luna_16"])[-1] == "model=lavo"
    with pytest.raises(UsageError, match="there is no model 'luna_l6': did you mean"):
        typed_subjects(compose(["bench.models=[luna_l6]"]))


def test_texts_are_generated_in_both_modes_and_batches(places):
    sizes = ["bench.layers=1", "bench.dim=16", "bench.heads=2", "bench.rounds=1", "trainer=cpu", "bench.top_k=4"]
    modes = ["bench.mode=[incremental,recompute]", "bench.batches=[1,2]", "bench.prompt=3", "bench.lengths=[8]"]
    cfg, typed = composed(places, "bench.models=[local]", "model=local", "bench.what=[generate]", *sizes, *modes)
    whole = [p for p in measure(cfg, typed)["points"] if p["what"] == "generate"]
    assert all(p["status"] == "ok" and len(p["samples"]) == 1 for p in whole) and len(whole) == 2 * 2 * 2
    state = {p["batch"]: p["memory_mb"] for p in whole if p["model"] == "vanilla" and p["mode"] == "incremental"}
    assert state[2] == pytest.approx(2 * state[1])
    with pytest.raises(UsageError, match="leaves nothing to generate"):
        measure(*composed(places, *typed[1:], "bench.lengths=[3]"))


def test_a_setting_replaces_the_length(places):
    axis = ["bench.axis=model.latents", "bench.axis_values=[16,8]", "bench.lengths=[16]", "bench.rounds=1"]
    sizes = ["bench.dim=16", "bench.heads=2", "trainer=cpu"]
    measured = measure(*composed(places, "model=latte", "bench.models=[latte]", *axis, *sizes))
    measured_points = [(p["model"], p["value"]) for p in measured["points"]]
    assert measured_points == [(model, value) for value in (8, 16) for model in ("latte", "vanilla")]
    assert bench_tables.grid(measured, dict(bench_tables.measures(measured))["forward"])[0][1:3] == ["8", "16"]
    assert measured_for(Run(what="forward", lengths=(16,), axis="model.latents", values=(8, 16)), {"m": measured}) == [
        measured
    ]
    with pytest.raises(UsageError, match=r"bench\.axis comes with"):
        measure(*composed(places, "model=latte", *axis[:1]))


def test_costs_of_tokens_add_up_along_power_laws():
    costs = [{"length": n, "ms": 3.0 * n**2} for n in (4, 16, 64, 255)]
    assert bench_generate.added_up(costs, 4, 256) == pytest.approx(sum(3.0 * n**2 for n in range(4, 256)))
    assert bench_generate.positions_of(20, [276]) == [20, 32, 64, 128, 256, 275]
    assert bench_generate.positions_of(1, [16, 9]) == [1, 2, 4, 8, 15]


def test_too_long_calls_are_extrapolated_by_their_exponent_and_say_so():
    ok = [{"length": n, "status": "ok", "ms": 1.0 * n**2, "memory_mb": 2.0 * n} for n in (2, 4, 8)]
    points = [*ok, {"length": 32, "status": "skipped: about 9 s a call"}]
    bench_measure.extrapolate_skipped(points)
    assert points[-1]["ms"] == pytest.approx(32**2) and points[-1]["memory_mb"] == pytest.approx(64)
    assert points[-1]["status"] == "extrapolated: n^2.00 from 8; about 9 s a call"
    alone = [ok[0], {"length": 32, "status": "skipped: too long"}]
    bench_measure.extrapolate_skipped(alone)
    assert "ms" not in alone[1], "one point has no exponent"


@pytest.mark.parametrize(("limit_s", "cold", "calls"), [(60.0, 100, 8), (0.0, 3, 1)])
def test_calls_repeat_until_they_allocate_nothing_and_a_long_call_runs_once(limit_s, cold, calls, monkeypatch):
    made = []
    monkeypatch.setattr(bench_measure, "LONG_CALL_S", limit_s)
    monkeypatch.setattr(timing, "new_memory_s", lambda: 10.0 * min(len(made), cold))
    timed = bench_measure.Timed(lambda: made.append(torch.ones(2**22)), resident=lambda: 100.0)  # 16 MiB each, kept
    assert 0 < bench_measure.first_calls(timed, CPU) < 60 and len(made) == calls
    assert 112 < bench_measure.memory_taken(timed, CPU) < 130 and len(made) == calls + 1
    assert bench_measure.memory_taken(timed._replace(memory_mb=7.0), CPU) == 7.0 and len(made) == calls + 1


def test_the_operators_of_a_call_are_named():
    x = torch.ones(64, 64)
    assert "aten::mm" in bench_measure.kernels(lambda: x @ x, CPU)


def test_a_call_that_would_not_fit_or_end_is_not_made(places):
    cfg = compose([*places, "bench.limit_gb=1", "bench.limit_s=120"])
    points = [{"length": n, "status": "ok", "ms": 1e-3, "memory_mb": 64.0 * n * n} for n in (1, 2)]
    assert "GiB, more than 1" in bench_measure.over_limit(cfg, points, 8, CPU)
    assert not bench_measure.over_limit(cfg, points, 3, CPU)
    points = [{"length": 65_536, "status": "ok", "ms": 20e3, "memory_mb": 1.0}]
    assert "about 320 s" in bench_measure.over_limit(cfg, points, 262_144, CPU), "one call is taken for quadratic"
    points.append({"length": 131_072, "status": "ok", "ms": 40e3, "memory_mb": 2.0})
    assert not bench_measure.over_limit(cfg, points, 262_144, CPU)


def test_a_layer_reads_a_long_text_in_chunks():
    assert bench_layer.chunk_of(compose(["bench.lengths=[65536,1048576]"])) == bench_layer.CHUNK
    assert bench_layer.chunk_of(compose(["bench.lengths=[65536]"])) is None
    cfg = compose(["model=longnet", "bench.dim=16", "bench.heads=2", "bench.chunk=32", "bench.lengths=[96]"])
    hyper = default_arguments("longnet") | {"segments": [8, 16, 32], "ratios": [1, 2, 4]}
    assert bench_layer.forward(bench_layer.build_model(cfg, hyper, CPU, 97), cfg, CPU, 96).call() is None


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("table=llp/t8", "table=llp/t8 has no measurements: nothing in it is timed"),
        ("table=latte/costs", "names the measurement that it shows; to make another: python run.py do=bench model="),
        ("table=luna/t2 task=lra/image", "says itself what it measures"),
    ],
)
def test_a_table_that_is_not_measured_says_so(places, typed, says):
    cfg, overrides = composed(places, *typed.split())
    with pytest.raises(UsageError, match=says):
        bench_verb(cfg, overrides)


def test_do_bench_of_a_table_writes_the_file_that_its_page_reads(places, tmp_path, capsys):
    folders = [f"paths.bench={tmp_path / 'bench'}", f"paths.figures={tmp_path / 'figures'}", "trainer=cpu"]
    typed = ["table=luna/t2", "bench.lengths=[16]", "bench.rounds=1", "bench.models=[linformer]", *SMALL]
    assert bench_verb(*composed([*places, *folders], *typed)) == 0
    (path,) = (tmp_path / "bench").glob("*.json")
    measured = json.loads(path.read_text())
    assert list(measured["models"]) == ["Transformer", "Linformer"], "the reference stands beside every row"
    run = load_table("luna/t2", CONF, PAPER).runs["train"]
    assert measured_for(run, {measured["name"]: measured}) == [], "the table shows the unchanged recipe"
    sizes = {key: int(value) for key, value in (override.split("=") for override in SMALL)}
    assert measured_for(run.model_copy(update={"set": sizes}), {measured["name"]: measured}) == [measured]
    assert "Forward and backward" in capsys.readouterr().out


def test_a_long_first_length_is_judged_by_a_short_call(places):
    """A single length of millions of tokens was begun without an estimate, and ended by hand."""
    cfg, lengths = compose([*places, "bench.rounds=1", "bench.limit_s=5", "bench.limit_gb=4"]), []

    def call(work, length, seconds):
        lengths.append(length)
        return bench_measure.Timed(lambda: time.sleep(seconds), memory_mb=length / 1024)

    for seconds, says in ((0.01, "a call or more, bench.limit_s=5"), (0.0, "skipped: about 16 GiB, more than 4")):
        prepare = {"a": partial(call, seconds=seconds)}
        (point,) = bench_measure.measure_points(cfg, "forward", [2**24], prepare, CPU, Progress(silent=True))
        assert point["status"].startswith("skipped: about ") and says in point["status"]
    assert set(lengths) == {bench_measure.PROBED}, "the long call is never made"
