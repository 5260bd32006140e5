"""`docs/decisions.md`: every number that is cited has its entry, and a quotation of a paper is in its text."""

import re
import subprocess

import pytest

from tests.helpers.quotations import PAGE, PAPERS, ROOT, quotations


def test_each_decision_that_is_cited_is_written():
    page = PAGE.read_text(encoding="utf-8")
    entries = re.findall(r"^\| (D-\d+b?|X\d+) \|", page, re.MULTILINE)
    command = ["git", "grep", "-howE", "D-[0-9]+b?|X[0-9]+", "--", "*.py", "*.yaml", "*.md", "results/paper"]
    cited = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert len(set(cited)) > 100 and not sorted(set(cited) - set(entries))
    assert "public layer" not in page, "whose?"


@pytest.mark.skipif(not PAPERS.is_dir(), reason="the papers' texts are not here")
def test_each_quotation_is_in_the_paper():
    texts = {file.stem: " ".join(file.read_text(encoding="utf-8").split()).lower() for file in PAPERS.glob("*.txt")}
    quoted = list(quotations())
    wrong = [(paper, words) for paper, words in quoted if words.lower() not in texts[paper]]
    assert len(quoted) > 15 and not wrong, wrong
