"""Tables of hyper-parameters: the printed values, the recipes' values, the names of differences, and the verb."""

import re
from pathlib import Path

import pytest

from harness.config import sweep
from harness.config.compose import compose
from harness.errors import UsageError
from harness.records import ledger
from harness.report import spec_files
from harness.report.pages.settings import compared_settings, meaning, page
from harness.report.render import latex, markdown
from harness.report.spec.settings import Source

ROOT = Path(__file__).resolve().parents[2]
CONF, PAPER = ROOT / "conf", ROOT / "results" / "paper"

# every setting in which our recipes differ from the print; all others are equal
DIFFERENT = {
    "lavo/t1": {
        ("TTS/LJSpeech", "attention_heads"): "4",
        ("LSTF/Weather", "iteration"): "5",
        ("PCC/PCN", "warmup_steps"): "0",
        ("PCC/PCN", "adam_betas"): "(0.9, 0.999)",
        ("PCC/PCN", "clip_norm"): "10",
        ("PCC/PCN", "hidden_size"): "384",
        ("PCC/PCN", "ffn_hidden_size"): "768",
        ("PCC/PCN", "decoder_layers"): "8",
        ("Summ/Multi-News", "landmarks_ABC_LongShort_LARA"): "abc 64, longshort 16, lara 64",
    },
    "latte/t5": {
        ("OpenWebText", "hidden_dim"): "768",
        ("Figure 5", "heads"): "latte_rglru 1, latte_rglru_swa 8",
        **{(row, "tokenizer"): "gpt2" for row in ("OpenWebText", "Figure 5", "Figure 6")},
    },
    "latte/t6": {},
    "latte/t7": {(row, "weight_decay"): "0.01" for row in ("Text", "Image", "Pathfinder")},
    "llp/t7": {},
}
NOT_HERE = {"lavo/t1": 7, "latte/t5": 3, "latte/t6": 0, "latte/t7": 0, "llp/t7": 0}

LEDGER = """paper,table,row,column,condition,value,unit,higher_is_better,note
own,1,A | <b>,rate,,5e-4,,,
own,1,A | <b>,runs,,4,,,
own,1,B,rate,,,,,
own,1,B,runs,,3,,,
"""
TABLE = """# Own
kind: settings
title: Own
paper: own
ledger: own_table01
rows:
  "A | <b>": {task: lra/text, protocol: google, model: vanilla}
  B: {task: lra/text, protocol: google, model: vanilla}
columns:
  rate: {absent: no rate}
  runs: {seeds_of: latte/t1}
footnotes: []
"""


@pytest.fixture
def load_changed(tmp_path):
    """Returns a function that writes the table with one replacement and loads it."""
    (tmp_path / "table").mkdir()
    (tmp_path / "own_table01.csv").write_text(LEDGER, encoding="utf-8")

    def load(old="", new=""):
        assert not old or TABLE.count(old) == 1
        (tmp_path / "table" / "own.yaml").write_text(TABLE.replace(old, new) if old else TABLE, encoding="utf-8")
        return spec_files.load_table("own", tmp_path, tmp_path)

    return load


@pytest.mark.parametrize(("printed", "means"), [("2^17", 131_072.0), ("9^99999999", "9^99999999")])
def test_a_printed_power_is_a_number_within_bounds(printed, means):
    assert meaning(printed, Source(key="x")) == means


@pytest.mark.parametrize("name", DIFFERENT)
def test_our_recipes_are_as_printed_except_for_the_listed_settings(name):
    table = spec_files.load_table(name, CONF, PAPER)
    settings = compared_settings(table)
    printed = [entry for entry in ledger.entries(table.ledger, PAPER) if entry["value"]]
    assert [(setting.row, setting.column) for setting in settings] and len(settings) == len(printed)
    assert {(e.row, e.column): e.ours.text for e in settings if e.verdict == "differs"} == DIFFERENT[name]
    assert sum(setting.verdict == "not here" for setting in settings) == NOT_HERE[name]
    assert {setting.verdict for setting in settings} <= {"same", "differs", "not here", "in words"}, (
        "nothing is unexplained"
    )
    made = page(table)
    assert [row["paper_value"] for row in made.tidy] == [setting.text for setting in settings]
    assert all(
        str(ROOT) not in render(made) and "pretrained/" not in render(made)
        for render in (markdown.render, latex.render)
    )


