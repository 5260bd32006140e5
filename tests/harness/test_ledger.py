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


def test_the_ledger_is_sound():
    assert ledger_checks.validate(PAPER) == []
    counts = ledger_checks.tables(PAPER)
    assert len(counts) == 35 and sum(counts.values()) == 1083


def test_entries_are_typed():
    cells = ledger.entries("lavo_table11", PAPER)
    cell = next(cell for cell in cells if (cell["row"], cell["column"]) == ("Performer", "AVG"))
    assert (cell["value"], cell["number"], cell["unit"]) == ("58.00", 58.0, "accuracy %")
    assert cell["higher_is_better"] is True
    text = ledger.entries("latte_table08", PAPER)[0]
    assert text["value"] == "O(TLD)" and math.isnan(text["number"]), "text and dashes have no number"


def test_unknown_table_names_the_nearest():
    with pytest.raises(UsageError, match=r"no published table 'lavo_table12'.*lavo_table11"):
        ledger.entries("lavo_table12", PAPER)


def test_a_slip_is_noticed(tmp_path):
    copied = Path(shutil.copytree(PAPER, tmp_path / "paper"))
    for name, old, new, says in (
        ("lavo_table11", "LAVO,AVG,,59.74", "LAVO,AVG,,59.75", "LAVO: AVG printed 59.75, recomputes to 59.742"),
        ("luna_table01", "Avg,,51.39", "Avg,,51.48", "Sinkhorn Trans.: Avg is an exception, but 51.48 is the mean"),
        ("lavo_table02", "lavo,2,", "lavo,3,", "says it is of lavo table 3"),
        ("INDEX", "lavo_table10.csv,lavo,10,", "lavo_table10.csv,lavo,10,1", "entries, INDEX.csv says 1"),
    ):
        path = copied / f"{name}.csv"
        path.write_text(path.read_text(encoding="utf-8").replace(old, new, 1), encoding="utf-8")
        assert any(says in problem for problem in ledger_checks.validate(copied)), says


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
