"""How much English the report has: the sentences in its code, and the words outside tables on the committed pages."""

import ast
import re

from helpers.pages import ROOT

SENTENCES = 182  # string literals of four or more words; lower it with every one that goes
TEMPLATES = 40  # of reasons and signs, all in one file
VERDICTS = ("scores/comparison.py", "scores/judge.py", "scores/tuning.py", "scores/places.py", "pages/notes.py")
WORDS = 25_000  # outside tables, on all result pages


def sentences(path):
    """The string literals of a module with four or more words, without docstrings and errors raised to the user."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    left_out = {id(part) for node in ast.walk(tree) if isinstance(node, ast.Raise) for part in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and isinstance(node.body[0], ast.Expr):
            left_out.add(id(node.body[0].value))
        if isinstance(node, ast.JoinedStr):
            left_out |= {id(part) for part in node.values}
    for node in ast.walk(tree):
        parts = node.values if isinstance(node, ast.JoinedStr) else [node]
        texts = [part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)]
        if id(node) not in left_out and len(re.findall(r"[A-Za-z]{2,}", " ".join(texts))) >= 4:
            yield f"{path.name}:{node.lineno}: {' .. '.join(texts)}"


def test_the_report_has_no_more_sentences_than_before():
    found = [text for path in sorted((ROOT / "harness/report").rglob("*.py")) for text in sentences(path)]
    assert len(found) <= SENTENCES, "\n".join(found)


def test_reasons_and_signs_have_their_wording_in_one_file():
    wording, *others = ((ROOT / "harness/report" / name) for name in ("render/wording.py", *VERDICTS))
    assert 20 < len([*ast.parse(wording.read_text(encoding="utf-8")).body]) <= TEMPLATES
    assert [text for path in others for text in sentences(path)] == []


def test_result_pages_have_few_words_outside_their_tables():
    pages = (ROOT / "results/tables").rglob("*.md")
    lines = [line for page in pages for line in page.read_text(encoding="utf-8").splitlines()]
    shown = [line for line in lines if not line.startswith(("|", "<!--"))]
    assert sum(len(line.split()) for line in shown) <= WORDS
