"""Pages and figures from do=bench measurements, and from missing, duplicate or broken ones."""

import math

import pytest

from harness.config.places import CONF, ROOT
from harness.config.validation import parse
from harness.errors import UsageError
from harness.records import ledger
from harness.records.measurements import load_measurements
from harness.report.pages.measured import page as page_of
from harness.report.pages.printed import count_beside
from harness.report.render import latex, markdown
from harness.report.scores.measurements import measured_for, number_at, printed_slope, slope
from harness.report.spec.measured import MeasuredSpec
from harness.report.spec_files import load_table

PAPER = ROOT / "results" / "paper"
RAW = {
    "name": "luna/t2",
    "kind": "measured",
    "title": "Speed",
    "paper": "luna",
    "ledger": "luna_table02",
    "reference": "Transformer",
    "runs": {"train": {"task": "lra/text", "protocol": "google", "what": "train", "lengths": [1024, 2048]}},
}


def measurement(scale=1.0, label="Luna-16", **settings):
    """Twice as fast at 1,024 tokens and four times at 2,048, in an eighth of the memory."""
    points = []
    for name, ms, mb in (("Transformer", 4e-6, 8e-6), (label, 2e-3, 1e-6)):
        for n in (1024, 2048):
            time = ms * n * n if name == "Transformer" else ms * n * scale
            point = {"model": name, "what": "train", "length": n, "status": "ok", "samples": [1.0, 1.0]}
            points.append(point | {"ms": time, "memory_mb": mb * n * n})
    names = {"Transformer": "vanilla_math", label: "luna"}
    sets = {"Transformer": {}, label: {"model.slots": 16}}
    return {
        "kind": "bench",
        "name": "m-cpu-0",
        "settings": {"task": "lra/text", "protocol": "google", "set": {}, "batch": 2, "precision": "float32"}
        | settings,
        "models": {name: {"slots": 16} for name in names},
        "rows": {name: {"model": model, "set": sets[name]} for name, model in names.items()},
        "points": points,
        "hardware": {"device": "cpu", "gpu": None, "cpu": "a CPU", "threads": 1},
        "versions": {"torch": "2"},
        "absent": {},
    }


def luna_t2():
    return load_table("luna/t2", CONF, PAPER)


def test_a_measurement_stands_beside_the_printed_ratios_with_exponents():
    measured = {"m-cpu-0": measurement()}
    page = page_of(luna_t2(), measured)
    by_cell = {(row["row"], row["column"]): row for row in page.tidy}
    fast = by_cell["Luna-16", "speed, 2K"]
    assert float(fast["ours_mean"]) == pytest.approx(4e-6 * 2048 / 2e-3) and fast["paper_value"] == "1.7"
    assert float(by_cell["Luna-16", "memory, 1K"]["ours_mean"]) == pytest.approx(0.125)
    assert by_cell["Linformer", "speed, 1K"]["status"] == "not measured"
    text = markdown.render(page)
    assert "| Luna-16" in text and "1.00 |" in text and "2.00 |" in text, "exponents 1 and 2"
    assert "Not in this measurement: Local Attention" in text
    assert page_of(luna_t2(), measured) == page, "the same bytes"
    latex.render(page)


@pytest.mark.parametrize("settings", [{"task": "lra/image"}, {"protocol": "luna"}, {"set": {"backbone.layers": "2"}}])
def test_a_measurement_of_something_else_is_in_no_table(settings):
    assert measured_for(luna_t2().runs["train"], {"m-cpu-0": measurement(**settings)}) == []


def test_two_measurements_of_one_point_stand_apart_and_count_once():
    elsewhere = measurement(scale=0.5) | {"name": "m-cpu-1"}
    page = page_of(luna_t2(), {"m-cpu-0": measurement(), "m-cpu-1": elsewhere})
    twice = [row for row in page.tidy if (row["row"], row["column"]) == ("Luna-16", "speed, 1K")]
    assert [row["source"] for row in twice] == ["m-cpu-0", "m-cpu-1"]
    assert [float(row["ours_mean"]) for row in twice] == pytest.approx([2.048, 4.096]), "no ratio mixes machines"
    assert page.summary == "measured costs: 96, ours beside 8"
    assert count_beside([page]) == "Published numbers with ours beside them at full size: 8 of 96 measured costs."


