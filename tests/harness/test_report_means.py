"""Tables whose cells measure several columns and whose paper prints only means: LAVO's Tables 7 and 8."""

import math

import pytest
from helpers import crosses, pages
from omegaconf import OmegaConf

from harness.config import sweep
from harness.config.compose import compose
from harness.report import spec_files

build = pages.build
CONF, PAPER, RENDER, plain = pages.CONF, pages.PAPER, pages.RENDER, pages.plain
forecast, everywhere, completion = crosses.forecast, crosses.everywhere, crosses.completion
T7, T8 = (spec_files.load_table(f"lavo/{name}", CONF, PAPER) for name in ("t7", "t8"))
REDUCED = {"budget": "reduced", "source": "slice:a"}


def block(table, title, section=0):
    """The only block whose title starts with `title`, in the first section that has one, from `section` on."""
    titles = [[candidate.title for candidate in part.blocks] for part in table.sections]
    for part in table.sections[section:]:
        matching = [candidate for candidate in part.blocks if candidate.title.startswith(title)]
        if matching:
            assert len(matching) == 1, titles
            return matching[0]
    raise AssertionError(titles)


def rows(block):
    return {row[0].text: [cell.text for cell in row[1:]] for row in block.rows}


def line(block, row):
    """{header: text} of one row."""
    return dict(zip([cell.text for cell in block.header[1:]], rows(block)[row], strict=True))


def test_a_tested_metric_that_is_missing_is_no_score():
    record = completion("lavo")
    del record["metrics"]["best"]["test"]["f1"]
    assert rows(block(build(T7, [record]), "F-Score@1%"))["LAVO"][1] == "no test score"


def test_a_tolerance_may_be_a_share_of_the_papers_number():
    assert T7.tolerances(7.2) == pytest.approx({"reproduced": 0.144, "close": 0.36})
    words = {}
    for value in (7.2 * 1.0199, 7.2 * 1.0201, 7.2 * 1.051):
        words[value] = rows(block(build(T7, [completion("lavo", cd_l1=value)]), "CD-L1"))["LAVO"][-1]
    assert list(words.values()) == ["reproduced", "close", "off"]
    assert "|Δ| ≤ 2 %, or |Δ| ≤ 5 %" in plain(build(T7, [completion("lavo")]), width=250)


def test_a_mean_with_a_missing_part_is_not_shown():
    complete = everywhere("lavo", mse=1.1)
    missing = [
        r for r in complete if (r["cell"]["task"], r["config"]["task"]["features"]) != ("forecasting/ettm1", "M")
    ]
    table = build(T8, missing)
    assert not [part for part in table.sections[0].blocks if part.title.startswith("ETT ")]
    assert line(block(table, "Parts of ETT MSE"), "LAVO")["ETTm1 M"] == "–"
    assert "Not averaged, because no row has a score in every column: ETT MSE, ETT MAE." in plain(table, width=200)
    assert "Not run at the paper budget: ETTm1 M;" in plain(table, width=200)
    broken = build(T8, [*missing, forecast("lavo", "ETTm1", "M", status="nan")])
    assert line(block(broken, "Parts of ETT MSE"), "LAVO")["ETTm1 M"] == "nan"
    assert not [part for part in broken.sections[0].blocks if part.title.startswith("ETT ")]


def test_a_column_s_setting_may_be_the_recipe_s_default():
    """Whichever of S and M is the recipe's own, a cell of it is its column's, unchanged."""
    for stated in (True, False):
        records = [forecast("lavo", "ETTh1", "S", mse=0.2, stated=stated), forecast("lavo", "ETTh1", "M", mse=0.6)]
        records[1]["changed"] = {} if stated else {"task.features": ["S", "M"]}
        shown = line(block(build(T8, records), "Parts of ETT MSE"), "LAVO")
        assert (shown["ETTh1 S"], shown["ETTh1 M"]) == ("0.200 (1)", "0.600 (1)")


def test_a_changed_recipe_is_a_line_of_its_own_apart():
    lr = {"train.optimizer.lr": [1e-4, 1e-3]}
    records = [
        forecast("lavo", "ETTh1", "S", mse=0.7, changed=lr | {"task.features": ["M", "S"]}),
        forecast("lavo", "ETTh1", "M", mse=0.8, changed=lr),
    ]
    table = build(T8, records)
    assert "0.700" not in str(table.sections[0])
    shown = line(block(table, "Parts of ETT MSE", 1), "LAVO (train.optimizer.lr=0.001)")
    assert (shown["ETTh1 S"], shown["ETTh1 M"]) == ("0.700 (1)", "0.800 (1)")


def test_data_are_never_mixed_where_a_column_has_both():
    records = everywhere("lavo", mse=0.4, **REDUCED)
    records += everywhere("lavo", mse=0.9, budget="reduced", source="synthetic", sets=["Weather"])
    blocks = build(T8, records).sections[1].blocks
    weather = [part for part in blocks if part.title.startswith("Weather MSE")]
    assert [(part.title.split(", ")[-1], rows(part)["LAVO"]) for part in weather] == [
        ("slice:a data", ["0.410 to 0.420 (2)", "–"]),
        ("synthetic data", ["0.910 to 0.920 (2)", "–"]),
    ]
    titles = {part.title for part in blocks}
    assert len(titles) == len(blocks) == 12  # the others once


def test_a_run_of_several_columns_is_planned_and_paid_once():
    columns = {
        "ListOps": {"task": "lra/listops", "metric": "acc"},
        "ListOps loss": {"task": "lra/listops", "metric": "loss"},
        "ListOps P": {"task": "lra/listops", "metric": "acc", "set": {"train.max_steps": 7}},
    }
    table = OmegaConf.create({
        "protocol": "skyformer", "rows": {"LAVO": "lavo", "Control": {"model": "vanilla", "ours": True}},
        "columns": columns, "seeds": [1, 2], "gpu_hours": 3,
    })  # fmt: skip
    plan = sweep.expand_table(table, compose(["budget=paper"]), ["budget=paper"])
    cells = {planned.cell.id: planned.gpu_hours for planned in plan.cells}
    assert len(cells) == 8 and set(cells.values()) == {1.5}
    assert math.fsum(cells.values()) == 2 * 2 * 3  # rows, seeds, hours of each
