"""do=bench of layers, recipes, texts and tables: what it measures and refuses, its pages, and its timing."""

import json
import time
from functools import partial

import pytest
import torch

from harness.bench import generate as bench_generate
from harness.bench import layer as bench_layer
from harness.bench import measure as bench_measure
from harness.bench import timing
from harness.bench.recipe import RecipeModel
from harness.bench.subjects import typed_subjects
from harness.commands import report
from harness.commands.bench import measure, run
from harness.commands.report import run as render
from harness.commands.rewrite import keys_of_verb
from harness.config.compose import compose, default_arguments
from harness.config.places import CONF, ROOT
from harness.config.table_rows import row_named
from harness.errors import UsageError
from harness.progress import Progress
from harness.records.measurements import load_measurements
from harness.report.pages import bench_tables
from harness.report.plots.costs import measurement_plot, write_report
from harness.report.scores.measurements import measured_for
from harness.report.spec.measured import Run
from harness.report.spec_files import load_table
from harness.report.stats import growth

CPU = torch.device("cpu")
TEXT = ["task=lra/text", "protocol=google", "bench.what=[train]", "bench.rounds=1", "trainer=cpu"]
TINY = ["backbone.dim=16", "backbone.heads=2", "backbone.layers=1", "backbone.ffn_dim=16"]
SMALL = ["trainer=cpu", "bench.dim=16", "bench.heads=2", "bench.rounds=1", "bench.lengths=[32,128]"]


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Samples are short, and none is repeated: no number is tested here."""
    monkeypatch.setattr(bench_measure, "time_alternating", partial(timing.time_alternating, min_sample_s=0.0))
    monkeypatch.setattr(timing, "other_cpu_s", lambda: 0.0)
    monkeypatch.setattr(timing.gc, "collect", lambda: 0)


def composed(places, *overrides):
    typed = ["do=bench", *overrides]
    return compose([*places, *typed]), [*typed]


@pytest.fixture
def bench(places, tmp_path):
    """A command's configuration and overrides."""

    def composed(*overrides):
        folders = [f"paths.{name}={tmp_path / name}" for name in ("bench", "figures", "site")]
        typed = [*SMALL, *overrides]
        return compose([*places, *folders, *typed]), typed

    return composed


def test_a_measurement_is_a_file_a_page_and_a_picture(bench, tmp_path, capsys):
    assert run(*bench("bench.models=[vanilla_rope]", "bench.what=[forward,train,decode]")) == 0
    (path,) = (tmp_path / "bench").glob("*.json")
    measured = json.loads(path.read_text())
    points = measured["points"]
    assert len(points) == 3 * 2 * 2, "measures x lengths x models, softmax among them"
    assert all(point["status"] == "ok" and point["ms"] > 0 for point in points)
    assert set(measured["models"]) == {"vanilla_rope", "vanilla"}
    decoded = {p["model"]: p["memory_mb"] for p in points if p["what"] == "decode" and p["length"] == 128}
    assert decoded["vanilla"] == pytest.approx(2 * 129 * 16 * 4 / 2**20), "keys and values of 129 tokens, float32"
    text = (tmp_path / "tables" / "bench" / f"{measured['name']}.md").read_text()
    assert "Forward and backward" in text and "| softmax with RoPE |" in text and "time ~ n^" in text
    for suffix in ("png", "pdf"):
        assert (tmp_path / "figures" / "bench" / f"{measured['name']}.{suffix}").stat().st_size > 1000
    drawn = load_measurements(tmp_path / "bench")
    assert measurement_plot(*drawn.values(), tmp_path / "figures").stale() == []
    drawn[measured["name"]]["points"][0]["ms"] += 1
    plot = measurement_plot(*drawn.values(), tmp_path / "figures")
    assert len(plot.stale()) == 2, "pictures of other numbers"
    assert "Forward and backward" in capsys.readouterr().out
    for point in points:  # a logarithmic axis shows no call without further memory, and no extrapolated one
        point |= {"memory_mb": 0.0, "status": "extrapolated: too long"}
    assert {path.suffix for path in write_report(measured, tmp_path / "none", tmp_path / "none")} == {".md"}


def test_report_makes_and_checks_the_pages(bench, tmp_path, capsys, monkeypatch, few_tables):
    # all tables take half a minute
    monkeypatch.setattr(report, "report_tables", lambda *asked, **settings: report.TablesReport([], []))
    monkeypatch.setattr(report, "draw_figures", lambda *asked, **settings: [])
    cfg, typed = bench("bench.models=[local]", "bench.lengths=[32,64]")
    cfg.format = ["md"]  # pictures take half a minute
    measured = measure(cfg, typed)
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / f"{measured['name']}.json").write_text(json.dumps(measured))
    path = tmp_path / "tables" / "bench" / f"{measured['name']}.md"
    assert render(cfg, []) == 0 and path.is_file()
    cfg.check = True
    assert render(cfg, []) == 0
    path.write_text("something else")
    assert render(cfg, []) == 1
    assert f"{path} differs from the records and measurements" in capsys.readouterr().err
    (tmp_path / "bench" / "other.json").write_text("{}")
    with pytest.raises(UsageError, match=r"other\.json: not a measurement"):
        render(cfg, [])
    (tmp_path / "bench" / "other.json").unlink()
    (old,) = (tmp_path / "bench").glob("*.json")
    old.write_text(old.read_text().replace('"status"', '"state"'))
    with pytest.raises(UsageError, match=r"points\[0\]\.status: missing; move it away or measure again"):
        render(cfg, [])


