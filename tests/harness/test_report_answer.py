"""Which columns rank their rows; no interval below three seeds. The committed pages have the sentences."""

import csv
import dataclasses
import io
import re

import numpy as np
import pytest
from helpers import pages, synthetic

from harness.records.collect import frame
from harness.report.pages import answer
from harness.report.scores import groups, select

pytestmark = pytest.mark.usefixtures("rates_searched")

made, seeds, example, BASE = (getattr(synthetic, name) for name in ("record", "seeds", "example", "BASE"))
build, CONF, PAPER, T11, RENDER = (getattr(pages, name) for name in ("build", "CONF", "PAPER", "T11", "RENDER"))
CPU = BASE["hardware"] | {"device": "cpu", "gpu": None, "threads": 1}
REDUCED = {"budget": "reduced", "source": "synthetic", "hardware": CPU, "wall_s": 360.0}
NOISE = np.array([-0.004, 0.0, 0.004])
ENDED = {"status": "done", "message": None, "n": 2000, "seconds": 1.0, "peak_memory_mb": None, "predictions": None}


def listops(**scores):
    """Three seeds of each model; the seeds of two models differ in another order."""
    return [
        run
        for shift, (model, score) in enumerate(scores.items())
        for run in seeds(model, "lra/listops", score + np.roll(NOISE, shift), **REDUCED)
    ]


def results_of(records, spec=T11):
    return groups.group_scores(select.select(frame(records), spec), spec)


def only(records):
    (only_answer,) = answer.answers(results_of(records))
    return only_answer


def test_resolution_is_the_distance_of_the_control_in_half_widths():
    listops_answer = only(listops(vanilla=0.5, no_mixing=0.3, lavo=0.45))
    pair = listops_answer.tests.pair(("vanilla", ""), ("no mixing", ""))
    assert pair.difference == pytest.approx(20) and listops_answer.tests.ranks
    assert listops_answer.tests.resolution == pytest.approx(20 / pair.half_width)
    assert not listops_answer.tests.ranks_nothing and listops_answer.control == "no mixing 30.00"
    assert listops_answer.pairs == "2 of 2" and listops_answer.tests.missing == ""


def test_steady_rows_do_not_lend_their_small_noise_to_the_reference_and_the_control():
    """Rows at the ceiling made the median half width small: R was 50 where no test separated the two (lavo/t6)."""
    records = seeds("vanilla", "lra/listops", (0.56, 0.52, 0.42), **REDUCED)
    records += seeds("no_mixing", "lra/listops", (0.38, 0.52, 0.45), **REDUCED)
    for model in ("lavo", "luna", "linformer_skyformer", "performer"):
        records += [made(model, "lra/listops", seed, 0.999 + seed / 1e5, **REDUCED) for seed in (1, 2, 3)]
    (only_answer,) = answer.answers(results_of(records))
    tests = only_answer.tests
    assert tests.resolution < 4 and not tests.is_apart and tests.ranks_nothing and not tests.ranks
    assert only_answer.short.endswith("cannot rank rows, because the control is not clearly behind the reference.")


def test_a_high_resolution_needs_a_resolved_pair():
    records = listops(vanilla=0.5, lavo=0.45, no_mixing=0.3)
    (only_answer,) = answer.answers(results_of(records))
    tests = only_answer.tests
    unresolved = dataclasses.replace(tests, pairs=tuple(dataclasses.replace(p, p=0.18) for p in tests.pairs))
    assert tests.ranks and tests.resolution > 4 and unresolved.ranks_nothing


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


def test_no_interval_below_three_seeds_anywhere():
    """Checked in every renderer, for every committed table, with two seeds of everything."""
    records = [record for record in example() if record["cell"]["seed"] < 3]
    for suffix, render in RENDER.items():
        text = render(build(T11, records))
        assert not re.search(r"\d ?(±|\+-|\$\\pm\$)", text), suffix
    for row in csv.DictReader(io.StringIO(RENDER["csv"](build(T11, records)))):
        assert row["ours_ci"] == row["difference_ci"] == row["p"] == row["place"] == ""
        assert row["ours_ci_low"] == row["ours_ci_high"] == ""
    assert "61.00 to 62.00 (2)" in RENDER["md"](build(T11, records))
