"""Columns other than test metrics: an evaluation, a formula; which row a record belongs to."""

import pytest
from helpers import pages
from helpers.synthetic import record as made

from harness.errors import UsageError
from harness.records.collect import frame
from harness.report import spec_files
from harness.report.pages import table
from harness.report.scores import groups, select
from harness.report.spec.expressions import evaluate

CONF, PAPER, RENDER, ROOT = pages.CONF, pages.PAPER, pages.RENDER, pages.ROOT
REDUCED = {"budget": "reduced", "source": "synthetic"}
HEAD = """
title: t
ledger: null
protocol: skyformer
seeds: [1]
gpu_hours: 1
rows: {softmax: vanilla, small: {model: lavo, set: {model.window: 16}}, large: {model: lavo, set: {model.window: 64}}}
"""


@pytest.fixture
def spec_of(tmp_path):
    def load(columns, head=HEAD):
        (tmp_path / "table").mkdir(exist_ok=True)
        (tmp_path / "table" / "own.yaml").write_text(f"{head}columns:\n  {columns}\n", encoding="utf-8")
        return spec_files.load_table("own", tmp_path, PAPER)

    return load


def page(spec, records):
    selected = select.select(frame(records), spec)
    return table.build_table(spec, groups.group_scores(selected, spec))


def grid(page):
    """{row: texts} of the first block."""
    return {row[0].text: [entry.text for entry in row[1:]] for row in page.sections[0].blocks[0].rows}


def lavo(window, seed=1, **kwargs):
    return made("lavo", "lra/text", seed, settings={"window": window}, changed={"model.window": [8, window]}, **kwargs)


def test_a_further_evaluation_is_a_column_and_its_failure_a_value(spec_of):
    spec = spec_of("long: {task: lra/text, metric: acc, evaluation: length_8192, unit: '%', higher_is_better: true}")
    ended = {"status": "done", "message": None, "metrics": {"acc": 41.5}, "n": 10}
    records = [
        lavo(16, evaluations={"length_8192": ended}),
        lavo(64, evaluations={"length_8192": ended | {"status": "oom", "metrics": None}}),
        made("vanilla", "lra/text", status="nan"),
    ]
    assert grid(page(spec, records)) == {"softmax": ["nan"], "small": ["41.50"], "large": ["oom"]}
    assert grid(page(spec, [lavo(16)])) == {"small": ["no test score"]}  # the test score does not stand in for it


def test_a_cell_without_a_number_of_the_formula_hides_no_other(spec_of, capsys):
    spec = spec_of("steps per seed: {task: lra/text, formula: train.max_steps / model.window}")
    records = [made("lavo", "lra/text", settings={"window": window}) for window in (16, None, 0)]
    shown = select.select(frame(records), spec)["skyformer"]["steps per seed"]
    assert shown["score"].dropna().tolist() == [50000 / 16] and len(shown) == 3
    assert grid(page(spec, [lavo(16), made("lavo", "lra/text", 2, settings={"window": None})]))["small"] == ["3,125"]
    assert "has no number 'model.window'" in (said := capsys.readouterr().err) and said.count("left out: ") == 3


@pytest.mark.parametrize(
    "formula, value",
    [("2 * a.b ** 2 - 1", 17.0), ("log2(a.c) // 2 + max(a.b, 1)", 4.0), ("-a.b % 2", 1.0)],
)
def test_formula(formula, value):
    assert evaluate(formula, {"a": {"b": 3, "c": 4.0}}) == value


@pytest.mark.parametrize(
    "formula, says",
    [
        ("a.d", "the config has no number 'a.d': did you mean 'a.c' or 'a.b'"),
        ("a.name", "the config has no number 'a.name'"),
        ("__import__('os')", "is no arithmetic"),
        ("a.b.__class__", "the config has no number"),
        ("[a.b][0]", "is no arithmetic"),
        ("9 ** 99", "an exponent over"),
        ("a.b / 0", "division by zero"),
        ("2 +", "invalid syntax"),
    ],
)
def test_nothing_but_arithmetic_is_evaluated(formula, says):
    with pytest.raises(UsageError) as refused:
        evaluate(formula, {"a": {"b": 3, "c": 4.0, "name": "x"}})
    assert says in str(refused.value) and formula in str(refused.value)