def test_a_call_that_would_take_too_long_is_skipped_and_typed_settings_reach_the_model_alone(bench):
    """The peer keeps its own settings, and a model without the pattern is absent."""
    typed = ("bench.models=[linformer,local]", "model=local", "model.window=3", "bench.limit_s=1e-9")
    measured = measure(*bench(*typed))
    statuses = [point["status"].split(":")[0] for point in measured["points"] if point["model"] == "local"]
    assert statuses == ["ok", "skipped"] and measured["models"].keys() == {"local", "vanilla"}
    assert measured["models"]["local"]["window"] == 3
    assert measured["models"]["vanilla"] == {"_target_": "models.attention.vanilla.Vanilla"}
    assert "Linformer has no causal_self form" in measured["absent"]["linformer"]


def test_only_causal_models_decode_and_read_in_chunks(bench):
    typed = ["bench.models=[local]", "bench.what=[forward,decode]", "bench.pattern=noncausal_self", "bench.chunk=32"]
    points = measure(*bench(*typed))["points"]
    refused = "only causal_self decodes, this is noncausal_self"
    assert {point["status"] for point in points if point["what"] == "decode"} == {refused}
    read = [point["status"] for point in points if point["what"] == "forward" and point["model"] == "local"]
    assert read == ["ok", "only causal layers read 128 tokens in chunks"]


def test_a_whole_decoder_is_measured_beside_decoders(bench):
    typed = ["bench.models=[perceiver_ar]", "model=perceiver_ar", "model.latents=16"]
    absent = measure(*bench(*typed, "bench.models=[perceiver_ar,local]"))["absent"]
    assert "add bench.layers=2" in absent["perceiver_ar"]
    typed += ["bench.layers=2", "bench.what=[forward,train,decode]", "bench.lengths=[32]"]
    outcomes = {(point["model"], point["status"]) for point in measure(*bench(*typed))["points"]}
    assert outcomes == {("perceiver_ar", "ok"), ("vanilla", "ok")}


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("bench.models=[lavoo]", "did you mean 'lavo'"),
        ("bench.what=[backward]", "bench.what: there is no 'backward': there is: decode, forward, generate, train"),
        ("bench.lengths=[0]", "are no lengths"),
        ("bench.models=[vanilla]", "no model to compare with vanilla"),
        ("table=llp/t8", "table=llp/t8 has no measurements: nothing in it is timed"),
        ("table=latte/costs", "names the measurement that it shows; to make another: python run.py do=bench model="),
        ("table=luna/t2 task=lra/image", "says itself what it measures"),
    ],
)
def test_refusals(places, typed, says):
    with pytest.raises(UsageError, match=says):
        run(*composed(places, *typed.split()))


def test_a_list_in_a_bench_key_is_no_sweep_and_names_of_rows_are_models():
    typed = ["do=bench", "model=a,b", "lengths=1,2", "model.window=3"]
    assert keys_of_verb(typed) == ["do=bench", "bench.models=[a,b]", "model=a", "bench.lengths=[1,2]", "model.window=3"]
    assert keys_of_verb(["model=a,b"]) == ["model=a,b"]
    assert keys_of_verb(["do=bench", "model=luna_16,lavo"]) == ["do=bench", "bench.models=[luna_16,lavo]"]
    assert row_named("luna_16") == ("luna", {"model.slots": 16}) and row_named("no_such_row") is None
    with pytest.raises(UsageError, match="there is no model 'luna_l6': did you mean"):
        typed_subjects(compose(["bench.models=[luna_l6]"]))


def test_exponent_and_crossover():
    sizes = [2**i for i in range(5, 10)]
    assert growth.exponent(sizes, [3e-6 * n**1.5 for n in sizes]) == pytest.approx(1.5)
    assert growth.exponent([4], [1.0]) is None
    square, line = [float(n * n) for n in sizes], [100.0 * n for n in sizes]
    assert growth.crossover(sizes, line, square) == pytest.approx(100)
    assert growth.crossover(sizes, square, line) is None
    assert growth.crossover(sizes, [x / 1e6 for x in line], square) == sizes[0]


