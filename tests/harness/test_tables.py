"""Every cell of every published table: it builds at the paper's budget, and it trains."""

import pytest

from harness.config.build import on_meta
from harness.config.compose import compose, options
from harness.config.sweep import expand
from harness.training.run_cell import CellRequest, run_cell

TABLES = [name for name, _ in options("table") if name != "all"]


def cells(table, budget):
    """Those of the table's first seed: {text: overrides}."""
    typed = [f"table={table}", f"budget={budget}"]
    plan = expand(compose(typed), typed)
    assert not plan.absent
    return {"·".join(planned.overrides[:-1]): list(planned.overrides[:-1]) for planned in plan.cells}


@pytest.mark.parametrize("table", TABLES)
def test_every_cell_builds_at_the_papers_budget(table):
    for name, overrides in cells(table, "paper").items():
        built = on_meta(compose(overrides))
        assert 0 < built.parameters()["attention"] < built.parameters()["total"], name


def test_path_x_builds_with_every_model_of_its_recipe_s_tables():
    """It stands in no table: no model of theirs solves it."""
    models = {row.split("·")[0] for row in cells("luna/t1", "paper") if "protocol=google" in row}
    for model in models:
        assert on_meta(compose([model, "task=lra/pathx", "protocol=google"])).parameters()["attention"]


def test_path_x_trains(places):
    result = run_cell(
        CellRequest(compose(["task=lra/pathx", "protocol=google", "budget=smoke", "trainer=cpu", *places]))
    )
    assert result.state == "done", result.detail


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("cells")


@pytest.mark.slow
@pytest.mark.parametrize("table", TABLES)
def test_every_cell_trains(table, folder):
    """The steps, the two evaluations and the record of the smoke budget; cells that tables share run once."""
    for name, overrides in cells(table, "smoke").items():
        places = [f"paths.{place}={folder / place}" for place in ("data", "outputs", "records")]
        result = run_cell(CellRequest(compose([*overrides, "trainer=cpu", *places])))
        assert result.state in ("done", "skipped"), f"{name}: {result.detail}"
