"""Which cells a command means, and what a sweep does when one of them cannot run."""

import pytest
from omegaconf import OmegaConf

from harness.commands import train
from harness.config import sweep, table_rows
from harness.config.compose import compose, options
from harness.config.places import CONF
from harness.errors import UsageError
from harness.launch import local
from harness.training.run_cell import CellResult

TABLE = ["table=lavo/t11", "budget=smoke"]


def cells(*overrides):
    typed = [*TABLE, *overrides]
    return sweep.expand_all(sweep.compose_commands([typed]))


def names(plan):
    return {(planned.cell.model, planned.cell.task, planned.cell.seed) for planned in plan.cells}


def test_a_table_is_rows_by_columns_by_seeds():
    plan = cells()
    models, tasks, seeds = map(set, zip(*names(plan), strict=True))
    assert (len(models), len(tasks), seeds) == (13, 5, {1, 2, 3, 4, 5})
    assert len(plan.cells) == 13 * 5 * 5 and not plan.absent
    assert {planned.cell.protocol for planned in plan.cells} == {"skyformer"}


def table(**changes):
    """A table of one row and one column."""
    column = {"task": "lra/listops", "metric": "acc"}
    return OmegaConf.create({
        "protocol": "skyformer", "rows": {"LAVO": "lavo"}, "columns": {"ListOps": column}, "seeds": [1], "gpu_hours": 1,
    } | changes)  # fmt: skip


def expanded(of_table):
    return sweep.expand_table(of_table, compose(["budget=smoke"]), ["budget=smoke"])


def test_rows_and_columns_may_set_something_and_rows_their_protocol():
    rows = {"Luna": {"model": "luna", "protocol": "luna", "set": {"backbone.layers": 2}}}
    columns = {
        "[CLS]": {"task": "lra/listops", "metric": "acc"},
        "P": {"task": "lra/listops", "metric": "acc", "set": {"backbone.pooling": "packed"}},
    }
    cells = expanded(table(rows=rows, columns=columns)).cells
    assert [cell.cfg.backbone.pooling for cell in cells] == ["cls", "packed"]
    assert {cell.cfg.backbone.layers for cell in cells} == {2} and {cell.cell.protocol for cell in cells} == {"luna"}


def test_models_that_do_not_exist_here_are_named_and_left_out():
    rows = {"LAVO": "lavo", "Other": "nobody", "LLP": {"model": "llp", "protocol": "llp"}}
    columns = {"ListOps": {"task": "lra/listops", "metric": "acc"}, "Books": {"task": "lm/none", "metric": "ppl"}}
    plan = expanded(table(rows=rows, columns=columns))
    assert [cell.cell.model for cell in plan.cells] == ["lavo"]
    assert plan.absent == {
        "Other": "no model 'nobody': there is none yet",
        "Books": "no task 'lm/none': there is none yet",
        "LLP, ListOps": "protocol 'llp' has no recipe for lra/listops",
    }


def test_typed_overrides_narrow_a_table_and_apply_to_every_cell():
    plan = cells("model=lavo", "seed=7", "task=lra/listops", "train.max_steps=5")
    assert names(plan) == {("lavo", "lra/listops", 7)}
    assert plan.cells[0].cfg.train.max_steps == 5


def test_a_model_that_the_paper_does_not_have_gets_its_row():
    assert {model for model, _, _ in names(cells("model=local"))} == {"local"}
    planned = cells("model=custom", "model.name=mine", "model._target_=pkg.Mine", "trusted_packages=[pkg]")
    assert {model for model, _, _ in names(planned)} == {"mine"}


def test_a_row_may_have_cells_in_some_columns_alone():
    columns = {name: {"task": f"lra/{name}", "metric": "acc"} for name in ("listops", "text")}
    rows = {"LAVO": "lavo", "control": {"model": "vanilla", "ours": True, "columns": ["text"]}}
    assert {name[:2] for name in names(expanded(table(rows=rows, columns=columns)))} == {
        ("lavo", "lra/listops"), ("lavo", "lra/text"), ("vanilla", "lra/text")
    }  # fmt: skip


def test_all_tables_share_their_cells():
    typed = ["table=all", "budget=smoke", "task=lra/image", "model=vanilla", "seed=1"]
    plan = sweep.expand_all(sweep.compose_commands([typed]))
    ids = [planned.cell.id for planned in plan.cells]
    assert len(ids) == len(set(ids)) and {planned.cell.protocol for planned in plan.cells} >= {"google", "skyformer"}