def test_a_list_is_one_setting(spec_of):
    """A list value has commas of its own; a row may set it, and any other list is shown in full."""
    rows = "rows: {long: {model: longnet, set: {model.segments: [64, 128]}}, plain: longnet}\n"
    spec = spec_of("parameters: {task: lra/text, field: parameters}", HEAD.partition("rows:")[0] + rows)

    def longnet(segments, **more):
        changed = {"model.segments": [[32], segments]} | more
        return made("longnet", "lra/text", settings={"segments": segments, "n": len(more)}, changed=changed)

    records = [longnet([64, 128]), longnet([64, 256]), longnet([64, 128], **{"model.subln": [False, True]})]
    assert list(grid(page(spec, records))) == [
        "long", "plain (model.segments=[64, 128], model.subln=true)", "plain (model.segments=[64, 256])"
    ]  # fmt: skip
    assert frame(records[:1])["changed"][0] == (("model.segments", "[64, 128]"),)


def test_a_setting_of_another_column_that_the_recipe_has_anyway_is_no_change(spec_of):
    """A cell with only part of a column's settings, here b, does not belong to the column."""
    text_column = "task: lra/text, metric: acc, column: null, unit: accuracy, higher_is_better: true"
    spec = spec_of(f"plain: {{{text_column}}}\n  both: {{{text_column}, set: {{task.a: 1, task.b: 2}}}}")
    records = [made("vanilla", seed=1, **REDUCED), made("vanilla", seed=2, changed={"task.a": [0, 1]}, **REDUCED)]
    for entries, a in zip(records, (0, 1), strict=True):
        entries["config"]["task"] |= {"a": a, "b": 2}
    selected = select.select(frame(records), spec)["skyformer"]
    rows = {
        name: list(zip(cells["seed"], cells["row"], cells["setting"], strict=True)) for name, cells in selected.items()
    }
    assert rows == {"plain": [(1, "softmax", "")], "both": [(2, "softmax", "")]}


def test_a_row_s_setting_may_equal_the_recipe_s(spec_of):
    """A reduced recipe may already have a row's value; settings that the row does not name are shown all the same."""
    rows = "rows: {plain: longnet, wide: {model: longnet, set: {model.segments: 64, model.n: 2}}}\n"
    spec = spec_of("parameters: {task: lra/text, field: parameters}", HEAD.partition("rows:")[0] + rows)

    def longnet(n, changed):
        return made("longnet", "lra/text", settings={"segments": 64, "n": n}, changed=changed)

    wide = {"model.n": [1, 2]}  # segments are the recipe's
    records = [longnet(1, {}), longnet(2, wide), longnet(3, {"model.n": [1, 3]})]
    assert set(grid(page(spec, records))) == {"plain", "wide", "plain (model.n=3)"}


def test_rows_of_another_table_are_left_to_it(spec_of, tmp_path):
    """A model in neither table is shown in both: it may be the reader's own."""
    head, columns = HEAD.partition("rows:")[0], "parameters: {task: lra/text, field: parameters}"
    wide = {"model.n": [1, 2]}
    records = [made("lavo", "lra/text"), made("abc", "lra/text"), made("mine", "lra/text")]
    records += [made("abc", "lra/text", settings={"n": 2}, changed=wide)]
    other = spec_of(columns, f"{head}rows: {{ABC: abc}}\n")
    for named, shown in (((), {"LAVO", "ABC", "ABC (model.n=2)"}), ((other,), {"LAVO", "ABC (model.n=2)"})):
        spec = spec_of(columns, f"{head}rows: {{LAVO: lavo}}\n").model_copy(update={"elsewhere": named})
        assert set(grid(page(spec, records))) == {*shown, "mine"}, "a table of ours, which no paper has"


def test_an_ablation_has_its_rows_alone(spec_of):
    """Otherwise Table 9 would compare LAVO's parts with all methods of Table 6, which has the same task."""
    head, columns = HEAD.partition("rows:")[0], "parameters: {task: lra/text, field: parameters}"
    other = made("lavo", "lra/text", settings={"bases": 8}, changed={"model.bases": [64, 8]})
    records = [made("lavo", "lra/text"), made("abc", "lra/text"), other]
    rows = {only: spec_of(columns, f"{head}{only}rows: {{LAVO: lavo}}\n") for only in ("", "only_rows: true\n")}
    shown = [list(grid(page(spec, records))) for spec in rows.values()]
    assert shown == [["LAVO", "LAVO (model.bases=8)", "ABC"], ["LAVO"]]