def test_candidates_alternate_and_disturbed_samples_are_repeated(monkeypatch):
    order = []
    foreign = iter([0.0, 9.0] + [9.0] * 1000)  # other processes were busy during the first sample only
    monkeypatch.setattr(timing, "other_cpu_s", lambda: next(foreign))
    calls = {name: lambda name=name: order.append(name) for name in "ab"}
    timings = timing.time_alternating(calls, device=CPU, rounds=3, min_sample_s=0.0)
    samples = order[4:]  # after a first call, and a second that says how many calls make a sample
    assert samples == ["a", "a", "b", "b", "a", "a", "b"], "the first is disturbed; every other round goes backwards"
    assert all(len(timing.samples) == 3 and timing.disturbed == 0 for timing in timings.values())
    busy = iter(range(0, 10**6, 5))
    monkeypatch.setattr(timing, "other_cpu_s", lambda: float(next(busy)))
    timed = timing.time_alternating({"a": lambda: None}, device=CPU, rounds=3, min_sample_s=0.0)["a"]
    assert timed.disturbed == 3, "counted when no retry is left"


@pytest.mark.parametrize(("cold_samples", "kept", "calls"), [(2, 0, 5), (5, 2, 6)])
def test_samples_that_allocated_memory_are_repeated_up_to_the_number_of_rounds(cold_samples, kept, calls, monkeypatch):
    made = []
    monkeypatch.setattr(timing, "new_memory_s", lambda: 10.0 * min(len(made), cold_samples))
    settings = {"device": CPU, "rounds": 3, "min_sample_s": 0.0, "warm": False, "seconds": {"a": 1.0}}
    timed = timing.time_alternating({"a": lambda: made.append("a")}, **settings, retry_cold=True)["a"]
    assert (len(timed.samples), timed.cold, len(made)) == (3, kept, calls)
    made.clear()
    assert timing.time_alternating({"a": lambda: made.append("a")}, **settings)["a"].cold == 0 and len(made) == 3


def test_peak_memory_is_that_of_the_call():
    assert timing.peak_mb(lambda: torch.ones(2**24), CPU) == pytest.approx(64, rel=0.2)
    assert timing.peak_mb(lambda: None, CPU) < 5


@pytest.mark.parametrize("task", ["lra/listops", "lra/retrieval", "lm/wikitext103"])
def test_a_recipe_trains_on_random_tokens_or_one_line_says_what_it_lacks(task):
    cfg = compose([f"task={task}", "budget=smoke", "model=vanilla", "do=bench", "bench.batch=2"])
    recipe = RecipeModel(cfg, torch.device("cpu"))
    call = recipe.prepare("train", 512).call
    if task == "lra/retrieval":
        with pytest.raises(UsageError, match=r"^the loss of Retrieval reads more than .*: type what=forward$"):
            call()
    else:
        call()


def test_a_training_step_of_a_recipe_is_measured_beside_the_peer_that_it_names(places):
    cfg, typed = composed(places, *TEXT, *TINY, "bench.models=[luna_16,linformer]", "bench.lengths=[24,32]")
    measured = measure(cfg, typed)
    assert list(measured["models"]) == ["luna_16", "linformer", "vanilla_math"], "the recipe names the peer"
    assert measured["rows"] == {"luna_16": {"model": "luna", "set": {"model.slots": 16}}}
    assert measured["models"]["luna_16"]["slots"] == 16 and measured["settings"]["batch"] == 2
    assert all(p["status"] == "ok" and p["ms"] > 0 and p["memory_mb"] > 0 for p in measured["points"])
    assert {p["length"] for p in measured["points"]} == {24, 32}
    assert measured["timed"]["train"] == "loss, gradients, clipping and update of the recipe"


def test_a_step_of_a_recipe_is_loss_gradients_and_update(places):
    cfg, _ = composed(places, *TEXT, *TINY, "model=linformer", "train.clip_norm=1.0")
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


def test_do_bench_of_a_table_writes_the_file_that_its_page_reads(places, tmp_path, capsys):
    folders = [f"paths.bench={tmp_path / 'bench'}", f"paths.figures={tmp_path / 'figures'}", "trainer=cpu"]
    typed = ["table=luna/t2", "bench.lengths=[16]", "bench.rounds=1", "bench.models=[linformer]", *TINY]
    assert run(*composed([*places, *folders], *typed)) == 0
    (path,) = (tmp_path / "bench").glob("*.json")
    measured = json.loads(path.read_text())
    assert list(measured["models"]) == ["Transformer", "Linformer"], "the reference stands beside every row"
    asked = load_table("luna/t2", CONF, ROOT / "results" / "paper").runs["train"]
    assert measured_for(asked, {measured["name"]: measured}) == [], "the table shows the unchanged recipe"
    sizes = {key: int(value) for key, value in (override.split("=") for override in TINY)}
    assert measured_for(asked.model_copy(update={"set": sizes}), {measured["name"]: measured}) == [measured]
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
