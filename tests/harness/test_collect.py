"""Records -> frame: no record is skipped or doubled, and a failed one stays a gap."""

import math

import pytest
from helpers.synthetic import record as made

from harness.records.collect import COLUMNS, differences, frame, load_records, variant
from harness.records.record import RecordError, write


def test_every_record_once_in_the_order_of_cells(tmp_path):
    assert load_records(tmp_path / "none") == [] and list(frame([]).columns) == list(COLUMNS)
    for number, (model, seed) in enumerate([("vanilla", 2), ("vanilla", 1), ("lavo", 2), ("lavo", 1)]):
        write(made(model, seed=seed), tmp_path / f"{number}/deep/er/{9 - number}.json")
    (tmp_path / ".b.json.1.abcd.tmp").write_text("{", encoding="utf-8")
    loaded = [(entries["cell"]["model"], entries["cell"]["seed"]) for entries in load_records(tmp_path)]
    assert loaded == [("lavo", 1), ("lavo", 2), ("vanilla", 1), ("vanilla", 2)]
    (tmp_path / "bad.json").write_text("{", encoding="utf-8")
    with pytest.raises(RecordError, match=r"bad\.json"):
        load_records(tmp_path)


def test_two_records_of_one_cell_name_both_files(tmp_path):
    write(made(), tmp_path / "a.json")
    write(made(), tmp_path / "b.json")
    with pytest.raises(RecordError, match=r"a\.json and .*b\.json"):
        load_records(tmp_path)
    broken = []
    assert load_records(tmp_path, broken) == [] and len(broken) == 1


def test_the_records_of_a_task_are_read_without_the_folders_of_other_tasks(tmp_path):
    write(made(task="lra/listops", seed=1), tmp_path / "lra/listops/skyformer/smoke/a.json")
    write(made(task="lra/listops", seed=2), tmp_path / "b.json")
    (tmp_path / "lra" / "text").mkdir()
    (tmp_path / "lra" / "text" / "bad.json").write_text("{", encoding="utf-8")
    for tasks, seeds, problems in (
        ({"lra/listops"}, [1, 2], 0),
        ({"lra/text"}, [], 1),
        (set(), [], 0),
        (None, [1, 2], 1),
    ):
        broken = []
        records = load_records(tmp_path, broken, tasks=tasks)
        assert ([entries["cell"]["seed"] for entries in records], len(broken)) == (seeds, problems)


@pytest.mark.parametrize(
    ("asked", "source", "shown"),
    [
        ("slice", "full", "full"),  # a part was requested, and the file held all of it
        ("slice", "slice:a, first 10 rows", "slice"),
        ("generated", "full", "generated"),
    ],
)
def test_complete_data_never_have_the_origin_slice(asked, source, shown):
    record = made(source=source)
    record["config"]["task"]["source"] = asked
    assert frame([record]).iloc[0]["origin"] == shown


def test_the_rule_decides_which_checkpoint_counts():
    record = made(score=0.6)
    record["metrics"]["last"]["test"] = {"acc": 40.0, "loss": 1.0, "n": 25000}
    assert frame([record])["score"][0] == 60.0
    record["selection"]["rule"] = "last"
    assert frame([record])["score"][0] == 40.0


def test_failures_have_no_score():
    broken = made(status="nan", metric=None, parameters=None, steps=None)
    broken["metrics"] = {"best": made(score=0.9)["metrics"]["best"], "last": None}
    untested = made(score=0.6)
    del untested["metrics"]["best"]["test"]
    assert frame([untested])["score"].isna().all(), "the validation score takes no test's place"
    table = frame([made(score=0.6), broken])
    assert table["score"][0] == 60.0 and math.isnan(table["score"][1])
    assert math.isnan(table["parameters"][1]) and math.isnan(table["steps"][1])
    assert table["status"].tolist() == ["done", "nan"]


def test_seeds_are_one_variant_and_settings_are_not():
    first, second, other = made(seed=1), made(seed=2), made(seed=2, settings={"window": 64})
    assert variant(first["config"]) == variant(second["config"]) != variant(other["config"])
    assert differences([first["config"], other["config"]]) == ["", "model.window=64"]
    moved = first["config"] | {"trainer": {"accelerator": "gpu"}}
    assert variant(moved) == variant(first["config"])


def test_seeds_of_other_kernels_are_kept_apart():
    records = [made(seed=seed, code_sha256="ab") for seed in (1, 2, 3)]
    records[1]["hardware"] |= {"kernels": "native"}
    records[2]["hardware"] |= {"compile": True}
    assert frame(records)["code"].tolist() == ["ab", "ab kernels=native", "ab compiled"]
