"""Records whose id fits, with scores that nobody measured: do=check and do=report name each and show none."""

import copy
import json
import math
import re
import shutil

import numpy as np
import pytest
from hydra.utils import get_class

import longhaul
from harness.commands import check
from harness.config.compose import compose, option_config, options
from harness.config.declared import declared_by
from harness.errors import UsageError
from harness.records import baselines, evidence, record
from harness.records.collect import frame, valid_records
from harness.records.listing import record_files
from harness.records.record import RecordError
from harness.report.scores.compare_cells import compare_cells
from tests.helpers.copied_records import COMMITTED, fitted, save_copy, with_seed

SOURCE = next(iter(record_files(COMMITTED / "lra" / "listops" / "skyformer" / "reduced", [])))
ACCURACIES = (("metrics", "best", "test", "acc"), ("evaluations", "test", "metrics", "acc"))


def put(entries, value, *paths):
    for *parents, last in paths:
        node = entries
        for key in parents:
            node = node[key]
        node[last] = value


def configured(value, *path):
    """A function that sets a key of the configuration; the id follows."""

    def change(entries):
        put(entries, value, ("config", *path))
        entries["cell"] = fitted(entries)["cell"]

    return change


FORGERIES = {
    "a better accuracy": lambda entries: put(entries, 77.0, *ACCURACIES),
    "no share of n examples": lambda entries: put(
        entries, entries["metrics"]["best"]["test"]["acc"] * (1 + 1.6e-7), *ACCURACIES
    ),
    "a lower loss": lambda entries: put(entries, 0.01, *((*parents, "loss") for *parents, _ in ACCURACIES)),
    "a chance level of 0": lambda entries: put(entries, 0.0, ("baseline", "test")),
    "a direction": lambda entries: put(entries, False, ("metric", "higher_is_better")),
    "a metric": lambda entries: put(entries, "loss", ("metric", "name")),
    "one token": lambda entries: put(entries, 1, ("tokens",)),
    "tokens per second": lambda entries: put(entries, 1e9, ("tokens_per_s",)),
    "examples per second": lambda entries: put(entries, 1e9, ("examples_per_s",)),
    "both speeds": lambda entries: put(entries, 1e9, ("examples_per_s",), ("tokens_per_s",)),
    "memory": lambda entries: put(entries, 0.001, ("peak_memory_mb",)),
    "a key that no recipe has": configured(5, "train", "strangers_key"),
    "no value where the recipe has one": configured(None, "train", "optimizer", "lr"),
    "a pattern with which no recipe is composed": configured("???", "task", "pattern"),
    "a pattern that is a list": configured([["x"]], "task", "pattern"),
}


@pytest.fixture
def forge(tmp_path):
    """A function that saves two good records and a changed one; returns the file of the last."""
    root = tmp_path / "records"

    def save(change):
        entries = record.load_json(SOURCE)
        for seed in (3001, 3002):
            save_copy(root, SOURCE, with_seed(entries, seed))
        forged = with_seed(entries, 4000)
        change(forged)
        return save_copy(root, SOURCE, forged)

    return save


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_is_named_and_in_no_table(forge, tmp_path, capsys, name):
    file = forge(FORGERIES[name])
    records, broken = valid_records(tmp_path / "records", published=True)
    (line,) = capsys.readouterr().err.splitlines()
    assert (len(records), broken) == (2, 1) and line.startswith(f"left out: {file}: "), line
    assert check.run(compose([f"paths.records={tmp_path / 'records'}"]), []) == 1
    said = capsys.readouterr().out.splitlines()[:-1]
    assert said and all(line.startswith(f"{file}: ") for line in said)


def test_a_forged_score_is_neither_compared_nor_given(forge, tmp_path):
    file = forge(FORGERIES["a better accuracy"])
    good = next(path for path in record_files(tmp_path / "records", []) if path != file)
    with pytest.raises(UsageError, match=r"evaluations\.test\.metrics\.acc: 77, but its examples give"):
        compare_cells(file, good, tmp_path / "records")
    with pytest.raises(UsageError, match=re.escape(str(file))):
        longhaul.predictions(**{f"paths.{name}": tmp_path / name for name in ("records", "outputs")})


