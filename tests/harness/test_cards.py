"""Pages with cards, and the leaderboard: what a number shows, what stands beside it, and texts that stay text."""

import json
import re
import shlex
from functools import partial

import pytest
from helpers import pages as golden
from helpers import synthetic as made

from harness.commands.report import formats_of
from harness.config.cell import cell_of
from harness.config.compose import compose
from harness.config.table_rows import row_name
from harness.errors import UsageError
from harness.records.collect import frame, load_records
from harness.records.record import read, write
from harness.report.pages import leaderboard, table
from harness.report.pages.answer import answers
from harness.report.pages.evidence import Evidence, TablePage
from harness.report.render import markdown
from harness.report.render.layout import Block, Card, Section, Table, TableEntry
from harness.report.scores import groups, select
from harness.report.site import cards
from harness.report.spec_files import load_table

pytestmark = pytest.mark.usefixtures("rates_searched")
T11, ROOT = golden.T11, golden.ROOT
NUMBER = re.compile(r'<button type="button" class="number" data-card="(\d+)">(.*?)</button>')
HOSTILE = ("<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "</button><b>", "a|b`c`[d](javascript:x)")


@pytest.fixture
def paths(tmp_path):
    return {name: tmp_path / name for name in ("records", "tables", "site")}


def written(paths, page, records=()):
    """(text of the page, its cards, the JSON of all records)."""
    (file,) = cards.write({page.name: partial(markdown.render, page)}, records, {}, paths)
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


def test_a_format_that_is_not_there_is_named():
    assert formats_of(()) == {"md", "tex", "csv", "png"} and formats_of(["html"]) == {"html", "png"}
    with pytest.raises(UsageError, match="format: there is no 'htm': did you mean 'html'"):
        formats_of(["htm"])


def test_a_folder_that_is_a_file_is_one_line(paths):
    paths["site"].write_text("a file")
    with pytest.raises(UsageError, match=r"site: cannot be written \(File exists\); paths.<name>= moves a folder"):
        written(paths, hostile_table("a"))


def test_the_printed_command_runs_the_same_cell():
    """A shell reads settings that need quotes as they were written."""
    records = [read(path) for path in sorted((ROOT / "results/records/probe/needle/probe/reduced").glob("*-s1-*.json"))]
    plain = next(entries for entries in records if not entries["changed"])
    cfg = compose([*cards.command(plain).split(), f"seed={plain['cell']['seed']}"])
    assert cell_of(cfg).id == plain["cell"]["id"]
    changed = made.record("lavo", "lra/text", changed={"model.segments": [None, [16, 32]], "model.x": [1, "a b"]})
    assert shlex.split(cards.command(changed))[-2:] == ["++model.segments=[16,32]", "model.x='a b'"]


TEXT = """
title: all of them
ledger: null
leaderboard: Causal
protocol: skyformer
seeds: [1, 2, 3]
control: no_mixing
reference: vanilla
rows: {softmax: vanilla, nothing: no_mixing, LAVO: lavo, window: local, never: luna}
columns:
  near: {task: lra/listops, ability: reach, metric: acc, unit: "%", decimals: 1, higher_is_better: true}
  far: {task: lra/listops, ability: reach, metric: acc, evaluation: far, unit: "%", decimals: 1, higher_is_better: true}
  text: {task: lra/text, metric: acc, unit: "%", decimals: 1, higher_is_better: true}
  later: {task: lra/image, metric: acc, unit: "%", decimals: 1, higher_is_better: true}
  size: {task: lra/listops, metric: numbers, evaluation: decoding_state, cost: true, unit: numbers,
    decimals: 0, higher_is_better: false}
"""
OF = {"budget": "reduced", "source": "synthetic"}


def evidence_of(tmp_path, text):
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "own.yaml").write_text(text, encoding="utf-8")
    spec, records = load_table("own", tmp_path, golden.PAPER), []
    scores = {"vanilla": [0.9, 0.91, 0.92], "no_mixing": [0.2, 0.21, 0.19], "lavo": [0.7, 0.71, 0.69]}
    for model, values in (scores | {"local": [0.5, 0.51, 0.49]}).items():
        runs = made.seeds(model, "lra/listops", values, **OF)
        for run in runs:
            state = {"status": "done", "metrics": {"numbers": 12288.0}}
            run["evaluations"] = {"far": {"status": "done", "metrics": {"acc": 50.0}}, "decoding_state": state}
            run["parameters"] = {"total": 1234, "attention": 1}
            run["config"]["train"]["optimizer"] = {"lr": 1e-3}
        records += runs
    for model, values in scores.items():
        records += made.seeds(model, "lra/text", values, **OF)
    cells = frame(records)
    results = groups.group_scores(select.select(cells, spec), spec)
    page = table.build_table(spec, results)
    return Evidence({"own": TablePage(page, answers(results), results, (), {}, spec)}, cells)


def test_every_entry_follows_from_the_records_and_what_is_missing_is_a_dash(tmp_path):
    step = "  step: {bench: {what: train, length: 16384, settings: {dim: 64}}, unit: ms, higher_is_better: false}\n"
    (board,) = leaderboard.boards(evidence_of(tmp_path, TEXT + step))
    header = [entry.text for entry in board[1].header]  # one column per ability; the step was not measured
    assert header == ["model", "id", "near, % ↑", "text, % ↑", "size, numbers", "parameters", "learning rate"]
    card = next(row[2].card for row in board[1].rows if row[0].text == "LAVO")
    assert (card.measure, card.by_seed) == ("acc", {1: "70.0", 2: "71.0", 3: "69.0"}) and len(card.cells) == 3
    lines = leaderboard.page(["| found | [why](../../docs/findings.md#why) |"], [board]).splitlines()
    rows = {line.split(" | ")[1]: line.strip("| ").split(" | ") for line in lines if line.startswith("| [")}
    assert list(rows) == ["vanilla", "lavo", "local", "no\\_mixing"], "the control stands last"
    assert rows["lavo"][0] == "[LAVO](../../conf/model/lavo.yaml)" and rows["lavo"][2].startswith("70.0")
    assert rows["lavo"][-3:] == ["12,288", "1,234 to 72,514", "1e-3 (recipe)"]
    assert rows["local"][3] == "–", "no score without a run"
    text = "\n".join(lines)
    assert "No run yet: later." in text and "Models without a run: never." in text
