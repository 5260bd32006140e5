"""Every cell of every published table: it builds at the paper's budget, and it trains."""

import os

import pytest
from omegaconf import OmegaConf

from harness.config.build import on_meta
from harness.config.cell import cell_of
from harness.config.compose import compose, file_of, options
from harness.config.sweep import Command, expand_all
from harness.config.table_rows import has_cells
from harness.training.run_cell import run_cell
from tests.helpers.cells import request_of, shorten, with_model

READ = {name: OmegaConf.load(file_of("table", name)) for name, _ in options("table") if name != "all"}
TABLES = [name for name, read in READ.items() if has_cells(read) and not read.get("every")]  # of the papers and probes
QUICK = ("lavo/t7", "luna/t6")  # the default suite builds these; CI builds all
# sizes, updates and texts of the reduced budget: training takes minutes
OF_REDUCED = ("anchor", "probes/state", "probes/updates")
OF_PROBES = ("probes/distance", "probes/length")  # the same cells, by other evaluations


def cells(table, budget, *overrides):
    """The cells of the table at one seed, by their overrides."""
    typed = [f"table={table}", f"budget={budget}", "seed=1", *overrides]
    plan = expand_all([Command(compose(typed), tuple(typed))])
    assert not plan.absent
    return {"·".join(planned.overrides): planned for planned in plan.cells}


def few_of_each(planned_cells):
    """Each model on one of the tasks, and each task with one of the models, in one variant: test_dependence runs every
    model on every task, forward and backward, and every cell is built at the paper's budget."""
    models, tasks = (
        sorted({getattr(planned.cell, part) for planned in planned_cells.values()}) for part in ("model", "task")
    )
    chosen = {}
    for name, planned in planned_cells.items():
        if (models.index(planned.cell.model) - tasks.index(planned.cell.task)) % len(tasks) == 0:
            chosen.setdefault((planned.cell.model, planned.cell.task), name)
    for name, planned in planned_cells.items():
        if planned.cell.model not in {model for model, _ in chosen}:  # it stands in some columns alone
            chosen[planned.cell.model, planned.cell.task] = name
    return {name: planned_cells[name] for name in chosen.values()}


def each_setting(planned_cells):
    """Beside `few_of_each`, one cell of each task, each model and each setting that a row or a column changes."""
    chosen, seen = few_of_each(planned_cells), set()
    for name, planned in [*chosen.items(), *planned_cells.items()]:
        words = {word for word in planned.overrides if not word.startswith(("seed=", "paths.", "trainer"))}
        if words - seen:
            seen |= words
            chosen[name] = planned
    return chosen


@pytest.mark.parametrize(
    "table",
    [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in TABLES if name not in OF_PROBES],
)
def test_every_cell_builds_at_the_papers_budget(table):
    planned_cells = cells(table, "reduced" if table in OF_REDUCED else "paper")
    for name, planned in (few_of_each(planned_cells) if table.startswith("probes") else planned_cells).items():
        counts = on_meta(planned.cfg).parameters()
        whole = planned.cell.model.startswith("perceiver_ar")  # a whole decoder, none of whose layers is an Attention
        assert (counts["attention"] > 0) is not whole and counts["attention"] < counts["total"], name
    assert planned.cell == cell_of(compose(planned.overrides)), "the overrides of a cell compose to it"


@pytest.mark.slow
def test_path_x_builds_with_every_model_of_its_recipe_s_tables():
    """It stands in no table: no model of theirs solves it."""
    planned_cells = cells("luna/t1", "paper").values()
    models = {planned.cell.model for planned in planned_cells if planned.cell.protocol == "google"}
    assert len(models) > 5
    cfg = compose(["task=lra/pathx", "protocol=google"])
    for model in models:
        assert on_meta(with_model(cfg, model)).parameters()["attention"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One folder for all pytest-xdist workers: data are made once, and shared cells run once."""
    base = tmp_path_factory.getbasetemp()
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "cells"


@pytest.mark.slow
@pytest.mark.parametrize("table", [name for name in TABLES if name not in OF_REDUCED])
def test_every_cell_trains(table, folder):
    """The steps, the two evaluations and the record of the smoke budget; cells that tables share run once."""
    places = [f"paths.{key}={folder / key}" for key in ("data", "outputs", "records")]
    planned_cells = cells(table, "smoke", "trainer.accelerator=cpu", *places)
    chosen = few_of_each if table.startswith("probes") else each_setting
    for name, planned in chosen(planned_cells).items():
        shorten(planned.cfg)
        result = run_cell(request_of(planned.cfg))
        assert result.state in ("done", "skipped", "running"), f"{name}: {result.detail}"  # running: in another process
