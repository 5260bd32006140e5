"""The ledger: 1,083 published numbers in 35 tables, checks that would notice a slip, and mistakes in `audit.yaml`."""

import math
import re
import shutil
from pathlib import Path

import pytest
from helpers.pages import PAPER, ROOT

from harness.errors import UsageError
from harness.records import ledger
from harness.report.spec import audit
from tests.helpers import ledger as ledger_checks


@pytest.fixture
def copied(tmp_path):
    return Path(shutil.copytree(PAPER, tmp_path / "paper"))


def edit(root, name, old, new):
    path = root / name
    text = path.read_text(encoding="utf-8")
    assert text.count(old) >= 1
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def test_the_ledger_is_sound():
    assert ledger_checks.validate(PAPER) == []


def test_counts():
    counts = ledger.tables(PAPER)
    assert len(counts) == 35 and sum(counts.values()) == 1083
    assert {name: len(ledger_checks.load(name, PAPER)) for name in counts} == counts


def test_a_table_as_a_frame():
    frame = ledger_checks.load("lavo_table11", PAPER)
    assert list(frame.columns) == [*ledger.COLUMNS, "number"]
    cell = frame[(frame["row"] == "Performer") & (frame["column"] == "AVG")].iloc[0]
    assert (cell["value"], cell["number"], cell["unit"]) == ("58.00", 58.0, "accuracy %")
    assert cell["higher_is_better"] is True or bool(cell["higher_is_better"])


def test_text_and_dashes_have_no_number():
    complexity = ledger_checks.load("latte_table08", PAPER).iloc[0]
    assert complexity["value"] == "O(TLD)" and math.isnan(complexity["number"])
    dash = ledger_checks.load("lavo_table02", PAPER).iloc[0]
    assert dash["value"] == "" and math.isnan(dash["number"])


def test_direction_is_typed():
    assert {cell["higher_is_better"] for cell in ledger.entries("lavo_table02", PAPER)} == {True, False}
    assert {cell["higher_is_better"] for cell in ledger.entries("lavo_table01", PAPER)} == {None}


def test_unknown_table_names_the_nearest():
    with pytest.raises(UsageError, match=r"no published table 'lavo_table12'.*lavo_table11"):
        ledger_checks.load("lavo_table12", PAPER)


@pytest.mark.parametrize(
    "name, old, new, says",
    [
        ("lavo_table11.csv", "LAVO,AVG,,59.74", "LAVO,AVG,,59.75", "LAVO: AVG printed 59.75, recomputes to 59.742"),
        ("lavo_table11.csv", "vanilla,Text,,61.95", "vanilla,Text,,62.95", "vanilla: AVG printed 57.37"),
        ("luna_table01.csv", "Avg (w/o rtl),,53.62", "Avg (w/o rtl),,53.63", "Avg (w/o rtl) printed 53.63"),
        ("luna_table03.csv", "[CLS],60.05", "[CLS],60.06", "Luna-16: Avg. printed 60.06"),
        ("luna_table01.csv", "Avg,,51.39", "Avg,,51.48", "Sinkhorn Trans.: Avg is an exception, but 51.48 is the mean"),
        ("lavo_table11.csv", "LAVO,Image,,40.55", "LAVO,Image,,", "LAVO: AVG printed, but Image is not"),
        ("lavo_table11.csv", "vanilla,ListOps", "vanilla,Text", "twice: ('vanilla', 'Text', '')"),
        ("lavo_table11.csv", "lavo,11,", "lavo,12,", "says it is of lavo table 12"),
        ("lavo_table11.csv", "accuracy %,true", "accuracy %,yes", "higher_is_better is 'yes'"),
        ("lavo_table11.csv", "paper,table,row", "paper,table,name", "columns are"),
        ("lavo_table11.csv", "lavo,11,vanilla,Text,,61.95", "lavo,11,vanilla", "fields"),
        ("INDEX.csv", "lavo_table11.csv,lavo,11,60", "lavo_table11.csv,lavo,11,61", "60 entries, INDEX.csv says 61"),
        ("INDEX.csv", "lavo_table11.csv", "lavo_table12.csv", "lavo_table12: in INDEX.csv, no file"),
        ("INDEX.csv", "lavo_table11.csv,lavo,11,60\n", "", "lavo_table11: not in INDEX.csv"),
    ],
)
def test_a_slip_is_noticed(copied, name, old, new, says):
    edit(copied, name, old, new)
    problems = ledger_checks.validate(copied)
    assert any(says in problem for problem in problems), problems


def test_every_declared_average_is_checked(copied):
    """A declaration that matches no cell would check nothing."""
    import yaml

    declared = yaml.safe_load((PAPER / "averages.yaml").read_text(encoding="utf-8"))
    checked = 0
    for name, averages in declared["averages"].items():
        columns = [cell["column"] for cell in ledger.entries(name, PAPER)]
        for average, parts in averages.items():
            assert {average, *parts} <= set(columns)
            checked += columns.count(average)
    assert checked == 10 + 15 + 15 + 6
    for name, exceptions in declared["exceptions"].items():
        keys = {(cell["row"], cell["column"], cell["condition"]) for cell in ledger.entries(name, PAPER)}
        assert {tuple(exception[:3]) for exception in exceptions} <= keys


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("papers: {}\nentries: [{id: X1, where: a, text: b, tables: [c]}]", r"tables\[0\]: .*'c' is not a table"),
        ("papers: {}\nentries: [{id: Y, where: a, text: b, tables: []}]", "'Y' is not X and a number"),
        ("", "a mapping expected"),
        ("papers: {}\nentries:\n" + 2 * "- {id: X1, where: a, text: b, tables: []}\n", "X1 stands there twice"),
        ("a: [", "no yaml"),
    ],
)
def test_a_wrong_audit_is_one_line(tmp_path, text, says):
    (tmp_path / "audit.yaml").write_text(text)
    with pytest.raises(UsageError, match=says) as error:
        audit.load(tmp_path)
    assert "\n" not in str(error.value)


def test_the_audit_is_complete():
    register = audit.load(PAPER)
    ids = [entry.id for entry in register.entries]
    assert ids[:62] == [f"X{number}" for number in range(1, 63)]
    assert list(register.papers) == ["lavo", "latte", "luna", "longnet", "llp"]
    pages = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "results/tables").rglob("*.md"))
    cited = set(re.findall(r"<sup>(X\d+)</sup>", pages))
    assert len(cited) > 30 and cited <= set(ids), "each footnote is a published error"
