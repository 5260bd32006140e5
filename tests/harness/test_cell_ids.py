"""The cells of all tables are the recorded ones: `cell_ids.json` holds a digest of their ids per budget.

A cell with another id is another experiment: its records are no longer found. After a change of recipes or of the
identity that is meant, run `python -m tests.harness.test_cell_ids`, which writes the file anew, and say in the commit
which ids changed and why.
"""

import hashlib
import json
from pathlib import Path

import pytest

from harness.config.sweep import compose_commands, expand_all

FILE = Path(__file__).with_name("cell_ids.json")
BUDGETS = ("paper", "reduced")


def recorded(budget, table="all"):
    """The number of cells, and a digest of their ids, paths and dependencies."""
    cells = expand_all(compose_commands([[f"table={table}", f"budget={budget}"]])).cells
    lines = sorted(f"{planned.cell.id} {planned.cell.path} {','.join(planned.depends_on)}" for planned in cells)
    return {"cells": len(lines), "sha256": hashlib.sha256("\n".join(lines).encode()).hexdigest()}


def check(name, cells):
    then = json.loads(FILE.read_text())[name]
    assert cells == then, "ids of cells have changed, so records are not found: see the head of this file"


def test_the_cells_of_a_table_are_as_recorded():
    check("luna/t6 paper", recorded("paper", "luna/t6"))


@pytest.mark.slow
@pytest.mark.parametrize("budget", BUDGETS)
def test_the_cells_of_all_tables_are_as_recorded(budget):
    check(budget, recorded(budget))


if __name__ == "__main__":
    cells = {budget: recorded(budget) for budget in BUDGETS} | {"luna/t6 paper": recorded("paper", "luna/t6")}
    FILE.write_text(json.dumps(cells, indent=1) + "\n")
