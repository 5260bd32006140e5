"""Pages with cards: what a number shows, and texts that stay text."""

import json
import re
import shlex

import pytest
from helpers import pages as golden
from helpers import synthetic as made

from harness.config.cell import cell_of
from harness.config.compose import compose
from harness.config.model_names import row_name
from harness.records.collect import frame, load_records
from harness.records.record import read, write
from harness.report.pages import table
from harness.report.render import markdown
from harness.report.render.layout import Block, Card, Section, Table, TableEntry
from harness.report.scores import groups, select
from harness.report.site import cards

T11, ROOT = golden.T11, golden.ROOT
NUMBER = re.compile(r'<button type="button" class="number" data-card="(\d+)">(.*?)</button>')
HOSTILE = ("<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "</button><b>", "a|b`c`[d](javascript:x)")


@pytest.fixture
def paths(tmp_path):
    return {name: tmp_path / name for name in ("records", "tables", "site")}


def written(paths, page, records=()):
    """(text of the page, its cards, the JSON of all records)."""
    (file,) = cards.write({page.name: cards.page_of(page)}, records, {}, paths)
    text = (paths["site"] / "lavo/t11.md").read_text(encoding="utf-8")
    shown = json.loads((paths["site"] / "lavo/t11.json").read_text(encoding="utf-8"))
    return text, shown, json.loads(file.read_text(encoding="utf-8"))


def test_every_number_shows_its_seeds_metric_and_records(paths):
    for number, entries in enumerate(made.example()):
        write(entries, paths["records"] / f"{number}.json")
    loaded = load_records(paths["records"])
    plain = table.build_table(T11, groups.group_scores(select.select(frame(loaded), T11), T11), ())
    page, shown, records = written(paths, plain, loaded)
    entries_of = {entries["cell"]["id"]: entries for entries in loaded}
    numbers = NUMBER.findall(page)
    assert [int(index) for index, _ in numbers] == list(range(len(shown))) and len(shown) > 10
    for card in shown:
        done = [entries_of[cell]["cell"]["seed"] for cell in card["cells"] if entries_of[cell]["status"] == "done"]
        assert card["name"] and card["cells"] and set(card["by_seed"]) == set(map(str, done))
    assert {card["measure"] for card in shown} >= {"acc"} and max(len(card["cells"]) for card in shown) == 3
    text, card = next((text, shown[int(index)]) for index, text in numbers if len(shown[int(index)]["by_seed"]) == 3)
    mean = sum(float(value) for value in card["by_seed"].values()) / 3
    assert f"{mean:.2f}" in text, "the card of the number that was pointed at"
    above_smoke = {cell for cell, entries in entries_of.items() if entries["cell"]["budget"] != "smoke"}
    assert set(records["runs"]) == above_smoke
    for cell, run in records["runs"].items():
        assert read(paths["records"] / run["file"])["cell"]["id"] == cell and run["name"] == row_name(run["model"])
    assert NUMBER.sub(r"\2", page) == markdown.render(plain) != page, "without its buttons, the committed page"


def hostile_table(text):
    entry = TableEntry(text, (text,), card=Card(text, text, {1: text}, ("0123456789abcdef",)))
    block = Block(text, (TableEntry(text), entry), ((TableEntry(text), entry),), "lr", (text,), (text,))
    return Table("lavo/t11", text, text, (Section(text, (block,), (text,)),), (text,), ((text, text),))


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_text_stays_text(paths, text):
    page, (card,), _ = written(paths, hostile_table(text))
    ((_, shown),) = NUMBER.findall(page)
    assert card["name"] == text and shown == markdown.escape(text)
    assert not re.search(r"<(?!/?(button|sup)\b|!--)", page) and page.count("<button") == page.count("</button>") == 1


def test_the_printed_command_runs_the_same_cell():
    """A shell reads settings that need quotes as they were written."""
    records = [read(path) for path in sorted((ROOT / "results/records/probe/needle/probe/reduced").glob("*-s1-*.json"))]
    plain = next(entries for entries in records if not entries["changed"])
    cfg = compose([*cards.command(plain).split(), f"seed={plain['cell']['seed']}"])
    assert cell_of(cfg).id == plain["cell"]["id"]
    changed = made.record("lavo", "lra/text", changed={"model.segments": [None, [16, 32]], "model.x": [1, "a b"]})
    assert shlex.split(cards.command(changed))[-2:] == ["++model.segments=[16,32]", "model.x='a b'"]
