"""Scores of simple predictors: measured once for all cells of the same data and updates, and printed with their fit."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from harness.config.cell import cell_of
from harness.config.compose import compose
from harness.records import baselines
from harness.records.collect import frame
from harness.records.record import RecordError
from harness.report.pages import answer, columns
from harness.report.scores import groups, select
from harness.report.scores.predictors import scored_predictors
from harness.report.scores.scores import Score
from harness.report.spec.parts import Column
from tests.helpers import synthetic
from tests.helpers.pages import T11

pytestmark = pytest.mark.usefixtures("rates_searched")

CELL = ["model=vanilla", "task=lra/listops", "budget=smoke"]
FINGERPRINT = "ab" * 32


def key(*overrides):
    return baselines.key_of(cell_of(compose([*CELL, *overrides])).config, FINGERPRINT)


def test_what_has_the_same_file():
    alike = ("model=lavo", "seed=3", "train.optimizer.lr=0.1", "backbone.dim=16", "task.pattern=causal_self")
    assert key(*alike) == key()
    others = ("train.max_steps=13", "train.batch_size=8", "task.max_length=65")
    assert len({key(), *map(key, others)}) == 1 + len(others)
    assert baselines.key_of(cell_of(compose(CELL)).config, "cd" * 32) != key()


def test_the_command_measures_what_is_missing_and_a_changed_file_is_one_line(places, run_here, capfd, tmp_path):
    assert run_here(["do=baselines", *CELL, *places]) == 0
    (path,) = (tmp_path / "baselines").rglob("*.json")
    entries, before = baselines.read(path), path.read_bytes()
    assert entries["task"] == "lra/listops" and entries["seen"] == 12 * 16
    assert {"baseline/majority_class", "baseline/root_operator"} <= entries["evaluations"].keys()
    assert f"{path}: measured" in capfd.readouterr().out
    assert run_here(["do=baselines", *CELL, "seed=2", *places]) == 0 and path.read_bytes() == before
    assert "there already" in capfd.readouterr().out and not (tmp_path / "records").exists()
    written = json.loads(path.read_text())
    for change, message in (
        ({"schema_version": 0}, "schema_version is not 1"),
        ({"key": "00" * 8}, "is not the name of the file"),
        ({"more": 1}, "unknown key"),
    ):
        path.write_text(json.dumps(written | change))
        with pytest.raises(RecordError, match=message) as error:
            baselines.read(path)
        assert str(path) in str(error.value) and "\n" not in str(error.value)


def test_a_predictor_without_a_score_is_a_row_that_says_why(monkeypatch):
    import pandas as pd

    monkeypatch.setattr("harness.records.predictions.read", lambda *arguments, **keywords: {})
    failed = {"status": "failed", "message": "no training text", "metrics": None}
    ended = {"status": "done", "message": None, "metrics": {"ppl": 22.5}}
    file = {"file": Path("x.json"), "evaluations": {"baseline/5gram": failed, "baseline/unigram": ended}}
    cells = {"id": "a", "fingerprint": "f00d", "baselines": file, "evaluations": None}
    found = scored_predictors(
        pd.DataFrame([cells | {"seed": seed} for seed in (1, 2, 3)]), Column(task="x", metric="ppl")
    )
    (fivegram, _), (unigram, _) = found["5gram"], found["unigram"]
    assert (fivegram.row, fivegram.estimate, fivegram.failure_text) == ("baseline: 5-gram", None, "no training text")
    assert unigram.by_seed == {1: 22.5, 2: 22.5, 3: 22.5} and unigram.data[2] == "f00d"


def test_the_page_of_all_columns_counts_the_rows_above_the_strongest_predictor(tmp_path):
    answered = answer.answers(groups.group_scores(select.select(frame(synthetic.example()), T11), T11))
    column = max(answered, key=lambda column: column.tests.rows)
    means = sorted(score.estimate.mean for score in column.group.scores if score.by_seed)
    strongest = Score("baseline: k-NN", "", {1: (means[0] + means[1]) / 2}, {})
    beaten = replace(column, group=replace(column.group, strongest=strongest))
    lines = columns.page([("lavo/t11", [beaten, column], ())]).splitlines()
    first, second = (line for line in lines if line.startswith("| [lavo/t11]"))
    assert len(means) > 1 and first.endswith(f"| {len(means) - 1} of {len(means)} |") and "k-NN" in first
    assert second.endswith("| not fitted | – |") and "fewer than two rows have 3 seeds" in second
    assert columns.pages([("llp/t6", (), ())], tmp_path) == {}, "a table without runs makes no page"
    assert list(columns.pages([("lavo/t11", answered, ())], tmp_path)) == [tmp_path / "columns.md"]
