"""Signs in a grid are explained on the page, where they stand or in how to read it; others are not mentioned."""

import pytest
from helpers import pages
from helpers.synthetic import example, seeds

from harness.report.pages.notes import SIGNS, signs_line
from harness.report.render.layout import TableEntry

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
