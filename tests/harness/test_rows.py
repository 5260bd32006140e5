"""Rows that differ in their model alone share the other parts, and are the cells of their own compositions."""

import pytest

from harness.config import variants as module
from harness.config import yaml_files
from harness.config.cell import cell_of
from harness.config.compose import compose, folders, options
from harness.config.overrides import to_overrides
from harness.config.sweep import RATE, TRIAL, runnable_cells
from harness.config.table_files import path_of
from harness.config.table_rows import cell_settings, has_cells
from harness.config.variants import Variants, VariedConfig
from harness.errors import UsageError

KEYS = ("seed", RATE, TRIAL)
TABLES = {
    name: yaml_files.load_config(path_of("table", name, folders())) for name, _ in options("table") if name != "all"
}
WITH_CELLS = sorted(name for name, table in TABLES.items() if has_cells(table))


def words_of(table):
    """The overrides of two rows in one column: the first row composes what the last one shares."""
    pairs = list(runnable_cells(table, {}, "", {}))
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


@pytest.mark.parametrize("table", WITH_CELLS)
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


def test_what_rows_share_is_composed_once(monkeypatch):
    composed, original = [], module.compose
    monkeypatch.setattr(
        module, "compose", lambda words, *more, **few: composed.append(words) or original(words, *more, **few)
    )
    rows = Variants()
    for model in ("lavo", "vanilla", "luna"):
        rows.row([f"model={model}", "task=lra/text", "protocol=skyformer", "budget=smoke"], KEYS)
    assert len(composed) == 1


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
