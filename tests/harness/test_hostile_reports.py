"""Whole reports of valid records whose free texts are hostile: markup, formulas, commands and paths stay text."""

import copy
import csv
import itertools
import re
from pathlib import Path

import pytest
from helpers import latex_syntax, pages
from helpers.synthetic import example
from omegaconf import OmegaConf

from harness.commands import report
from harness.config.cell import identity
from harness.records import evidence, record
from harness.records.collect import frame, load_records

TEXTS = (
    "<script>alert(1)</script>",
    "\"><img src=x onerror='alert(1)'>",
    "[x](javascript:alert(1)) ![y](file:///etc/passwd)",
    "\\input{/etc/passwd} \\href{javascript:x}{y} $x_1$ & % #",
    "=cmd|' /C calc'!A0",
    "[red]x[/red] [link=file:///etc/passwd]y[/link]",
    "# a heading | `code` **bold** ~~gone~~",
    "{{ 7*7 }} ${oc.env:HOME} </textarea></title>",
)
BEGINS_FORMULA = ("=", "+", "-", "@")
NUMBER = re.compile(r"[-+]?[\d.]+(e[-+]?\d+)?")


def hostile(entries, text):
    """The record with this text wherever the schema takes any text."""
    entries = copy.deepcopy(entries)
    entries["hardware"] |= {"cpu": text, "device": text, "capability": text, "kernels": text}
    if entries["hardware"]["gpu"]:
        entries["hardware"]["gpu"] = text
    entries["git"]["sha"] = text
    entries["versions"] |= {"torch": text, text: text}
    entries["data"] |= {"fingerprint": text, "sizes": entries["data"]["sizes"] | {text: 1}}
    if entries["data"]["source"].startswith("slice"):
        entries["data"]["source"] = f"slice:{text}"
    if entries["baseline"]:
        entries["baseline"]["name"] = text
    entries["config"] |= {"trainer": {text: text}, text: text}
    entries["config"]["train"] |= {"precision": text, text: text}
    entries["changed"] = {f"train.{text}": [text, text]}
    entries["artifacts"] = {f"x.{text.replace('/', ' ')}.png": "0" * 64}
    entries["evaluations"] = {
        f"{prefix}{text}": {
            "status": "failed", "message": text, "metrics": None, "n": None, "seconds": 1.0, "peak_memory_mb": None,
            "predictions": None,
        }
        for prefix in ("", "baseline/", "test/")
    }  # fmt: skip
    if entries["error"]:
        entries["error"] = {"type": text, "message": f"{text}\n{text}\x1b[2J", "traceback": text}
    entries["cell"]["id"] = identity({key: value for key, value in entries["config"].items() if key != "trainer"})
    return entries


@pytest.fixture
def places(tmp_path, monkeypatch):
    monkeypatch.setitem(evidence.RULES, "recipe", lambda file, entries: ())  # these records follow no recipe
    for number, (entries, text) in enumerate(zip(example(), itertools.cycle(TEXTS), strict=False)):
        record.write(hostile(entries, text), tmp_path / "records" / f"{number}.json")
    folders = {key: str(tmp_path / key) for key in ("records", "tables", "figures", "bench", "outputs", "docs", "site")}
    return folders | {"paper": str(pages.PAPER)}


def check_page(path):
    content = path.read_text(encoding="utf-8")
    if path.suffix == ".tex":
        assert latex_syntax.problems(content) == [], path
    elif path.suffix == ".csv":
        for row in csv.DictReader(content.splitlines()):
            wrong = [v for v in row.values() if v and v.startswith(BEGINS_FORMULA) and not NUMBER.fullmatch(v)]
            assert not wrong, (path, wrong)
    else:
        assert not re.search(r"<(script|img|/textarea|/title)", content), path
        assert not re.search(r"(?<!\\)\]\((javascript|file):", content), path
        assert "\x1b" not in content and "\n# a heading" not in content, path


def test_a_table_of_hostile_records_is_text(places, capsys):
    cells = frame(load_records(places["records"]))
    assert len(cells) == len(example()) >= len(TEXTS)
    made = report.report_tables("lavo/t11", cells, conf=pages.CONF, paths=places, plots=False).files
    assert {path.suffix for path in made} == {".md", ".tex", ".csv"}
    for path in made:
        check_page(path)
    said = capsys.readouterr()
    assert "\x1b[2J" not in said.out + said.err


@pytest.mark.slow
def test_the_whole_report_and_the_site_of_hostile_records_are_text(places, few_tables, capsys):
    cfg = OmegaConf.create({"check": False, "paths": places, "format": ["md", "tex", "csv", "html"]})
    assert report.run(cfg, ["do=report"]) == 0
    said = capsys.readouterr()
    assert "Traceback" not in said.err and "\x1b[2J" not in said.out + said.err
    folders = [places[name] for name in ("tables", "docs", "site")]
    made = [path for folder in folders for path in sorted(Path(folder).rglob("*")) if path.is_file()]
    assert {path.suffix for path in made} >= {".md", ".tex", ".csv", ".json"}
    for path in made:
        if path.suffix in (".md", ".tex", ".csv"):
            check_page(path)
