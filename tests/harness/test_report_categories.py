"""A metric in each category of the test examples, under the column of the metric: LAVO's Table 7."""

from helpers import pages
from helpers.crosses import completion

from harness.report import spec_files

build = pages.build
T7 = spec_files.load_table("lavo/t7", pages.CONF, pages.PAPER)


def cell(model, seed=1, chairs=6.0, boxes=8.0, **kwargs):
    """A cell whose metric is the mean of two categories."""
    record = completion(model, seed, (chairs + boxes) / 2, **kwargs)
    for split in ("test", "val"):
        record["metrics"]["best"][split] |= {"cd_l1/chair": chairs, "cd_l1/a|box": boxes}
    return record


def grids(table, section):
    return [block for block in table.sections[section].blocks if "by category" in block.title]


def lines(grid):
    return [[cell.text for cell in row] for row in (grid.header, *grid.rows)]


def test_each_category_has_a_line_and_each_row_with_a_score_a_column():
    cells = [cell("lavo"), cell("lavo", 2, 6.2, 8.2), cell("vanilla", 1, 7.0), completion("abc", status="oom")]
    table = build(T7, cells)
    (grid,) = grids(table, 0)  # the other two metrics have no categories
    assert grid.title == "CD-L1, chamfer x1000 ↓ · by category · paper budget"
    assert lines(grid) == [
        ["category", "softmax attention", "LAVO"],  # the paper's order
        ["a|box", "8.000 (1)", "8.000 to 8.200 (2)"],
        ["chair", "7.000 (1)", "6.000 to 6.200 (2)"],
    ]
    blocks = table.sections[0].blocks
    assert blocks.index(grid) == 1 and blocks[0].title.startswith("CD-L1")


def test_no_interval_of_a_category_leaves_the_scale():
    cells = [cell("lavo", seed) for seed in (1, 2, 3)]
    for record, percent in zip(cells, (99.0, 100.0, 98.0), strict=True):
        for split in ("test", "val"):
            record["metrics"]["best"][split] |= {"f1/chair": percent}
    page = build(T7, cells)
    (grid,) = (block for block in grids(page, 0) if block.title.startswith("F-Score"))
    assert lines(grid)[1] == ["chair", "99.000 [96.516, 100.000] (3)"]
    (row,) = (row for row in page.tidy if row["column"] == "F-Score@1%/chair")
    assert (row["ours_ci"], row["ours_ci_low"], row["ours_ci_high"]) == ("2.4841", "96.5159", "100.0000")


def test_a_record_without_one_category_has_no_score_in_it():
    broken = cell("vanilla")
    del broken["metrics"]["best"]["test"]["cd_l1/chair"]
    (grid,) = grids(build(T7, [cell("lavo"), broken]), 0)
    assert lines(grid)[2] == ["chair", "no test score", "6.000 (1)"]
