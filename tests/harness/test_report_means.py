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
CONTROL = "no cross attention (not in the paper)"


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


def test_one_cell_is_in_every_column_that_it_measures():
    table = build(T7, [completion("lavo", cd_l1=7.2), completion("abc", status="oom")])
    by_column = {name: rows(block(table, name)) for name in T7.columns}
    assert [by_column[name]["LAVO"][1] for name in T7.columns] == ["7.200 (1)", "0.225 (1)", "0.833 (1)"]
    assert all(by_column[name]["ABC"][1] == "oom" for name in T7.columns)
    assert table.summary == "trained scores: 1 reproduced · 2 close · 0 off · 3 failed · 9 not run"
    assert by_column["CD-L1"]["softmax attention"][3] == "not run (≈ 80 GPU-hours)"  # one run has all three


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


def test_a_row_of_ours_has_no_published_number_and_no_verdict():
    seeds = [completion("no_cross", seed, 7.4 + seed % 3 / 1000) for seed in (1, 2, 3)]
    seeds += [completion("vanilla", seed, 7.0 + seed / 1000) for seed in (1, 2, 3)]
    table = build(T7, seeds)
    cd_l1 = block(table, "CD-L1")
    assert rows(cd_l1)[CONTROL] == ["–", "7.401 ± 0.002 (3)", "–", "–"]
    assert [cell.text for row in cd_l1.rows for cell in row if cell.bold] == ["7.002 ± 0.002 (3)"]  # lower is better
    assert [row[0].notes for row in cd_l1.rows] == [()] * 5 + [("control",)]
    tidy = [row for row in table.tidy if row["row"] == "no cross attention" and row["budget"] == "paper"]
    assert [row["verdict"] for row in tidy] == [""] * 3
    assert all("not in the paper" in row["notes"] for row in tidy)
    not_run, published = build(T7, []).sections[:2]
    assert not_run.title == "Not run"
    (overview,) = published.blocks
    assert "no cross" not in str(overview.rows)


def test_a_mean_stands_beside_the_paper_and_its_parts_below():
    table = build(T8, everywhere("lavo", (1, 3), mse=1.1) + everywhere("vanilla", mse=1.2))
    assert rows(block(table, "ETT MSE"))["LAVO"] == ["1.123", "1.110 to 1.130 (2)", "-0.003", "reproduced"]
    assert rows(block(table, "Weather MAE"))["LAVO"] == ["0.492", "0.555 to 0.565 (2)", "+0.068", "off"]
    parts = block(table, "Parts of ETT MSE")
    names = ["ETTh1 S", "ETTh1 M", "ETTh2 S", "ETTh2 M", "ETTm1 S", "ETTm1 M"]
    assert line(parts, "LAVO") == dict.fromkeys(names, "1.110 to 1.130 (2)")
    assert line(parts, "ABC") == dict.fromkeys(names, "–")
    assert line(parts, "baseline: last value") == dict.fromkeys(names, "0.800")
    assert not [row for row in rows(block(table, "Parts of ETT MAE")) if "baseline" in row]
    assert parts.lines[1:] == ("Test examples: 2,161.",)
    assert table.summary.split(" · ")[-1] == "12 not run"  # of 20: a mean of numbers that only we have counts


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
    broken = [*missing, forecast("lavo", "ETTm1", "M", status="nan")]
    assert line(block(build(T8, broken), "Parts of ETT MSE"), "LAVO")["ETTm1 M"] == "nan"
    assert not [part for part in build(T8, broken).sections[0].blocks if part.title.startswith("ETT ")]


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


def test_reduced_means_say_their_data_and_are_compared_by_their_ordering():
    records = []
    for model, mse in {"vanilla": 0.5, "abc": 0.6, "lavo": 0.4, "no_cross": 0.3}.items():
        records += everywhere(model, mse=mse, sets=["ETTh1", "ETTh2"], **REDUCED)
        records += everywhere(model, mse=mse, sets=["ETTm1"], budget="reduced", source="synthetic")
    records += [forecast("cosformer", "ETTh1", "S", mse=0.1, **REDUCED)]
    table = build(T8, records)
    (mean,) = [part for part in table.sections[1].blocks if part.title.startswith("ETT MSE")]
    assert mean.title.endswith(
        "reduced budget, slice:a (ETTh1 S, ETTh1 M, ETTh2 S, ETTh2 M); synthetic (ETTm1 S, ETTm1 M)"
    )
    assert list(rows(mean)) == [CONTROL, "LAVO", "softmax attention", "ABC"]  # cosFormer has not all parts
    assert "τ = 1.00 over 3 shared rows (p = 0.33, uncorrected" in mean.lines[0]
    assert not [part for part in table.sections[1].blocks if part.title.startswith("Weather")]
    parts = block(table, "Parts of ETT MSE", 1)
    assert list(rows(parts)) == ["softmax attention", "ABC", "cosFormer", "LAVO", CONTROL, "baseline: last value"]
    assert line(parts, "cosFormer")["ETTh2 S"] == "–"
    keys = [(r["row"], r["column"], r["budget"], r["source"], r["notes"]) for r in table.tidy]
    assert len(set(keys)) == len(keys)
    tidy = [r for r in table.tidy if (r["row"], r["column"], r["budget"]) == ("lavo", "ETT MSE", "reduced")]
    assert [(r["ours_mean"], r["paper_value"], r["verdict"]) for r in tidy] == [("0.4150", "", "")]


def test_data_are_never_mixed_where_a_column_has_both():
    records = everywhere("lavo", mse=0.4, **REDUCED)
    records += everywhere("lavo", mse=0.9, budget="reduced", source="synthetic", sets=["Weather"])
    weather = [part for part in build(T8, records).sections[1].blocks if part.title.startswith("Weather MSE")]
    assert [(part.title.split(", ")[-1], rows(part)["LAVO"]) for part in weather] == [
        ("slice:a data", ["0.410 to 0.420 (2)", "–"]),
        ("synthetic data", ["0.910 to 0.920 (2)", "–"]),
    ]
    titles = [part.title for part in build(T8, records).sections[1].blocks]
    assert len(set(titles)) == len(titles) == 12  # the others once


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
