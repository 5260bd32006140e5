"""The start of a page: resolution, tiers and baselines; no interval below three seeds."""

import csv
import dataclasses
import io
import re

import numpy as np
import pytest
from helpers import pages, synthetic

from harness.records.collect import frame
from harness.report import spec_files
from harness.report.pages import answer, table
from harness.report.scores import comparison, groups, predictors, select
from harness.report.scores.scores import Score

pytestmark = pytest.mark.usefixtures("rates_searched")

made, seeds, example, BASE = (getattr(synthetic, name) for name in ("record", "seeds", "example", "BASE"))
build, CONF, PAPER, T11, RENDER = (getattr(pages, name) for name in ("build", "CONF", "PAPER", "T11", "RENDER"))
CPU = BASE["hardware"] | {"device": "cpu", "gpu": None, "threads": 1}
REDUCED = {"budget": "reduced", "source": "synthetic", "hardware": CPU, "wall_s": 360.0}
NOISE = np.array([-0.004, 0.0, 0.004])
FIT = {"saw": "64,000 examples", "seconds": 2.0}
ENDED = {"status": "done", "message": None, "n": 2000, "seconds": 1.0, "peak_memory_mb": None, "predictions": None}


def listops(baselines=None, **scores):
    """Three seeds of each model; the seeds of two models differ in another order."""
    records = []
    for shift, (model, score) in enumerate(scores.items()):
        runs = seeds(model, "lra/listops", score + np.roll(NOISE, shift), **REDUCED)
        evaluations = {
            f"baseline/{name}": ENDED | {"metrics": {"acc": value}} for name, value in (baselines or {}).items()
        }
        records += [record | {"evaluations": evaluations} for record in runs]
    return records


def results_of(records, spec=T11):
    return groups.group_scores(select.select(frame(records), spec), spec)


def only(records):
    (only_answer,) = answer.answers(results_of(records))
    return only_answer


def ranking(records):
    (block,) = [
        candidate for candidate in build(T11, records).sections[1].blocks if candidate.title.startswith("ListOps")
    ]
    return block


def test_resolution_is_the_distance_of_the_control_in_half_widths():
    listops_answer = only(listops(vanilla=0.5, no_mixing=0.3, lavo=0.45))
    pair = listops_answer.tests.pair(("vanilla", ""), ("no mixing", ""))
    assert pair.difference == pytest.approx(20) and listops_answer.tests.ranks
    assert listops_answer.tests.resolution == pytest.approx(20 / pair.half_width)
    assert not listops_answer.tests.ranks_nothing and listops_answer.control == "no mixing 30.00"
    assert listops_answer.pairs == "2 of 2" and listops_answer.tests.missing == ""


def test_a_page_opens_with_the_best_rows_the_control_and_the_cost():
    line, *waiting = build(T11, listops(vanilla=0.5, lavo=0.499, no_mixing=0.3, linformer_skyformer=0.4)).answer
    assert re.fullmatch(
        r"Reduced budget, ListOps: softmax attention and LAVO \(50\.00 to 49\.90\) lead, and no test separates them; "
        r"R = \d\d\.\d \(reference softmax attention 50\.00, control no mixing 30\.00\)\. Cost: 1\.2 core-hours\.",
        line,
    )
    assert waiting == [
        "No run yet at the reduced budget: Text, Pathfinder.",
        "No run yet at the reduced budget: Retrieval, Image. "
        "Why: runs of the former data do not count: some test examples occurred in training.",
    ]
    for suffix in ("md", "tex", "txt"):
        text = " ".join(RENDER[suffix](build(T11, listops(vanilla=0.5, lavo=0.499, no_mixing=0.3))).split())
        assert text.index("softmax attention and LAVO (") < text.index("Paper budget")