def test_a_design_in_words_names_a_class_and_a_test_that_are_there():
    table = spec_files.load_table("llp/t7", CONF, PAPER)
    for row in table.rows.values():
        file, name = re.search(r"\((tests/\S+\.py)::(\w+)\)", row.columns["attention_design"].text).groups()
        assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8")
    classes = [setting.ours.text for setting in compared_settings(table)]
    assert classes[0] == "models.backbones.perceiver_ar.PerceiverAR" and classes[-1] == "models.attention.llp.LLP"


def test_a_difference_without_a_footnote_is_marked(load_changed):
    verdicts = {(setting.row, setting.column): setting.verdict for setting in compared_settings(load_changed())}
    assert verdicts == {
        ("A | <b>", "rate"): "not here",
        ("A | <b>", "runs"): "differs, unexplained",
        ("B", "runs"): "same",
    }
    answer = page(load_changed()).answer
    assert answer[0] == "Printed settings beside ours: same: 1, differs, unexplained: 1, not here: 1."
    assert "Unexplained, A | <b>: runs 4, ours 3." in answer
    explained = load_changed("footnotes: []", 'footnotes: [{id: a, text: t, rows: ["A | <b>"], columns: [runs]}]')
    assert [setting.verdict for setting in compared_settings(explained)] == ["not here", "differs", "same"]
    other_row = load_changed("footnotes: []", "footnotes: [{id: a, text: t, rows: [B], columns: [runs]}]")
    assert [setting.verdict for setting in compared_settings(other_row)] == ["not here", "differs, unexplained", "same"]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("kind: settings", "kind: setings", "kind: there is no 'setings': did you mean 'settings'"),
        ("{absent: no rate}", "{absent: no rate, formula: 1 + 1}", "columns.rate: one of key, formula, seeds_of, each"),
        ("  runs: {seeds_of: latte/t1}\n", "", "own_table01.csv: columns: there is no 'runs'"),
        ("  B: {task", "  C: {task", "rows: there is no 'C'"),
    ],
)
def test_a_mistake_in_the_yaml_is_named(load_changed, old, new, says):
    with pytest.raises(UsageError) as refused:
        load_changed(old, new)
    assert "own.yaml" in str(refused.value) and says in str(refused.value) and "\n" not in str(refused.value)


def test_a_key_that_the_recipe_lacks_is_named(load_changed):
    table = load_changed("{absent: no rate}", "{key: train.optimizer.lrate}")
    says = r"own.yaml: rows.A \| <b>, rate: .* no key 'train.optimizer.lrate': did you mean"
    with pytest.raises(UsageError, match=says) as e, spec_files.named_errors("table", "own", CONF):
        page(table)
    assert "\n" not in str(e.value)
    table = load_changed("{absent: no rate}", "{formula: train.batch_size * train.nothing}")
    with pytest.raises(UsageError, match=r"the config has no number 'train.nothing'"):
        page(table)


def test_a_table_without_cells_has_nothing_to_run(monkeypatch):
    monkeypatch.setattr(sweep, "names_in", lambda group: ["latte/t6", "all", "lavo/t9"])
    typed = ["table=all", "seed=1", "model=lavo"]
    monkeypatch.setattr(sweep, "runnable_cells", lambda table, *rest: iter([]) if "LAVO" in table.title else 1 / 0)
    with pytest.raises(UsageError, match="has no cell that can run"):
        sweep.expand(compose(typed), typed)
