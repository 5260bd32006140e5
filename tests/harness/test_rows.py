"""Rows, seeds and trials share what does not differ between them, and are the cells of their own compositions."""

import pytest
from omegaconf import OmegaConf

from harness.config import sweep, yaml_files
from harness.config import variants as module
from harness.config.cell import cell_of
from harness.config.compose import compose, folders, options
from harness.config.overrides import to_overrides
from harness.config.sweep import RATE, TRIAL, runnable_cells
from harness.config.table_files import path_of
from harness.config.table_rows import cell_settings, format_settings, has_cells, split_settings
from harness.config.variants import Variants, VariedConfig
from harness.errors import UsageError
from tests.helpers.searched import Trials

KEYS = ("seed", RATE, TRIAL)
TABLES = {
    name: yaml_files.load_config(path_of("table", name, folders())) for name, _ in options("table") if name != "all"
}
WITH_CELLS = sorted(name for name, table in TABLES.items() if has_cells(table))
SAMPLE = WITH_CELLS[::6]  # the default suite compares these; CI compares all


def words_of(table):
    """The overrides of two rows in one column: the first row composes what the last one shares."""
    pairs = [(row, column) for row, column, _ in runnable_cells(table, {}, "", {})]
    row, column = pairs[len(pairs) // 2]
    same = [pair for pair in pairs if pair[1] == column and pair[0].protocol == row.protocol]
    for row, column in (same[0], same[-1]):
        settings = cell_settings(row, column.get("set", {}), table.get("budget", "paper"))
        protocol = column.get("protocol") or row.protocol
        names = [f"model={row.model}", f"task={column.task}", f"protocol={protocol}"]
        yield (*names, *to_overrides(settings), f"budget={table.get('budget', 'paper')}")


def assert_same(words, variants):
    by_itself = compose([*words, "seed=7"])
    config, cell = variants.cell({"seed": 7})
    assert cell == cell_of(by_itself) and list(cell.config) == list(cell_of(by_itself).config)
    assert (config.copy() if isinstance(config, VariedConfig) else config) == by_itself


@pytest.mark.parametrize(
    "table", [pytest.param(name, marks=() if name in SAMPLE else pytest.mark.slow) for name in WITH_CELLS]
)
def test_a_row_is_the_cell_of_its_own_composition(table):
    rows = Variants()
    for words in words_of(TABLES[table]):
        assert_same(words, rows.row(words, KEYS)[1])


FOLLOWING = {
    "nothing": [],
    "the backbone": ["+backbone.note=${model.bases}"],
    "the task": ["+task.note='${setting:bases,3}'"],
    "a folder": ["paths.slices='outputs/${model.bases}'"],
    "the learning rate": ["+model.note=${train.optimizer.lr}"],
}


@pytest.mark.parametrize("typed", FOLLOWING.values(), ids=FOLLOWING)
def test_a_part_that_follows_the_model_is_that_of_its_own_model(typed):
    rows = Variants()
    for values in ([], ["model.bases=3"], ["model.bases=5", "model.window=2"]):
        words = ["model=lavo", "task=lra/listops", "protocol=skyformer", "budget=smoke", *values, *typed]
        assert_same(words, rows.row(words, KEYS)[1])


@pytest.mark.parametrize("value", ["+model.dropout=2", "model.window=9999999999", "model.bases=/etc/passwd"])
def test_a_row_is_refused_as_its_own_composition_is(value):
    rows = Variants()
    common = ["task=lra/text", "protocol=skyformer", "budget=smoke"]
    rows.row(["model=vanilla", *common], KEYS)
    words = ["model=lavo", *common, value]
    with pytest.raises(UsageError) as by_itself:
        compose(words, shared=[value])
    with pytest.raises(UsageError) as refused:
        rows.row(words, KEYS, shared=[value])
    assert str(refused.value) == str(by_itself.value)


# commands that differ in their seed alone

CELL = ["model=lavo", "task=lra/listops", "budget=smoke"]


def swept(words, numbers):
    return [[*words, f"seed={number}"] for number in numbers]


@pytest.mark.parametrize("words", [CELL, ["seed=0", *CELL], [*CELL, "train.eval_every=${seed}"], [*CELL, "seed=5"]])
def test_each_command_is_what_it_composes_to(words, tmp_path):
    for command in sweep.compose_commands(swept(words, (1, 2, 3))):
        alone = compose(command.overrides)
        assert OmegaConf.to_container(command.cfg) == OmegaConf.to_container(alone)
        (planned,) = sweep.expand_all([command]).cells
        assert planned.cell == cell_of(alone) and planned.overrides == command.overrides
        assert OmegaConf.to_container(planned.cfg) == OmegaConf.to_container(alone)


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (CELL, "-1"),
        (CELL, "many"),
        ([*CELL, "train.eval_every=${seed}"], "0"),
        ([*CELL, "resources.minutes=${seed}"], "0"),
    ],
)
def test_a_wrong_seed_is_refused_after_others(words, wrong):
    with pytest.raises(Exception) as alone:
        compose([*words, f"seed={wrong}"])
    with pytest.raises(type(alone.value)) as shared:
        sweep.compose_commands(swept(words, (1, 2, wrong)))
    assert str(shared.value) == str(alone.value)


# trials and seeds of a cell of a table

ONE_CELL = OmegaConf.create({
    "protocol": "skyformer", "rows": {"LAVO": "lavo"}, "seeds": [1, 2],
    "columns": {"ListOps": {"task": "lra/listops", "metric": "acc"}},
})  # fmt: skip


def expanded(validation, *typed):
    words = ["budget=reduced", *typed]
    return sweep.expand_table(ONE_CELL, compose(words), words, validation)


@pytest.mark.parametrize("follows", [[], ["+backbone.note=${train.optimizer.lr}"], ["+task.note=${train.trial}"],
                                     ["+model.note='${oc.select:train.optimizer.lr,7}'"]])  # fmt: skip
def test_a_trial_is_the_cell_of_its_own_composition(follows):
    validation = Trials(**{"3.3e_4": 1.0, "1e_3": 2.0, "3.3e_3": 3.0, "1.09e_2": 0.0})
    cells = expanded(validation, *follows).cells
    assert len(cells) == 6
    for planned_cell in cells:
        by_itself = compose(planned_cell.overrides)
        assert planned_cell.cfg == by_itself and planned_cell.cell == cell_of(by_itself)


def test_the_rates_of_a_row_are_composed_and_resolved_once(monkeypatch):
    composed, resolved, compose_once, resolve = [], [], module.compose, module.resolved_alone
    monkeypatch.setattr(module, "compose", lambda *words, **way: composed.append(words) or compose_once(*words, **way))
    monkeypatch.setattr(module, "resolved_alone", lambda *part: resolved.extend(part[2]) or resolve(*part))
    plan = expanded(Trials(**{"3.3e_4": 1.0, "1e_3": 2.0, "3.3e_3": 1.0}))
    assert len(plan.cells) == 5 and len(composed) == 1 and resolved.count("model") == 1


def test_a_rate_beyond_all_numbers_is_refused():
    with pytest.raises(UsageError, match=r"train.optimizer.lr=inf: a finite number is expected"):
        sweep.at_rate(compose(["train.optimizer.lr=1000"]), 1e308)


def test_settings_are_split_between_keys_and_not_within_a_list():
    pairs = [("task.lengths", "[512, 1024]"), ("backbone.pooling", '"packed"'), ("train.max_steps", "8")]
    split = ["task.lengths=[512, 1024]", "backbone.pooling=packed", "train.max_steps=8"]
    assert split_settings(format_settings(pairs)) == split
