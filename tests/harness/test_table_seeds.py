"""Five seeds where seeds differ widely: probes, and each table with a column like that."""

import pandas as pd
import pytest
from helpers.pages import CONF, PAPER, ROOT

from harness.report import spec_files
from harness.report.spec.table import TableSpec

WIDE = 1 / 3  # of the distance between reference and control
FOLDER = ROOT / "results/tables"
TABLES = sorted(path.relative_to(FOLDER).with_suffix("") for path in FOLDER.glob("l*/*.csv"))


def spread(scores: pd.DataFrame, spec: TableSpec, column: str) -> float | None:
    """The widest range of a row's seeds over the distance between reference and control, or None without these two."""
    rows = scores[(scores.column == column) & (scores.n > 1)].set_index("row")
    ends = spec.row_of("reference", column), spec.row_of("control", column)
    if not set(ends) <= set(rows.index):
        return None
    distance = abs(rows.ours_mean[ends[0]] - rows.ours_mean[ends[1]])
    return float((rows.ours_max - rows.ours_min).max() / distance) if distance else None


def reduced(name: str) -> tuple[TableSpec, pd.DataFrame] | None:
    spec = spec_files.load_table(name, CONF, PAPER)
    scores = pd.read_csv(FOLDER / f"{name}.csv")
    if not isinstance(spec, TableSpec) or "reference" not in scores or not spec.control or not spec.reference:
        return None
    return spec, scores[(scores.budget == "reduced") & scores.ours_mean.notna()].drop_duplicates(["row", "column"])


@pytest.mark.parametrize("name", TABLES, ids=str)
def test_a_table_with_a_wide_column_has_five_seeds(name):
    table = reduced(str(name))
    if table is None:
        pytest.skip("no trained scores with a reference and a control")
    spec, scores = table
    spreads = {column: spread(scores, spec, column) for column in spec.columns if column not in spec.own_columns}
    wide = {column: round(ratio, 2) for column, ratio in spreads.items() if ratio is not None and ratio > WIDE}
    assert len(spec.seeds) >= 5 or not wide, f"{name} has {len(spec.seeds)} seeds; spread per column: {wide}"


def test_wide_columns_occur():
    spec, scores = reduced("lavo/t3")
    assert spread(scores, spec, "MCD") > 1
    assert spread(*reversed(reduced("latte/t1")), "PPL") < WIDE