def fitted(records, *baselines):
    """The answer of the only column with these predictors: name, score on the test split, score on validation."""
    (only_answer,) = answer.answers(results_of(records))
    group = only_answer.group
    measured = {
        f"baseline: {name}": Score(
            f"baseline: {name}", "", dict.fromkeys((1, 2, 3), score), {}, data=group.scores[0].data
        )
        for name, score, _ in baselines
    }
    fits = {f"baseline: {name}": FIT | {"val": {"acc": val}} for name, _, val in baselines}
    more = [score for name, score in measured.items() if name.endswith(predictors.OF_ALL)]
    seen = [score for score in measured.values() if score not in more]
    strongest, of_all = (predictors._strongest(scores, fits, "acc", True) for scores in (seen, more))
    _, ahead = comparison._against_baselines(group.scores, list(measured.values()), True)
    tests = dataclasses.replace(group.comparison, ahead=ahead)
    changes = {"fits": fits, "comparison": tests, "strongest": strongest, "strongest_of_all": of_all}
    return dataclasses.replace(only_answer, group=dataclasses.replace(group, **changes))


def test_a_column_opens_with_the_simple_predictor_that_validation_chose():
    records = listops(vanilla=0.5, lavo=0.499, no_mixing=0.3)
    trees, dictionary = ("boosted counts", 63.0, 64.0), ("dictionary", 70.0, 60.0)
    unbeaten = fitted(records, dictionary, trees, ("5-gram all", 99.0, 99.0))
    assert unbeaten.sentence(with_fit=True).startswith(
        "ListOps: no row reaches the boosted counts baseline (63.00, fitted to 64,000 examples of the training data); "
        "softmax attention and LAVO (50.00 to 49.90) lead"
    )
    start = "ListOps: no row reaches the boosted counts baseline (63.00); softmax attention"
    assert unbeaten.sentence().startswith(start)
    beaten = fitted(records, ("5-gram", 40.0, 40.0), ("5-gram all", 49.95, 49.0))
    assert beaten.rows_above == 2
    assert "2 of 3 rows beat the 5-gram baseline (40.00); none of 3 rows beats the 5-gram all" in beaten.sentence()
    assert "5-gram all baseline (49.95) by a test, 1 by its mean; " in beaten.sentence()
    assert len(unbeaten.sentence(with_fit=True).split()) <= 60


def test_a_row_beats_a_simple_predictor_by_a_test():
    records = [*listops(vanilla=0.5, no_mixing=0.3), *seeds("lavo", "lra/listops", [0.3, 0.5, 0.7], **REDUCED)]
    text = fitted(records, ("5-gram", 45.0, 45.0)).sentence()
    assert "1 of 3 rows beats the 5-gram baseline (45.00) by a test, 2 by their means" in text
    none = fitted(records[3:], ("5-gram", 45.0, 45.0))
    assert "none of 2 rows beats the 5-gram baseline (45.00) by a test, 1 by its mean" in none.sentence()
    assert answer._overall([none]).startswith("no row beats the strongest simple predictor (5-gram)")


def test_a_control_that_is_ahead_of_the_reference_ranks_nothing():
    """With Apollo softmax attention is behind no mixing in Luna's translation (6.04 and 5.84 nats)."""
    (only_answer,) = answer.answers(results_of(listops(vanilla=0.3, lavo=0.4, no_mixing=0.5)))
    tests = only_answer.tests
    assert tests.resolution > 4 and tests.control_ahead and not tests.ranks and tests.ranks_nothing
    assert "because the control is not clearly behind the reference (it is ahead)." in only_answer.sentence()


def test_equal_seeds_have_no_test_and_the_page_says_so():
    records = [made(model, "lra/listops", seed, score, **REDUCED) for model, score in (("vanilla", 0.5), ("lavo", 0.4),
               ("no_mixing", 0.3)) for seed in range(1, 8)]  # fmt: skip
    (only_answer,) = answer.answers(results_of(records))
    assert only_answer.tests.pairs == () and not only_answer.tests.ranks and only_answer.tests.resolution is None
    assert only_answer.sentence() == "ListOps: no test, because no row's score differs between its seeds."
    first_seeds = [record for record in records if record["cell"]["seed"] == 1]
    assert only(first_seeds).sentence() == "ListOps: no test, because fewer than two rows have 3 seeds."


