"""What a page says first: few words before its grid and data in place of the published ones."""

import csv
import io

import pytest
from helpers import pages, synthetic
from helpers.pages import RENDER, T11, build

from harness.records.data_cards import DataName, data_name
from harness.report.render import markdown
from harness.report.render.layout import LINES, WORDS, Block, Section, Table

pytestmark = pytest.mark.usefixtures("rates_searched")

REDUCED = {"budget": "reduced", "source": "synthetic"}
REVIEWS = "generated reviews (in place of IMDb reviews)"
LINE = f"Data at the reduced budget: {REVIEWS}."


def rows(task="lra/text", **changes):
    """Two rows of three seeds."""
    records = synthetic.seeds("vanilla", task, [0.70, 0.71, 0.72], **changes)
    return [*records, *synthetic.seeds("no_mixing", task, [0.50, 0.51, 0.53], **changes)]


def test_every_format_names_the_data_in_place_of_the_published_ones():
    page = build(T11, rows(**REDUCED))
    texts = {suffix: " ".join(render(page).split()) for suffix, render in RENDER.items()}
    assert page.lead[0] == LINE and all(LINE in texts[suffix] for suffix in ("md", "tex", "txt"))
    assert f"### Text, accuracy % ↑ · {REVIEWS} · reduced budget, synthetic data" in texts["md"]
    written = [row for row in csv.DictReader(io.StringIO(RENDER["csv"](page))) if row["budget"] == "reduced"]
    assert {row["data"] for row in written} == {REVIEWS}


def test_published_data_and_unlisted_ones_have_no_other_name():
    for changes in ({}, {"budget": "reduced", "source": "slice:unlisted"}):
        page = build(T11, rows(**changes))
        assert page.data == () and "in place of" not in RENDER["md"](page)


def test_another_corpus_of_an_evaluation_has_its_own_name():
    source = "slice:pg19_slice"
    assert data_name("lm/slimpajama", source, "length_2x") == DataName("PG-19 bytes", ("SlimPajama",))
    assert data_name("lm/slimpajama", source, "pile_2x") == DataName("WikiText-2 bytes", ("the Pile",))
    assert data_name("lm/pg19", "full") is None


COMMITTED = sorted((pages.ROOT / "results" / "tables").rglob("*.md"))
WITHOUT_GRID = 150  # words of a page that has no numbers yet
LONG = tuple(f"finding {number} is that {'many words ' * 6}stand here" for number in range(6))
GRID = Section("Measured", (Block("grid", ("model", "score"), (("LAVO", "1"),)),))


def visible(text):
    """The lines of a page that a reader sees."""
    return [line for line in text.splitlines() if line.strip() and not line.startswith("<!--")]


def before_the_grid(text):
    lines = visible(text)
    return lines[: next((number for number, line in enumerate(lines) if line.startswith("|")), len(lines))]


def word_count(lines):
    return sum(len(line.split()) for line in lines)


def test_every_committed_page_shows_numbers_after_few_words():
    for path in COMMITTED:
        text = path.read_text(encoding="utf-8")
        first = before_the_grid(text)
        assert word_count(first) <= (WITHOUT_GRID if first == visible(text) else WORDS), path
        assert first == visible(text) or sum(not line.startswith("#") for line in first) <= LINES, path
    first = before_the_grid((pages.ROOT / "docs" / "findings.md").read_text(encoding="utf-8"))
    assert 1 <= sum(line.startswith("- ") for line in first) <= 10


def table(**content):
    summary = "trained scores: 1 off"
    return Table("a/b", "Title of four words", summary, (GRID,), ("how to read",), (), **content)


def test_the_opening_is_cut_to_the_lines_that_fit_and_the_rest_stands_below():
    page = table(answer=LONG)
    text = markdown.render(page)
    below = text[text.index("## Status") :]
    assert page.lead == LONG[:2] and page.details == LONG[2:]
    assert word_count(before_the_grid(text)) <= WORDS and text.index("| LAVO | 1 |") < text.index(below)
    assert all(text.count(line) == 1 and (line in below) == (line in page.details) for line in LONG)
    assert "- Published numbers: trained scores: 1 off." in below


def test_a_first_line_without_room_is_shown_and_a_shorter_later_one_fills_the_room():
    endless, lines = "word " * WORDS, tuple(f"line {number}" for number in range(LINES + 2))
    assert table(answer=(endless, "short")).lead == (endless,)
    assert table(answer=("short", endless, "last")).lead == ("short", "last")
    assert table(answer=lines).lead == lines[:LINES]


def runs(task="lra/listops", leak=False, **scores):
    """Three seeds of each model at the reduced budget."""
    noise, options = (-0.004, 0.0, 0.004), {"budget": "reduced", "source": "synthetic", "leak": leak}
    order = {model: noise[shift % 3 :] + noise[: shift % 3] for shift, model in enumerate(scores)}
    return [
        entries
        for model, score in scores.items()
        for entries in synthetic.seeds(model, task, [score + change for change in order[model]], **options)
    ]


def test_columns_open_with_counts_a_leak_the_leaders_or_why_they_rank_nothing():
    scores = {"vanilla": 0.5, "lavo": 0.6, "no_mixing": 0.3}
    page = pages.build(pages.T11, [*runs(**scores), *runs("lra/text", leak=True, **scores)])
    assert page.lead[0] == "Reduced budget, synthetic data, test leak in Text: 2 of 2 columns rank rows."
    assert "Text: LAVO (60.00) leads; reference softmax attention 50.00." in page.lead
    page = pages.build(pages.T11, runs(vanilla=0.5, lavo=0.5, no_mixing=0.6))
    assert page.lead[-1].endswith("cannot rank rows, because the control is not clearly behind the reference.")
