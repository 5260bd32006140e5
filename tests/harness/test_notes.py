"""The notes below a block: one on simple predictors and one on thresholds, for any number of columns."""

import numpy as np
import pytest
from helpers import pages
from helpers.synthetic import example, seeds

from harness.report.pages import notes
from harness.report.pages.answer import SHOWN_ROWS
from harness.report.pages.notes import SIGNS, signs_line
from harness.report.render.layout import TableEntry
from harness.report.render.words import listed
from harness.report.scores.comparison import Comparison
from harness.report.scores.groups import Group
from harness.report.scores.scores import Score
from harness.report.spec.table import ResolvedColumn

SEEDS = (1, 2, 3)
FITS = {
    "baseline: 5-gram": {"saw": "819,200 bytes", "seconds": 0.737, "val": {"ppl": 4.9}},
    "baseline: 6-gram": {"saw": "819,200 bytes", "seconds": 0.732, "val": {"ppl": 4.8}},
    "baseline: unigram": {"saw": "", "seconds": 0.01, "val": {"ppl": 24.0}},
}


def score(row, value):
    return Score(row, "", dict.fromkeys(SEEDS, value), {})


def group(column, below, strongest="baseline: 6-gram", fits=FITS, runs=None):
    """Rows at 5.6, 10.9 and 12.2 of a perplexity; `below`: row -> the n-grams that are better by a test."""
    baselines = tuple(score(f"baseline: {name}", value) for name, value in (("6-gram", 4.57), ("5-gram", 4.6)))
    rows = tuple(score(row, value) for row, value in (("Mamba", 5.6), ("LLP", 10.9), ("control", 12.2)))
    names = {(row, ""): tuple(f"baseline: {name}" for name in predictors) for row, predictors in below.items()}
    return Group(
        column=column,
        budget="reduced",
        data="slice data",
        comparable=False,
        resolved=ResolvedColumn(column, column, "ppl", 2, False, (), True),
        scores=rows,
        comparison=Comparison(below=names, runs=runs),
        baselines=baselines,
        fits=fits,
        strongest=next((baseline for baseline in baselines if baseline.row == strongest), None),
    )


def test_one_note_names_the_strongest_predictor_and_the_rows_below_it():
    both = ("6-gram", "5-gram")
    shown = group("PPL", {"Mamba": ("6-gram",), "LLP": both, "control": both})
    assert notes.below_notes([shown]) == ["† Below the strongest simple predictor: all 3 rows (6-gram, 4.57)."]
    some = group("PPL", {"LLP": both, "control": ("5-gram",)})
    (note,) = notes.below_notes([some])
    assert note == "† Below the strongest simple predictor: LLP; control below 5-gram (6-gram, 4.57)."
    assert notes.below_notes([group("PPL", {})]) == []


def test_columns_with_the_same_rows_below_share_a_note():
    alike = [group(column, {"control": ("6-gram",)}) for column in ("N", "2 N")]
    other = group("4 N", {"LLP": ("5-gram",), "control": ("5-gram",)}, strongest="baseline: 5-gram")
    assert notes.below_notes([*alike, other]) == [
        "† Below the strongest simple predictor: control in N and 2 N (6-gram); LLP and control in 4 N (5-gram)."
    ]


@pytest.mark.parametrize(("count", "text"), [(1, "0"), (4, "0, 1, 2 and 3"), (5, "0, 1, 2 and 2 more")])
def test_a_sentence_names_at_most_four_rows(count, text):
    names = [str(number) for number in np.arange(count)]
    assert listed(names, SHOWN_ROWS) == text
    assert "more" not in listed(names)


# a sign in an entry of a grid -> what its explanation begins with
EXPLAINED = {
    "±": "± is the half width",
    "†": "†",
    " · ?": "?",
    "*": "*: the learning rate is at the end",
    "§": "§: the recipe's learning rate is better",
    "‡": "‡: at the floor",
    "not run (": "Not run: ",
    "oom": "oom, nan",
}


def grids_and_text(records):
    """The entries of all grids of LAVO Table 11, and the sentences around them."""
    page = pages.build(pages.T11, records)
    blocks = [block for section in page.sections for block in section.blocks]
    entries = [entry.text for block in blocks for row in block.rows for entry in row[1:]]
    return entries, [*(line for block in blocks for line in block.lines), *page.caption]


@pytest.mark.parametrize("records", [example(), seeds("lavo", "lra/text", [0.6, 0.61, 0.62]), []], ids=range(3))
def test_each_sign_of_a_page_is_explained_and_no_other(records):
    entries, sentences = grids_and_text(records)
    for sign, start in EXPLAINED.items():
        stands = any(sign in text for text in entries)
        explained = any(start in sentence for sentence in sentences)
        assert explained or not stands, sign
        if sign in ("†", "not run ("):
            assert stands or not explained, sign


def test_the_line_below_a_short_grid_names_the_signs_that_stand_in_it():
    def said(*texts):
        return signs_line([(TableEntry("LAVO † · ?"), *map(TableEntry, texts))])

    assert said("20.0") == [], "the name of a row is none of its signs"
    assert said("20.0 · 1") == [f"Signs: {SIGNS[' · ']}."]
    (line,) = said("20.0 · ? †", "–", "50.0 [test leak]", "20.0 *§‡")
    assert [meaning for meaning in SIGNS.values() if meaning in line] == [
        meaning for sign, meaning in SIGNS.items() if sign != "(recipe)"
    ]
