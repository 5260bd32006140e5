"""Mistakes in `audit.yaml`, the audit of the published numbers beside the ledger."""

import re

import pytest
from helpers.pages import PAPER, ROOT

from harness.errors import UsageError
from harness.report.spec import audit


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