def test_steady_rows_do_not_lend_their_small_noise_to_the_reference_and_the_control():
    """Rows at the ceiling made the median half width small: R was 50 where no test separated the two (lavo/t6)."""
    records = seeds("vanilla", "lra/listops", (0.56, 0.52, 0.42), **REDUCED)
    records += seeds("no_mixing", "lra/listops", (0.38, 0.52, 0.45), **REDUCED)
    for model in ("lavo", "luna", "linformer_skyformer", "performer"):
        records += [made(model, "lra/listops", seed, 0.999 + seed / 1e5, **REDUCED) for seed in (1, 2, 3)]
    (only_answer,) = answer.answers(results_of(records))
    tests = only_answer.tests
    assert tests.resolution < 4 and not tests.is_apart and tests.ranks_nothing and not tests.ranks
    assert tests.why_not_behind.startswith("R = ") and "below 4" in only_answer.sentence()


def test_a_high_resolution_needs_a_resolved_pair():
    records = listops(vanilla=0.5, lavo=0.45, no_mixing=0.3)
    (only_answer,) = answer.answers(results_of(records))
    tests = only_answer.tests
    unresolved = dataclasses.replace(tests, pairs=tuple(dataclasses.replace(p, p=0.18) for p in tests.pairs))
    assert tests.ranks and tests.resolution > 4 and unresolved.ranks_nothing
    assert unresolved.why_not_behind == "no test separates them, p = 0.18"


@pytest.mark.parametrize(
    "records, missing",
    [
        (listops(vanilla=0.5, lavo=0.4), "the control (no mixing) was not run"),
        (listops(no_mixing=0.5, lavo=0.4), "the reference (vanilla) was not run"),
        (listops(vanilla=0.5, no_mixing=0.4)[::2], "no row has 3 seeds"),
    ],
)
def test_the_reason_for_no_resolution_is_named(records, missing):
    only_answer = only(records)
    assert only_answer.tests.resolution is None and missing in only_answer.tests.missing
    assert only_answer.resolution == "–" and (only_answer.control == "not run") == ("control" in missing)


def test_a_metric_that_is_a_cost_ranks_nothing():
    """The size of a decoding state, for example, does not differ by seed: every test would separate it."""
    columns = T11.columns | {"ListOps": T11.columns["ListOps"].model_copy(update={"cost": True})}
    spec, records = T11.model_copy(update={"columns": columns}), listops(vanilla=0.5, lavo=0.4, no_mixing=0.3)
    assert answer.answers(results_of(records)) and not answer.answers(results_of(records, spec))
    block = next(
        b for b in table.build_table(spec, results_of(records, spec)).sections[1].blocks if "ListOps" in b.title
    )
    assert {row[0].text for row in block.rows} >= {"softmax attention", "LAVO"}, "its numbers stand in the table"


def test_a_row_far_from_the_best_that_no_test_separates_is_not_in_its_tier():
    records = listops(vanilla=0.5, no_mixing=0.3) + seeds("lavo", "lra/listops", (0.38, 0.41, 0.44), **REDUCED)
    records += seeds("linformer_skyformer", "lra/listops", (0.439, 0.38, 0.409), **REDUCED)
    (only_answer,) = answer.answers(results_of(records))
    assert only_answer.tests.low_power == (("LAVO", ""), ("Linformer", "")) and only_answer.tests.runs is None
    assert (
        "softmax attention (50.00) leads; too few seeds to separate LAVO and Linformer (41.00" in only_answer.sentence()
    )
    tiers = {row[0].text: row[2].text for row in ranking(records).rows}
    assert tiers["softmax attention"] == "1" and tiers["LAVO"] == "not separated (low power)"
    assert tiers["no mixing (not in the paper)"] == "2"


def test_baselines_are_rows_in_their_place_and_mark_who_is_below():
    block = ranking(listops({"root_operator": 44.0, "majority_class": 17.0}, vanilla=0.5, lavo=0.438, no_mixing=0.3))
    names = [row[0].text for row in block.rows]
    assert names == [
        "softmax attention", "baseline: root operator", "LAVO", "no mixing (not in the paper)",
        "baseline: majority class",
    ]  # fmt: skip
    scores = {row[0].text: row[1] for row in block.rows}
    assert scores["baseline: root operator"].text == "44.00" and scores["baseline: root operator"].tone == "muted"
    assert scores["no mixing (not in the paper)"].text.endswith(" †")
    assert "†" not in scores["LAVO"].text  # 0.2 points below, too little for any test
    assert block.lines[1] == "† Below a simple predictor: no mixing (root operator, 44.00)."
    assert "chance" not in block.title  # the row says so