def test_a_ratio_never_mixes_measurements():
    """A measurement from another machine or another command is no reference."""
    alone, second = measurement(), measurement() | {"name": "m-cpu-1"}
    alone["points"] = [point for point in alone["points"] if point["model"] != "Transformer"]
    second["points"] = [point for point in second["points"] if point["model"] == "Transformer"]
    second["hardware"] = {"device": "cuda", "gpu": "a GPU", "cpu": "a CPU", "threads": 1}
    page = page_of(luna_t2(), {"m-cpu-0": alone, "m-cpu-1": second})
    rows = [row for row in page.tidy if (row["row"], row["column"]) == ("Luna-16", "speed, 1K")]
    assert [(row["status"], row["ours_mean"]) for row in rows] == [("no reference", ""), ("not measured", "")]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "not a measurement"),
        ('{"name": "other", "kind": "bench"}', "its name is other"),
        ('{"name": "m", "kind": "bench", "points": []}', "not a measurement: settings: missing"),
        ('{"name": "m", "kind": "bench", "points": [{}]}', r"not a measurement: points\[0\]\.model: missing"),
        ('{"name": "m", "kind": "of another time"}', "input should be 'bench', not 'of another time'"),
    ],
)
def test_a_broken_file_is_one_line_with_its_path(tmp_path, text, says):
    (tmp_path / "m.json").write_text(text)
    with pytest.raises(UsageError, match=says) as caught:
        load_measurements(tmp_path)
    assert str(tmp_path / "m.json") in str(caught.value) and "\n" not in str(caught.value)


def test_hostile_names_are_text():
    hostile = measurement(label="<script>alert(1)</script>|")
    hostile["absent"] = {"<b>": "\\input{x} | <img>"}
    page = page_of(luna_t2(), {"m-cpu-0": hostile})
    assert "<script>" not in markdown.render(page) and "<img>" not in markdown.render(page)
    assert "\\input{x}" not in latex.render(page)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"reference": "Transformr"}, "did you mean 'Transformer'"),
        ({"columns": {"a": {"run": "train", "value": "ms", "length": 7, "column": None}}}, "has no length 7"),
        ({"columns": {"a": {"run": "test", "value": "ms", "length": 1024}}}, "there is no 'test'"),
    ],
)
def test_a_setting_that_does_not_fit_is_one_line(change, says):
    raw = RAW | {"rows": {"Transformer": "vanilla"}, "columns": {}} | change
    with pytest.raises((UsageError, ValueError), match=says) as caught:
        spec = parse(MeasuredSpec, raw, "")
        spec.with_published(ledger.entries(spec.ledger, PAPER))
    assert "\n" not in str(caught.value)


def test_numbers_of_points():
    base = [{"length": 8, "ms": 6.0, "memory_mb": 4.0, "status": "extrapolated: n^2"}]
    points = [{"length": 8, "ms": 2.0, "memory_mb": 1.0, "status": "ok"}, {"length": 16, "status": "oom"}]
    fast = number_at(points, base, 8, "speedup")
    assert fast.value == 3 and fast.mark == " ~", "half of the ratio was not measured"
    assert number_at(points, base, 8, "memory_ratio").value == 0.25 and number_at(points, [], 8, "ms").value == 2
    assert number_at(points, base, 16, "ms").status == "oom" and number_at(points, base, 32, "ms").value is None
    assert number_at(points, [], 8, "speedup").status == "no reference"
    sizes = [{"length": n, "ms": 5.0 * n**1.5, "status": "ok"} for n in (4, 8, 16, 32)]
    assert slope(sizes, "time_exponent").value == pytest.approx(1.5)
    along = [{"length": 8, "value": v, "ms": 2.0 * v, "status": "ok"} for v in (16, 32, 64)]
    assert slope(along, "time_exponent").value == pytest.approx(1.0), "over the axis where there is one"
    texts = [{"length": n, "ms": 3.0 * n**2, "status": "integrated: over the cost of a token"} for n in (8, 12, 16)]
    assert slope(texts, "time_exponent").value == pytest.approx(2.0) and slope(texts, "time_exponent").mark == " ~"
    assert slope([*sizes, *texts], "time_exponent").mark == "", "what was measured goes before"


def test_printed_formulas_have_exponents():
    at, sizes = [1024, 2048, 4096], {"L": 128, "D": 128, "W": 128}
    assert printed_slope("O(T^2 D)", "T", sizes, at) == pytest.approx(2)
    assert printed_slope("O(TLD+TWD)", "T", sizes, at) == pytest.approx(1)
    assert printed_slope("O(TL+LD)", "T", sizes, at) == pytest.approx(math.log(4224 / 1152) / math.log(4), abs=0.02)
    assert printed_slope("linear", "T", sizes, at) is None
