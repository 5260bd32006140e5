"""Scores of simple predictors: measured once for all cells of the same data and updates, and printed with their fit."""

import json

import numpy as np
import pytest

from harness.config.cell import cell_of
from harness.config.compose import compose
from harness.records import baselines
from harness.records.record import RecordError
from harness.report.scores.per_example import BaselineScores
from harness.report.scores.scores import baseline_scores

CELL = ["model=vanilla", "task=lra/listops", "budget=smoke"]
FINGERPRINT = "ab" * 32


def key(*overrides):
    return baselines.key_of(cell_of(compose([*CELL, *overrides])).config, FINGERPRINT)


def test_what_has_the_same_file():
    alike = ("model=lavo", "seed=3", "train.optimizer.lr=0.1", "backbone.dim=16", "task.pattern=causal_self")
    assert {key(override) for override in alike} == {key()}
    others = ("train.max_steps=13", "train.batch_size=8", "task.max_length=65", "task.max_depth=3")
    assert len({key(), *map(key, others)}) == 1 + len(others)
    assert baselines.key_of(cell_of(compose(CELL)).config, "cd" * 32) != key()


def test_the_command_measures_what_is_missing(places, run_here, capfd, tmp_path):
    assert run_here(["do=baselines", *CELL, *places]) == 0
    (path,) = (tmp_path / "baselines").rglob("*.json")
    entries, before = baselines.read(path), path.read_bytes()
    assert entries["task"] == "lra/listops" and entries["seen"] == 12 * 16
    assert {"baseline/majority_class", "baseline/root_operator"} <= entries["evaluations"].keys()
    assert f"{path}: measured" in capfd.readouterr().out
    assert run_here(["do=baselines", *CELL, "seed=2", *places]) == 0 and path.read_bytes() == before
    assert "there already" in capfd.readouterr().out
    path.with_suffix(".npz").unlink()
    assert run_here(["do=baselines", *CELL, "rerun=all", *places]) == 0
    assert path.with_suffix(".npz").is_file() and not (tmp_path / "records").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema_version": 0}, "schema_version is not 1"),
        ({"seen": 0}, "seen: "),
        ({"key": "00" * 8}, "is not the name of the file"),
        ({"more": 1}, "unknown key"),
    ],
)
def test_a_file_that_somebody_changed_is_one_line(places, run_here, tmp_path, change, message):
    run_here(["do=baselines", *CELL, *places])
    (path,) = (tmp_path / "baselines").rglob("*.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(RecordError, match=message) as error:
        baselines.read(path)
    assert str(path) in str(error.value) and "\n" not in str(error.value)


def test_a_predictor_without_a_score_is_a_row_that_says_why():
    import pandas as pd

    cells = pd.DataFrame({"seed": [1, 2, 3]})
    untrained = {
        "5gram": BaselineScores("f00d", None, None, {"saw": ""}, "no training text"),
        "unigram": BaselineScores("f00d", 22.5, np.full(4, 22.5)),
    }
    fivegram, unigram = baseline_scores(cells, untrained, "baseline: ")
    assert (fivegram.row, fivegram.estimate, fivegram.failure_text) == ("baseline: 5gram", None, "no training text")
    assert unigram.by_seed == {1: 22.5, 2: 22.5, 3: 22.5} and unigram.data[2] == "f00d"