def test_a_page_says_how_rows_were_paired():
    records = listops(vanilla=0.5, lavo=0.438, no_mixing=0.3)
    assert (
        "Pairs of rows are paired: 3 of 3 by seed alone, without scores of the test examples." in ranking(records).lines
    )
    other = {"source": "synthetic", "fingerprint": "cafe", "sizes": {}}
    records = [r | {"data": other} if r["cell"]["model"] == "lavo" else r for r in records]
    (line,) = [line for line in ranking(records).lines if line.startswith("Pairs")]
    assert line.startswith("Pairs of rows are paired: 1 of 3 by seed alone")
    assert line.endswith("2 of 3 not, because seeds or test examples differ.")


def test_no_interval_below_three_seeds_anywhere():
    """Checked in every renderer, for every committed table, with two seeds of everything."""
    records = [record for record in example() if record["cell"]["seed"] < 3]
    for suffix, render in RENDER.items():
        text = render(build(T11, records))
        assert not re.search(r"\d ?(±|\+-|\$\\pm\$)", text), suffix
    for row in csv.DictReader(io.StringIO(RENDER["csv"](build(T11, records)))):
        assert row["ours_ci"] == row["difference_ci"] == row["p"] == row["tier"] == ""
        assert row["ours_ci_low"] == row["ours_ci_high"] == ""
    assert "61.00 to 62.00 (2)" in RENDER["md"](build(T11, records))


def test_the_noise_of_a_published_number():
    # 61.95 % of 25,000 reviews; a mean has the errors of its five parts
    assert T11.published_error("vanilla", "Text") == pytest.approx(100 * (0.6195 * 0.3805 / 25000) ** 0.5)
    parts = [T11.published_error("vanilla", part) for part in T11.columns]
    assert T11.published_error("vanilla", "AVG") == pytest.approx(sum(e**2 for e in parts) ** 0.5 / 5)
    assert T11.published_error("no mixing", "Text") is None
    t8 = spec_files.load_table("lavo/t8", CONF, PAPER)
    assert t8.published_error("vanilla", "ETT MSE") is None  # no accuracy


def own_table(tmp_path, rows):
    """A table of ours with two metrics."""
    column = "task: lra/listops, metric: {}, unit: '%', higher_is_better: {}"
    text = f"""
title: t
ledger: null
protocol: skyformer
seeds: [1, 2, 3]
gpu_hours: 1
control: no_mixing
reference: vanilla
rows: {{{rows}}}
columns:
  right: {{{column.format("acc", "true")}}}
  loss: {{{column.format("loss", "false")}, control: lavo}}
"""
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "own.yaml").write_text(text, encoding="utf-8")
    return spec_files.load_table("own", tmp_path, PAPER)


def test_metrics_of_a_table_of_ours_have_tiers_baselines_and_a_control_of_their_own(tmp_path):
    spec = own_table(tmp_path, "softmax: vanilla, LAVO: lavo, nothing: no_mixing")
    records = listops({"guess": 31.0}, vanilla=0.5, lavo=0.4, no_mixing=0.3)
    shown = table.build_table(spec, results_of(records, spec))
    (block,) = shown.sections[0].blocks
    rows = {row[0].text: [cell.text for cell in row[1:]] for row in block.rows}
    assert list(rows) == ["softmax", "LAVO", "nothing", "baseline: guess"]
    assert rows["nothing"][0].endswith(" (3) † · 2") and rows["softmax"][0].endswith(" (3) · 1")
    assert rows["baseline: guess"] == ["31.00", "–"]
    assert "† Below a simple predictor: nothing in right (guess)." in block.lines
    right, loss = answer.answers(results_of(records, spec))
    assert (right.control, loss.control) == ("nothing 30.00", "LAVO 0.70")
    assert not loss.tests.ranks and "loss: no test, because no row's score differs between its seeds." in shown.answer


def test_a_resolution_below_enough_is_not_rounded_up_to_it():
    assert [comparison.below_enough(r) for r in (1.24, 3.94, 3.96)] == ["1.2", "3.9", "3.96"]
