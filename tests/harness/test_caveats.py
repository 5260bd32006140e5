"""What a page says of all its runs: data in place of the published ones, and the learning rate that its rows share."""

import csv
import io

import pytest
from helpers import pages, synthetic
from helpers.pages import RENDER, T11, build

from harness.records.collect import frame
from harness.records.data_cards import DataName, data_name
from harness.report import spec_files
from harness.report.pages import caveats
from harness.report.scores import groups, select

pytestmark = pytest.mark.usefixtures("rates_searched")

REDUCED = {"budget": "reduced", "source": "synthetic"}
REVIEWS = "generated reviews (in place of IMDb reviews)"
LINE = f"Data at the reduced budget: {REVIEWS}."
OWN = """
title: ours
ledger: null
protocol: skyformer
control: no_mixing
reference: vanilla
seeds: [1, 2, 3]
rows: {softmax: vanilla, control: no_mixing}
columns:
  Text: {task: lra/text, <<: &acc {metric: acc, unit: "%", higher_is_better: true}}
  generated silhouettes: {task: lra/image, <<: *acc}
  ListOps: {task: lra/listops, <<: *acc}
"""


def runs(model, task, scores, rate=None, **changes):
    records = synthetic.seeds(model, task, scores, **changes)
    for record in records if rate is not None else ():
        record["config"]["train"]["optimizer"] = {"lr": rate}
        record["cell"]["id"] = synthetic.identity(record["config"])
    return records


def rows(task="lra/text", rates=(None, None), **changes):
    """Two rows of three seeds, with their learning rates."""
    first, second = rates
    return [
        *runs("vanilla", task, [0.70, 0.71, 0.72], first, **changes),
        *runs("no_mixing", task, [0.50, 0.51, 0.53], second, **changes),
    ]


def results_of(spec, records):
    return groups.group_scores(select.select(frame(records), spec), spec)


@pytest.fixture
def own(tmp_path):
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "own.yaml").write_text(OWN)
    return spec_files.load_table("own", tmp_path, pages.PAPER)


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


def test_different_data_are_named_in_the_notes_and_each_column_says_its_own(own):
    records = [*rows(**REDUCED), *rows("lra/image", **REDUCED), *rows("lra/listops", **REDUCED)]
    page = build(own, records)
    assert page.data == () and page.caption[0] == (
        f"Data at the reduced budget: {REVIEWS}; generated silhouettes (in place of CIFAR-10); generated expressions."
    )
    (block,) = page.sections[0].blocks
    assert [entry.text for entry in block.header] == [
        "model",
        "Text, % ↑ (generated reviews)",
        "generated silhouettes, % ↑",  # the column is named after its data
        "ListOps, % ↑ (generated expressions)",
    ]


def test_another_corpus_of_an_evaluation_has_its_own_name():
    source = "slice:pg19_slice"
    assert data_name("lm/slimpajama", source) == DataName("PG-19 bytes", ("SlimPajama",))
    assert data_name("lm/slimpajama", source, "length_2x") == DataName("PG-19 bytes", ("SlimPajama",))
    assert data_name("lm/slimpajama", source, "pile_2x") == DataName("WikiText-2 bytes", ("the Pile",))
    assert data_name("lm/slimpajama", source, "tiny_stories_1x") == DataName("a page of TinyStories")
    assert data_name("lm/pg19", source) == DataName("PG-19 bytes") and data_name("lm/pg19", "full") is None
    assert data_name("mine/task", "synthetic") is None


def rate_lines(records):
    return caveats.rate_lines(results_of(T11, records))


def test_rows_with_one_learning_rate_say_so():
    assert rate_lines(rows("lra/listops", rates=(2.5e-4, 2.5e-4), **REDUCED)) == [
        "Reduced budget: all rows share one learning rate (2.5e-4), which was chosen on softmax attention; "
        "another rate may change their order."
    ]
    text = rows(rates=(1e-3, 1e-3), **REDUCED)
    pathfinder = rows("lra/pathfinder", rates=(1e-3, 2e-3), **REDUCED)
    (line,) = rate_lines([*text, *rows("lra/listops", rates=(5e-4, 5e-4), **REDUCED), *pathfinder])
    assert "in Text and ListOps, all rows of a column share one learning rate (1e-3 in Text; 5e-4 in ListOps)" in line


def test_rows_with_several_rates_or_unknown_ones_do_not():
    assert rate_lines(rows(rates=(1e-3, 2e-3), **REDUCED)) == []
    assert rate_lines(rows(rates=(1e-3, None), **REDUCED)) == []
    assert rate_lines(rows(rates=(1e-3, 1e-3))) == [], "the rates of the paper's recipes are published"
    assert rate_lines(runs("vanilla", "lra/text", [0.7, 0.71], 1e-3, **REDUCED)) == [], "a single row has no order"
    other = runs("lavo", "lra/text", [0.6, 0.6], 5e-3, changed={"train.optimizer.lr": [1e-3, 5e-3]}, **REDUCED)
    assert len(rate_lines([*rows(rates=(1e-3, 1e-3), **REDUCED), *other])) == 1, "not of the recipe"