@pytest.mark.parametrize(("fail_fast", "ran"), [(False, 5), (True, 2)])
def test_a_failure_stops_the_others_only_if_asked(monkeypatch, capsys, fail_fast, ran):
    states = iter([("done", 0), ("failed", 1), *[("done", 0)] * 3])
    monkeypatch.setattr(local, "run_cell", lambda request: CellResult("a cell", *next(states), "why"))
    typed = [*TABLE, "model=lavo", "task=lra/listops", f"fail_fast={fail_fast}"]
    assert train.run_all([sweep.Command(compose(typed), tuple(typed))]) == 1
    shown = capsys.readouterr()
    assert (shown.out + shown.err).count("a cell") == ran
    assert f"{ran - 1} done, 1 failed" in shown.out


def test_a_refused_combination_does_not_stop_a_sweep(tmp_path, places, run_here, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    causal = ["task.pattern=causal_self", "budget=smoke", "trainer=cpu"]
    assert run_here(["-m", "model=linformer,local", *causal, *places]) == 2
    stdout, stderr = capfd.readouterr()
    (line,) = [line for line in stderr.splitlines() if line.startswith("refused")]
    assert line.startswith("refused: linformer") and "model (Linformer)" in line
    assert "done: local" in stdout and "1 refused, 1 done" in stdout


def test_a_row_costs_the_same_in_every_table():
    """Rows of one protocol over the same tasks: a cell's cost does not depend on the table that shows it."""
    hours = {}
    for name in [name for name, _ in options("table") if name != "all"]:
        read = OmegaConf.load(CONF / "table" / f"{name}.yaml")
        if not table_rows.has_cells(read) or read.get("every"):  # its cells belong to other tables
            continue
        columns = [column for column in read.columns.values() if column.get("task")]
        runs = table_rows.runs((column.task, column.get("set", {})) for column in columns)
        for protocol in {table_rows.row(raw, read.protocol).protocol for raw in read.rows.values()}:
            sizes = (column.get("set", {}).get("protocol.configuration", "") for column in columns)
            tasks = frozenset(zip((column.task for column in columns), sizes, strict=True))
            row_hours = table_rows.row_hours(read.gpu_hours, protocol) / runs
            hours.setdefault((protocol, tasks), {})[name] = row_hours
    shared = {key: by_table for key, by_table in hours.items() if len(by_table) > 1}
    assert len(shared) >= 2 and all(len(set(by_table.values())) == 1 for by_table in shared.values()), shared


def test_hours_of_a_table_may_differ_by_protocol():
    rows = {"vanilla": "vanilla", "Luna": {"model": "luna", "protocol": "luna"}}
    made = table(rows=rows, protocol="google", gpu_hours={"google": 2, "luna": 3})
    plan = sweep.expand_table(made, compose(["budget=paper"]), ["budget=paper"])
    assert {planned.cell.protocol: planned.gpu_hours for planned in plan.cells} == {"google": 2, "luna": 3}


def plan_of(of_table):
    cfg = compose(["budget=smoke"])
    cfg.table = of_table
    return sweep.expand_all([sweep.Command(cfg, ("table=x",))])


def test_a_table_has_a_bounded_number_of_cells():
    rows = {str(number): "lavo" for number in range(21)}
    for many in (table(seeds=list(range(1_000)), rows=rows), table(rows={str(n): "lavo" for n in range(5_001)})):
        with pytest.raises(UsageError, match="are more than 5,000 numbers or 20,000 cells"):
            plan_of(many)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"seeds": ["range(1,1e9)"]}, r"seeds\[0\]: "),
        ({"seeds": [-1]}, r"seeds\[0\]: .* greater than or equal to 0"),
        ({"rows": 7}, "rows: a mapping expected"),
        ({"rows": {"a": {"model": "lavo", "seed": 1}}}, r"rows\.a: seed: unknown key"),
        ({"columns": {"c": {"task": "lra/listops", "set": 7}}}, r"columns\.c\.set"),
        ({"gpu_hours": "${nowhere}"}, "gpu_hours"),
    ],
)
def test_a_table_that_cannot_be_planned_is_one_line(changed, says):
    with pytest.raises(UsageError, match=says) as error:
        plan_of(table(**changed))
    assert "\n" not in str(error.value)
