"""Rows that are no row of their own: a computation that stands twice in a table, and a pre-training."""

from dataclasses import replace

import pytest

from harness.errors import UsageError
from harness.records.collect import frame
from harness.report import spec_files
from harness.report.pages import answer, table
from harness.report.pages.agreement import column_agreement
from harness.report.scores import groups, select
from harness.report.scores.scores import Score
from tests.helpers.pages import CONF, PAPER, T11
from tests.helpers.synthetic import record, seeds

pytestmark = pytest.mark.usefixtures("rates_searched")

REDUCED = {"budget": "reduced", "source": "synthetic"}
TWICE = {"BigBird": T11.rows["BigBird"].model_copy(update={"same_as": "LAVO"})}
SPEC = T11.model_copy(update={"rows": T11.rows | TWICE})
GUESS = {"name": "majority class", "val": 47.0, "test": 47.0}


def results(spec, scores):
    records = [
        made
        for model, score in scores.items()
        for made in seeds(model, "lra/listops", [score, score + 0.001, score - 0.001], baseline=GUESS, **REDUCED)
    ]
    return groups.group_scores(select.select(frame(records), spec), spec)


SCORES = {"vanilla": 0.5, "lavo": 0.45, "bigbird": 0.45, "linformer_skyformer": 0.4, "no_mixing": 0.3}


def test_a_repeated_computation_is_shown_and_not_tested():
    (twice,), (once,) = (answer.answers(results(spec, SCORES)) for spec in (T11, SPEC))
    assert (twice.tests.rows, once.tests.rows) == (5, 4) and len(once.tests.pairs) < len(twice.tests.pairs)
    assert not any("BigBird" in row for pair in once.tests.pairs for row in pair.rows)
    page = table.build_table(SPEC, results(SPEC, SCORES))
    block = next(block for block in page.sections[1].blocks if block.title.startswith("ListOps"))
    tiers = {row[0].text: row[2].text for row in block.rows}
    assert tiers["BigBird"] == "as LAVO" and tiers["LAVO"] == "2"
    assert "BigBird is the computation of LAVO: shown beside it, not tested again." in page.caption


def test_a_repeated_computation_adds_no_row_to_the_order():
    (once,) = answer.answers(results(SPEC, SCORES))
    assert column_agreement(SPEC, once.group).order.rows == 3
    assert column_agreement(T11, once.group).order.rows == 4


def test_a_repeated_computation_does_not_count_as_a_row_above_a_predictor():
    counts = {}
    for name, spec in (("twice", T11), ("once", SPEC)):
        (column,) = answer.answers(results(spec, SCORES))
        tests = replace(
            column.group.comparison,
            ahead={score.key: ("baseline: counts",) for score in column.group.scores if score.estimate.mean > 42},
        )
        group = replace(column.group, strongest=Score("baseline: counts", "", {1: 42.0}, {}), comparison=tests)
        counts[name] = replace(column, group=group).baseline()
    assert counts["twice"].startswith("3 of 5 rows beat the counts baseline")
    assert counts["once"].startswith("2 of 4 rows beat the counts baseline")


def test_same_as_names_another_row(tmp_path):
    text = (CONF / "table/lavo/t2.yaml").read_text(encoding="utf-8")
    (tmp_path / "table").mkdir()
    path = tmp_path / "table" / "own.yaml"
    for wrong in ("same_as: vanilla", "same_as: Flash"):
        path.write_text(text.replace("same_as: FlashAttention", wrong), encoding="utf-8")
        with pytest.raises(UsageError, match=r"rows\.vanilla\.same_as"):
            spec_files.load_table("own", tmp_path, PAPER)
    assert spec_files.load_table("lavo/t2", CONF, PAPER).same_as("vanilla") == "FlashAttention"


def test_a_pre_training_is_no_row_unless_the_table_names_it():
    started = [record("lavo", "lra/listops", seed, 0.4, **REDUCED) for seed in (1, 2, 3)]
    changed = {"changed": {"train.max_steps": [50000, 100]}}
    first = [record("vanilla", "lra/listops", seed, 0.4, settings={"x": 1}, **changed, **REDUCED) for seed in (1, 2, 3)]
    for cell, weights in zip(started, first, strict=True):
        cell["depends_on"] = [{"cell": weights["cell"]["id"], "weights_sha256": "beef" * 16}]

    def rows(spec, records):
        scores = groups.group_scores(select.select(frame(records), spec), spec)[0].others[0].scores
        return [score.label for score in scores]

    listops = T11.model_copy(update={"columns": {"ListOps": T11.columns["ListOps"]}, "averages": {}})
    assert rows(listops, started + first) == ["LAVO"]
    assert rows(listops, first) == ["softmax attention (train.max_steps=100)"], "nothing started from it"
    vanilla = T11.rows["vanilla"].model_copy(update={"set": {"train.max_steps": 100}})
    named = listops.model_copy(update={"rows": T11.rows | {"vanilla": vanilla}})
    assert rows(named, started + first) == ["LAVO", "softmax attention"]
