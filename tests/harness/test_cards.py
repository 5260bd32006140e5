"""Pages with cards: what a number shows, and texts that stay text."""

import json
import re

import pytest
from helpers import pages as golden
from helpers import synthetic as made

from harness.commands import report as verb
from harness.config.cell import cell_of
from harness.config.compose import compose
from harness.config.model_names import row_name
from harness.errors import UsageError
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


def written(paths, records, tables=None, measurements=None):
    """(records as read, text of the page, its cards, the JSON of all records) of LAVO Table 11 or of other tables."""
    for number, entries in enumerate(records):
        write(entries, paths["records"] / f"{number}.json")
    loaded = load_records(paths["records"]) if records else []
    if tables is None:
        tables = [table.build_table(T11, groups.group_scores(select.select(frame(loaded), T11), T11), ())]
    (file,) = cards.write({page.name: cards.page_of(page) for page in tables}, loaded, measurements or {}, paths)
    page = (paths["site"] / "lavo/t11.md").read_text(encoding="utf-8")
    shown = json.loads((paths["site"] / "lavo/t11.json").read_text(encoding="utf-8"))
    return loaded, page, shown, json.loads(file.read_text(encoding="utf-8"))


def test_every_number_shows_its_seeds_metric_and_records(paths):
    loaded, page, shown, records = written(paths, made.example())
    entries_of = {entries["cell"]["id"]: entries for entries in loaded}
    numbers = NUMBER.findall(page)
    assert [int(index) for index, _ in numbers] == list(range(len(shown))) and len(shown) > 10
    for card in shown:
        seeds = {
            str(entries_of[cell]["cell"]["seed"]) for cell in card["cells"] if entries_of[cell]["status"] == "done"
        }
        assert card["name"] and card["cells"] and set(card["by_seed"]) == seeds
    assert {card["measure"] for card in shown} >= {"acc"} and max(len(card["cells"]) for card in shown) == 3
    text, card = next((text, shown[int(index)]) for index, text in numbers if len(shown[int(index)]["by_seed"]) == 3)
    mean = sum(float(value) for value in card["by_seed"].values()) / 3
    assert f"{mean:.2f}" in text, "the card of the number that was pointed at"
    assert set(records["runs"]) == {
        cell for cell, entries in entries_of.items() if entries["cell"]["budget"] != "smoke"
    }
    for cell, run in records["runs"].items():
        assert read(paths["records"] / run["file"])["cell"]["id"] == cell
        assert run["name"] == row_name(run["model"])
    assert {"LAVO", "softmax attention"} <= {run["name"] for run in records["runs"].values()}


def test_a_page_without_its_buttons_is_the_committed_one(paths):
    records = made.example()
    _, page, _, _ = written(paths, records)
    loaded = load_records(paths["records"])
    plain = table.build_table(T11, groups.group_scores(select.select(frame(loaded), T11), T11), ())
    assert NUMBER.sub(r"\2", page) == markdown.render(plain) != page


def hostile_table(text):
    entry = TableEntry(text, (text,), card=Card(text, text, {1: text}, ("0123456789abcdef",)))
    block = Block(text, (TableEntry(text), entry), ((TableEntry(text), entry),), "lr", (text,), (text,))
    return Table("lavo/t11", text, text, (Section(text, (block,), (text,)),), (text,), ((text, text),))


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_text_stays_text(paths, text):
    _, page, (card,), _ = written(paths, [], [hostile_table(text)])
    ((_, shown),) = NUMBER.findall(page)
    assert card["name"] == text and shown == markdown.escape(text)
    assert not re.search(r"<(?!/?(button|sup)\b|!--)", page) and page.count("<button") == page.count("</button>") == 1


def test_a_folder_that_is_a_file_is_one_line(paths):
    paths["site"].write_text("a file")
    with pytest.raises(UsageError, match=r"site: cannot be written \(File exists\); paths.<name>= moves a folder"):
        written(paths, [], [hostile_table("a")])


def test_a_measurement_has_its_setting_and_command(paths):
    point = {"model": "a", "what": "forward", "length": 65536, "status": "ok", "ms": 1.23456, "memory_mb": 0.0}
    measured = {"kind": "bench", "models": {"a": {}}, "points": [point, point | {"length": 128, "status": "oom"}],
                "settings": dict.fromkeys(("pattern", "dim", "heads", "batch", "precision"), "x") | {"layers": None},
                "hardware": {"gpu": "G", "cpu": "C", "threads": 1}, "versions": {"torch": "2"}}  # fmt: skip
    *_, content = written(paths, [], [hostile_table("a")], {"m": measured})
    shown = content["measurements"]
    assert (
        shown["m"]["command"] == "do=bench model=a lengths=65536,128 what=forward"
        and "torch 2" in shown["m"]["setting"]
    )


def test_the_printed_command_runs_the_same_cell():
    records = [read(path) for path in sorted((ROOT / "results/records/probe/needle/probe/reduced").glob("*-s1-*.json"))]
    plain = next(entries for entries in records if not entries["changed"])
    cfg = compose([*cards.command(plain).split(), f"seed={plain['cell']['seed']}"])
    assert cell_of(cfg).id == plain["cell"]["id"]


def test_commands_quote_what_a_shell_would_read():
    entries = made.record("lavo", "lra/text", changed={"model.segments": [None, [16, 32]], "model.x": [1, "a b"]})
    assert cards.command(entries) == (
        "model=lavo task=lra/text protocol=skyformer budget=paper '++model.segments=[16,32]' "
        """'model.x='"'"'a b'"'"''"""
    )


def test_formats():
    assert verb.formats_of(()) == {"md", "tex", "csv", "png"}
    assert verb.formats_of(["md"]) == {"md"} and verb.formats_of(["html"]) == {"html", "png"}
    with pytest.raises(UsageError, match="format: there is no 'htm': did you mean 'html'"):
        verb.formats_of(["htm"])