def test_a_forged_predictor_is_named_and_not_shown(tmp_path, capsys):
    entries = record.load_json(SOURCE)
    config, fingerprint = entries["config"], entries["data"]["fingerprint"]
    source = baselines.path_of(COMMITTED, "lra/listops", baselines.key_of(config, fingerprint))
    path = save_copy(tmp_path / "records", SOURCE, entries)
    target = baselines.path_of(tmp_path / "records", "lra/listops", source.stem)
    target.parent.mkdir(parents=True)
    shutil.copy(source.with_suffix(".npz"), target.with_suffix(".npz"))
    predictor = json.loads(source.read_text(encoding="utf-8"))
    for accuracy, kept in ((None, True), (1.0, False)):
        changed = copy.deepcopy(predictor)
        if accuracy is not None:
            next(iter(changed["evaluations"].values()))["metrics"]["acc"] = accuracy
        target.write_text(json.dumps(changed), encoding="utf-8")
        (row,) = frame([entries | {"file": path}]).to_dict("records")
        assert (row["baselines"] is not None) == kept
    assert "metrics.acc: 1, but its examples give" in capsys.readouterr().err


def counted(*values):
    return {"acc": np.array(values, np.uint8)}


@pytest.mark.parametrize(
    ("arrays", "metrics", "accepted"),
    [
        (counted(1, 0, 1, 1), {"acc": 75.0}, True),
        (counted(1, 0, 1, 1), {"acc": 75.0000123}, False),
        ({"right": np.array([1, 0, 1, 1], np.uint8)}, {"right": 0.75}, True),
        ({"acc": np.array([25, 75], np.float32)}, {"acc": 50.0002}, True),
        ({"log_ppl": np.array([1, 3], np.float32)}, {"ppl": math.e**2}, True),
        ({"log_ppl": np.array([1, 3], np.float32)}, {"ppl": 7.0}, False),
        ({"mcd_sum": np.array([1, 8.0]), "mcd_count": np.array([1, 2.0])}, {"mcd": 3.0}, True),
        ({"mcd_sum": np.array([1, 8.0]), "mcd_count": np.array([1, 2.0])}, {"mcd": 4.5}, False),
        ({"acc": np.array([np.nan, 75], np.float32)}, {"acc": 50.0}, False),
        ({"chrf": np.array([25, 75], np.float32)}, {"bleu": 50.0}, True),
    ],
)
def test_a_metric_follows_from_the_scores_of_its_examples(arrays, metrics, accepted):
    evaluations = {"test": {"metrics": metrics}}
    problems = list(evidence.unexplained(evaluations, {"test": arrays}, {"acc": (0, 100)}))
    assert (problems == []) == accepted
    assert accepted or problems[0].startswith(f"evaluations.test.metrics.{next(iter(metrics))}: ")


def test_the_declared_metric_of_every_task_is_that_of_its_class():
    for task, _ in options("task"):
        cls, declaration = get_class(option_config("task", task)["_target_"]), declared_by(task)
        assert (declaration.maximize or declaration.minimize, declaration.maximize is not None) == (
            cls.metric, cls.higher_is_better,
        ), task  # fmt: skip
    assert evidence.class_of("lra/none") is None


def test_all_committed_files_of_predictors_follow_from_their_examples():
    for path in record_files(COMMITTED.parent / baselines.FOLDER, []):
        try:
            entries = baselines.read(path)
        except RecordError as error:
            pytest.fail(str(error))
        assert list(evidence.contradicted(path, entries, entries["task"])) == [], path


def test_scores_of_examples_that_were_removed_are_missed(forge, tmp_path, capsys):
    file = forge(lambda entries: None)
    file.with_suffix(".npz").unlink()
    assert len(valid_records(tmp_path / "records", published=True)[0]) == 2
    assert f"{file.with_suffix('.npz')}: not there" in capsys.readouterr().err
