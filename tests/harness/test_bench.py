"""do=bench: what it measures, what it refuses, and how its timing treats a busy machine."""

import json
from functools import partial

import pytest
import torch

from harness.bench import command as bench_command
from harness.bench import measure as bench_measure
from harness.bench import timing
from harness.bench.recipe import RecipeModel
from harness.commands import report
from harness.commands.bench import measure, run
from harness.commands.report import run as render
from harness.commands.rewrite import keys_of_verb
from harness.config.compose import compose
from harness.errors import UsageError
from harness.records.measurements import load_measurements
from harness.report.plots.costs import plots, write_report
from harness.report.stats import growth

CPU = torch.device("cpu")
SMALL = ["trainer=cpu", "bench.dim=16", "bench.heads=2", "bench.rounds=1", "bench.lengths=[32,128]"]


@pytest.fixture
def bench(places, tmp_path, monkeypatch):
    """A command's configuration and overrides. Samples are short, and none is repeated: no number is tested here."""
    monkeypatch.setattr(bench_measure, "time_alternating", partial(timing.time_alternating, min_sample_s=0.0))
    monkeypatch.setattr(timing, "other_cpu_s", lambda worker_pids: 0.0)
    monkeypatch.setattr(timing.gc, "collect", lambda: 0)
    monkeypatch.setattr(bench_command, "kernels", lambda call, device: [])  # a profile takes longer than the rest

    def composed(*overrides):
        folders = [f"paths.{name}={tmp_path / name}" for name in ("bench", "figures", "site")]
        typed = [*SMALL, *overrides]
        return compose([*places, *folders, *typed]), typed

    return composed


def test_a_measurement_is_a_file_a_page_and_a_picture(bench, tmp_path, capsys):
    assert run(*bench("bench.models=[local,vanilla_rope]", "bench.what=[forward,train,decode]")) == 0
    (path,) = (tmp_path / "bench").glob("*.json")
    measured = json.loads(path.read_text())
    points = measured["points"]
    assert len(points) == 3 * 2 * 3, "measures x lengths x models, softmax among them"
    assert all(point["status"] == "ok" and point["ms"] > 0 for point in points)
    assert set(measured["models"]) == {"local", "vanilla_rope", "vanilla"}
    decoded = {p["model"]: p["memory_mb"] for p in points if p["what"] == "decode" and p["length"] == 128}
    assert decoded["vanilla"] == pytest.approx(2 * 129 * 16 * 4 / 2**20), "keys and values of 129 tokens, float32"
    text = (tmp_path / "tables" / "bench" / f"{measured['name']}.md").read_text()
    assert "Forward and backward" in text and "| softmax with RoPE |" in text and "time ~ n^" in text
    for suffix in ("png", "pdf"):
        assert (tmp_path / "figures" / "bench" / f"{measured['name']}.{suffix}").stat().st_size > 1000
    drawn = load_measurements(tmp_path / "bench")
    assert [plot.stale() for plot in plots(drawn, tmp_path / "figures")] == [[]]
    drawn[measured["name"]]["points"][0]["ms"] += 1
    (plot,) = plots(drawn, tmp_path / "figures")
    assert len(plot.stale()) == 2, "pictures of other numbers"
    assert "Forward and backward" in capsys.readouterr().out


def test_points_that_a_logarithmic_axis_cannot_show_are_left_out(bench, tmp_path):
    """A call may need no memory beyond what is already held, and all points of a text may be extrapolated."""
    measured = measure(*bench("bench.models=[local]", "bench.lengths=[32]"))
    for point in measured["points"]:
        point |= {"memory_mb": 0.0, "status": "extrapolated: too long"}
    assert {path.suffix for path in write_report(measured, tmp_path, tmp_path)} >= {".png"}


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
    assert (
        "add bench.layers=2" in measure(*bench(*typed, "bench.models=[perceiver_ar,local]"))["absent"]["perceiver_ar"]
    )
    points = measure(*bench(*typed, "bench.layers=2", "bench.what=[forward,train,decode]", "bench.lengths=[32,64]"))[
        "points"
    ]
    assert {(point["model"], point["status"]) for point in points} == {("perceiver_ar", "ok"), ("vanilla", "ok")}


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("bench.models=[lavoo]", "did you mean 'lavo'"),
        ("bench.what=[backward]", "bench.what: there is no 'backward': there is: decode, forward, generate, train"),
        ("bench.lengths=[0]", "are no lengths"),
        ("bench.models=[vanilla]", "no model to compare with vanilla"),
    ],
)
def test_refusals(bench, override, says):
    with pytest.raises(UsageError, match=says):
        measure(*bench("model=local", override))


def test_a_list_in_a_bench_key_is_no_sweep():
    typed = ["do=bench", "model=a,b", "lengths=1,2", "model.window=3"]
    assert keys_of_verb(typed) == ["do=bench", "bench.models=[a,b]", "model=a", "bench.lengths=[1,2]", "model.window=3"]
    assert keys_of_verb(["model=a,b"]) == ["model=a,b"]


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
    monkeypatch.setattr(timing, "other_cpu_s", lambda worker_pids: next(foreign))
    calls = {name: lambda name=name: order.append(name) for name in "ab"}
    timings = timing.time_alternating(calls, device=CPU, rounds=3, min_sample_s=0.0)
    samples = order[4:]  # after a first call, and a second that says how many calls make a sample
    assert samples == ["a", "a", "b", "b", "a", "a", "b"], "the first is disturbed; every other round goes backwards"
    assert all(len(timing.samples) == 3 and timing.disturbed == 0 for timing in timings.values())
    busy = iter(range(0, 10**6, 5))
    monkeypatch.setattr(timing, "other_cpu_s", lambda worker_pids: float(next(busy)))
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
