"""Scores of single test examples: taken only if they make the score, and used to pair rows."""

from pathlib import Path

import numpy as np
import pytest
from helpers import synthetic

from harness.records.collect import frame
from harness.report.scores import groups, per_example, select
from harness.report.scores.predictors import scored_predictors
from harness.report.spec.parts import Column
from tests.harness.test_report_answer import ENDED, REDUCED, T11

made = synthetic.record


def test_the_scores_of_examples_are_taken_only_if_they_make_the_score(monkeypatch):
    right = np.array([1, 0, 0, 1, 1, 0, 0, 0], dtype=np.uint8)
    record = made("lavo", "lra/listops", 1, right.mean(), **REDUCED)
    files = {"test": {"acc": right, "loss": np.ones(8)}, "baseline/root": {"acc": 1 - right}}
    monkeypatch.setattr("harness.records.predictions.read", lambda file, cell, only: files)
    record["evaluations"] = {"baseline/root": ENDED | {"metrics": {"acc": 62.5}}}
    cells = frame([record]).assign(predictions=[Path("a.npz")])
    column = Column(task="lra/listops", metric="acc")
    (scores,) = per_example.examples_of(cells, column).values()
    assert scores.tolist() == [100.0, 0.0, 0.0, 100.0, 100.0, 0.0, 0.0, 0.0]
    assert per_example.examples_of(cells, column, block=3)[record["cell"]["id"]] == pytest.approx([100 / 3, 200 / 3])
    baseline, _ = scored_predictors(cells, column)["root"]
    assert (baseline.data[1], baseline.by_seed[1], baseline.examples[1].mean()) == ("f00d", 62.5, 62.5)
    assert per_example.examples_of(cells.assign(score=[50.0]), column) == {}  # from another run
    assert per_example.examples_of(cells.assign(predictions=[None]), column) == {}
    assert per_example.examples_of(frame([record]), column) == {}


def test_a_perplexity_has_scores_of_its_examples(monkeypatch):
    """To first order: their mean is the perplexity, and what they differ by is what a resampled text would do to it."""
    logs = np.random.default_rng(0).normal(3.0, 0.2, 400)
    ppl = float(np.exp(logs.mean()))
    record = made("lavo", "lra/listops", 1, ppl, **REDUCED)
    monkeypatch.setattr("harness.records.predictions.read", lambda file, cell, only: {"test": {"log_ppl": logs}})
    cells = frame([record]).assign(predictions=[Path("a.npz")], score=[ppl])
    (scores,) = per_example.examples_of(cells, Column(task="lra/listops", metric="ppl")).values()
    assert scores.mean() == pytest.approx(ppl)
    draws = np.random.default_rng(1).integers(0, 400, (2000, 400))
    assert scores.std() / 20 == pytest.approx(np.exp(logs[draws].mean(1)).std(), rel=0.05), "the bootstrap's error"
    assert per_example.examples_of(cells.assign(score=[ppl * 1.01]), Column(task="lra/listops", metric="ppl")) == {}


def test_rows_with_predictions_are_paired_by_example(monkeypatch):
    generator = np.random.default_rng(0)
    arrays, records = {}, []
    for model, rate in (("vanilla", 0.5), ("lavo", 0.45), ("no_mixing", 0.2)):
        for seed in (1, 2, 3):
            right = generator.random(500) < rate + 0.01 * seed
            record = made(model, "lra/listops", seed, right.mean(), **REDUCED)
            arrays[record["cell"]["id"]] = {"test": {"acc": right.astype(np.uint8)}}
            records.append(record)
    monkeypatch.setattr("harness.records.predictions.read", lambda file, cell, only: arrays[cell["id"]])
    cells = frame(records).assign(predictions=[Path("a.npz")] * len(records))
    (result,) = groups.group_scores(select.select(cells, T11), T11)
    (group,) = result.others
    assert {pair.pairing for pair in group.comparison.pairs} == {"seed and example"}
    # three seeds of 500 examples: 1.96 sqrt((0.25 + 0.16) / 1500) = 3.2 points and more
    assert all(3 < pair.half_width < 16 for pair in group.comparison.pairs)


def test_a_ratio_of_sums_has_scores_of_its_examples(monkeypatch):
    """Such as the cost of an alignment over all frames; also those of a baseline of a further evaluation."""
    random = np.random.default_rng(0)
    counts = random.integers(50, 150, 400)
    sums = counts * random.normal(3.0, 0.5, 400)
    ratio = sums.sum() / counts.sum()
    record = made("lavo", "lra/listops", 1, ratio, **REDUCED)
    record["evaluations"] = {
        name: ENDED | {"metrics": {"mcd": ratio}} for name in ("free", "free/baseline/mean", "baseline/mean")
    }
    scores = {"mcd_sum": sums, "mcd_count": counts}
    files = {"free": scores, "free/baseline/mean": scores}
    monkeypatch.setattr("harness.records.predictions.read", lambda file, cell, only: files)
    cells = frame([record]).assign(predictions=[Path("a.npz")], score=[ratio])
    column = Column(task="lra/listops", metric="mcd", evaluation="free")
    (scores,) = per_example.examples_of(cells, column).values()
    draws = random.integers(0, 400, (2000, 400))
    assert scores.mean() == pytest.approx(ratio)
    assert scores.std() / 20 == pytest.approx((sums[draws].sum(1) / counts[draws].sum(1)).std(), rel=0.05)
    baseline, _ = scored_predictors(cells, column)["mean"]
    assert baseline.data[1] == "f00d" and baseline.examples[1] == pytest.approx(scores)
