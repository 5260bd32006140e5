"""What a plan reads and resolves: each yaml, value and record once, and only the records that it needs."""

import shutil

from harness.commands import plan
from harness.config import sweep, variants, yaml_files
from harness.config.compose import compose, pickled
from harness.config.places import CONF, ROOT
from harness.config.sweep import Command
from harness.records import record
from harness.records.estimate import MEASURED, Estimate

RECORDS = ROOT / "results" / "records"


def planned(*overrides):
    return sweep.expand_all([Command(compose(overrides), overrides)])


def test_cells_of_one_name_show_the_settings_that_tell_them_apart():
    made = planned("table=probes/updates", "model=vanilla", "budget=reduced", "budget.search=null", "seed=1")
    telling = plan.telling_settings([entry.cell for entry in made.cells])
    assert sorted(entry["train.max_steps"] for entry in telling) == [300, 600, 1200]
    assert all(len(entry) == 1 for entry in telling), "not train.schedule.steps as well"
    other = planned("model=vanilla", "task=lra/listops").cells[0].cell
    assert plan.telling_settings([other, other]) == [{}] * 2


def test_a_line_is_a_row_unless_each_cell_is_asked_for(run_here, capfd, tmp_path):
    def lines(*words):
        assert run_here(["do=plan", "table=lavo/t11", "model=vanilla", *words, f"paths.records={tmp_path}"]) == 0
        shown = capfd.readouterr().out.splitlines()
        return [" ".join(line.split()) for line in shown if line.startswith("vanilla")]

    assert lines("task=lra/text,lra/image") == ["vanilla 2 tasks x 5 seeds missing 30 h"]
    assert lines("task=lra/text", "seed=3") == ["vanilla lra/text x seed 3 missing 3:00:00"]
    assert len(lines("task=lra/text,lra/image", "cells=true")) == 10


def test_cells_that_are_no_grid_are_counted():
    rows = [plan.PlanRow(entry.cell, "missing", None) for entry in planned("table=lavo/t11", "budget=paper").cells]
    of_vanilla = [row for row in rows if row.cell.model == "vanilla"]
    assert plan.count_of(of_vanilla) == "5 tasks x 5 seeds" and plan.count_of(of_vanilla[:-1]) == "24 cells of 5 tasks"


def test_the_configuration_of_a_seed_is_that_of_its_own_composition(monkeypatch):
    made = planned("table=lavo/t11", "model=lavo", "task=lra/listops", "budget=smoke")
    copies = []
    copy = variants.VariedConfig.copy
    monkeypatch.setattr(variants.VariedConfig, "copy", lambda self: copies.append(self) or copy(self))
    assert len(made.cells) == 5 and not copies, "a plan makes none"
    for entry in made.cells:
        by_itself = compose(entry.overrides)
        assert entry.cfg == by_itself and entry.cell == variants.cell_of(by_itself)


def test_seeds_of_a_cell_read_the_same_files_unless_a_setting_follows_the_seed(tmp_path, monkeypatch):
    typed = ("table=lavo/t11", "model=lavo", "budget=smoke")
    made = planned(*typed)
    read = []
    with monkeypatch.context() as patch:
        patch.setattr(plan, "missing_file", lambda cfg: read.append((cfg.task.name, cfg.seed)))
        assert plan.missing_files(made.cells) == {}
    assert read[::-1] == [(task, 1) for task in dict.fromkeys(entry.cell.task for entry in made.cells)]
    follows = planned(*typed, "task=lra/listops", f"+task.path={tmp_path}/${{seed}}/x")
    missing = plan.missing_files(follows.cells)
    assert sorted(map(str, missing)) == [f"{tmp_path}/{seed}/x" for seed in range(1, 6)]


def test_compositions_parse_each_yaml_once_and_see_an_edit(tmp_path, monkeypatch):
    (tmp_path / "protocol").mkdir()
    mine = tmp_path / "protocol" / "mine.yaml"
    recipe = (CONF / "protocol" / "own.yaml").read_text().replace("name: own", "name: mine")
    mine.write_text(recipe)
    parsed, parse = [], yaml_files.parsed
    monkeypatch.setattr(yaml_files, "parsed", lambda text, path, *more: parsed.append(path) or parse(text, path, *more))

    def width(seed):
        pickled.cache_clear()
        typed = ["task=lra/listops", "budget=paper", "protocol=mine", f"seed={seed}"]
        return compose(typed, [str(tmp_path)]).backbone.dim

    width(1)
    parsed.clear()
    assert width(2) == 128 and parsed == []
    mine.write_text(recipe.replace("  dim: 128", "  dim: 32"))
    assert width(3) == 32 and parsed, "an edited yaml is read again"


def test_a_plan_tells_how_long_the_cells_behind_the_trials_take(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(plan, "estimate", lambda *_: Estimate(60.0, "a record", MEASURED))
    typed = ["table=lavo/t11", "model=lavo", "task=lra/listops", "budget=reduced", f"paths.records={tmp_path}"]
    plan.run_all([Command(compose(typed), typed)])
    shown = capsys.readouterr().out
    assert "cells: 3, 3 missing\nto do: about 3:00 " in shown
    assert "then 5 more, at the learning rates that the trials choose: about 5:00, if as long as the trials\n" in shown


def test_a_plan_estimates_what_is_left_from_records_of_its_task(tmp_path):
    typed = ("table=probes", "model=vanilla", f"paths.records={tmp_path / 'records'}", f"paths.outputs={tmp_path}")
    typed = (*typed, "budget=reduced")
    made = planned(*typed)
    for entry in made.cells:
        committed, path = RECORDS / entry.cell.path.with_suffix(".json"), entry.cell.record_path(entry.cfg)
        if entry.cell.task == "probe/needle" or (entry.cell.task == "probe/compression" and entry.cell.seed == 1):
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(committed, path)
    seconds = record.read(next((tmp_path / "records").glob("probe/compression/**/*.json")))["wall_s"]
    rows = plan.plan_rows([Command(compose(typed), typed)], made)
    of_task = {task: [row for row in rows if row.cell.task == task] for task in ("probe/needle", "probe/compression")}
    assert [row.state for row in of_task["probe/needle"]] == ["done"] * 5
    assert [row.state for row in of_task["probe/compression"]] == ["done"] + ["missing"] * 4
    assert {(row.estimate.seconds, row.estimate.basis) for row in of_task["probe/compression"][1:]} == {
        (seconds, MEASURED)
    }
