"""Scores of simple predictors: measured once for all cells of the same data and updates, and printed with their fit."""

import json
from dataclasses import replace

import pytest

from harness.config.cell import cell_of
from harness.config.compose import compose
from harness.records import baselines
from harness.records.collect import frame
from harness.records.record import RecordError
from harness.report.pages import answer, columns, notes
from harness.report.scores import groups, select
from harness.report.scores.scores import Score
from harness.training import baselines as training
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
        ({"key": "00" * 8}, "not its path"),
        ({"more": 1}, "unknown key"),
        ({"task": "lra/text"}, "not its path"),
        ({"fits": {}, "evaluations": {}}, "fits: "),
        ({"evaluations": {}}, r"evaluations\.baseline/\w+: missing"),
        ({"fits": first(written["fits"], saw="\x1b]0;x\x07")}, r"saw: '.x1b\]0;x.x07' has characters that cannot be"),
        ({"fits": first(written["fits"], saw="x" * 201)}, "saw: string should have at most 200 characters"),
        ({"fits": first(written["fits"], val={"acc": 140.0})}, r"val\.acc: 140 is no percentage"),
        ({"evaluations": first(written["evaluations"], status="oom", message="m")}, "oom, which is not kept"),
        ({"evaluations": first(written["evaluations"], metrics={"acc": -3.0})}, "-3 is no percentage"),
    ):
        path.write_text(json.dumps(written | change))
        with pytest.raises(RecordError, match=message) as error:
            baselines.read(path)
        assert str(path) in str(error.value) and str(error.value).isprintable()


def first(parts, **changes):
    """Parts by name, with changes to the first one."""
    name = min(parts)
    return parts | {name: parts[name] | changes}


@pytest.mark.usefixtures("measured_anew")
def test_a_predictor_that_failed_is_not_kept_and_tried_again(places, run_here, monkeypatch, capfd, tmp_path):
    real = training.evaluate_predictor

    def evaluate_predictor(task, split, size, predictor, final=None):
        if fails_all or predictor is seen.setdefault("first", predictor):
            raise ImportError("no package")
        return real(task, split, size, predictor, final)

    fails_all, seen = True, {}
    command = ["do=baselines", *CELL, *places]
    with monkeypatch.context() as patched:
        patched.setattr(training, "evaluate_predictor", evaluate_predictor)
        assert run_here(command) == 1 and not list((tmp_path / "baselines").rglob("*.json"))
        said = capfd.readouterr()
        assert "not measured" in said.out and "baseline/majority_class: no package" in said.err
        fails_all = False
        assert run_here(command) == 0
    (path,) = (tmp_path / "baselines").rglob("*.json")
    before = baselines.read_checked(path)
    assert "root_operator" in before["fits"] and "majority_class" not in before["fits"]
    assert run_here(command) == 0
    after = baselines.read_checked(path)
    assert after["fits"].keys() - before["fits"].keys() == {"majority_class"}
    assert all(after["fits"][name] == fit for name, fit in before["fits"].items()), "what is there is not fitted again"
    path.write_bytes(path.read_bytes()[:500])
    assert run_here(command) == 0 and baselines.read_checked(path)["fits"].keys() == after["fits"].keys()


def test_the_check_reads_predictors_and_measurements(places, run_here, capfd, tmp_path):
    (tmp_path / "records").mkdir()
    (tmp_path / "bench").mkdir()
    assert run_here(["do=baselines", *CELL, *places]) == 0
    check = ["do=check", *places, f"paths.bench={tmp_path / 'bench'}"]
    assert run_here(check) == 0
    (path,) = (tmp_path / "baselines").rglob("*.json")
    path.with_suffix(".npz").unlink()
    (tmp_path / "bench" / "x.json").write_text("{}")
    capfd.readouterr()
    assert run_here(check) == 1
    lines = capfd.readouterr().out.splitlines()
    assert lines[0].startswith(f"{path}: predictors: {path.with_suffix('.npz')}: not there")
    assert lines[1].startswith(f"{tmp_path}/bench/x.json: measurements: not a measurement")


def test_a_page_says_that_predictors_were_not_measured():
    """Their file is missing, or not valid: a reader must not think that the task has none."""
    ended = {"status": "done", "message": None, "metrics": {"acc": 10.0}, "n": 4, "predictions": None}
    chance = {"evaluations": {"baseline/majority_class": ended}}
    cells = frame([entries | chance for entries in synthetic.example()])
    group = answer.answers(groups.group_scores(select.select(cells, T11), T11))[0].group
    assert group.unmeasured and notes.predictor_notes([group]) == ["Simple predictors: not measured."]
    measured = replace(group, unmeasured=False, column="Text")
    assert notes.predictor_notes([measured]) == []
    (note,) = notes.predictor_notes([replace(group, column="ListOps"), measured])
    assert note == "Simple predictors: not measured in ListOps."


def test_the_page_of_all_columns_counts_the_rows_above_the_strongest_predictor(tmp_path):
    answered = answer.answers(groups.group_scores(select.select(frame(synthetic.example()), T11), T11))
    column = max(answered, key=lambda column: column.tests.rows)
    means = sorted(score.estimate.mean for score in column.group.scores if score.by_seed)
    strongest = Score("baseline: k-NN", "", {1: (means[0] + means[1]) / 2}, {})
    beaten = replace(column, group=replace(column.group, strongest=strongest))
    (page,) = columns.pages([("lavo/t11", [beaten, column])], tmp_path).values()
    first, second = (line for line in page.splitlines() if line.startswith("| [lavo/t11]"))
    assert len(means) > 1 and first.endswith(f"| {len(means) - 1} of {len(means)} |") and "k-NN" in first
    assert second.endswith("| – | – |") and "no two rows have 3 seeds in common" in second
    assert columns.pages([("llp/t6", ())], tmp_path) == {}, "a table without runs makes no page"
    assert list(columns.pages([("lavo/t11", answered)], tmp_path)) == [tmp_path / "columns.md"]
