"""Foreign text is data: never markup, a heading or a terminal command, and no name leads out of its folder.

Whole reports of valid records with such texts stay text as well.
"""

import copy
import csv
import itertools
import os
import re
from pathlib import Path

import pytest
from helpers import latex_syntax, pages
from helpers.synthetic import example
from helpers.synthetic import record as made
from omegaconf import OmegaConf

from harness.commands import report, status
from harness.config.cell import Cell, cell_of, identity
from harness.config.compose import compose
from harness.errors import one_line
from harness.records import evidence, record
from harness.records.collect import frame, load_records
from harness.records.record import RecordError
from harness.training.run_cell import without_folders

GLOO = "[/__w/pytorch/pytorch/third_party/gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:4321"
HOSTILE = (
    *(GLOO, "a\n# heading\n\n| a | b |", "\x1b]0;title\x07\x1b[2J", "[link=https://x]y[/link]"),
    *("<script>alert(1)</script>", "=cmd|' /C calc'!A0", "\u202egnp.exe", "\\input{/etc/passwd}", "\r\noverwritten"),
    *("\x00", "[/]", "[red"),
)


def test_one_line_is_one_printable_line():
    for text in HOSTILE:
        line = one_line(text)
        assert line.isprintable() and "\n" not in line
    assert one_line("two\n words") == "two words"


@pytest.mark.parametrize("text", HOSTILE)
def test_status_shows_an_error_as_it_is(places, capsys, text):
    cfg = compose(["model=latte", "task=lra/text", *places])
    entries = made("latte", "lra/text", status="failed")
    entries["error"]["message"] = text
    record.write(entries, Path(cfg.paths.records) / f"{cell_in(entries).path}.json")
    assert status.run(cfg, []) == 0
    shown = capsys.readouterr().out
    assert "\x1b" not in shown and len(shown.splitlines()) == 2, shown
    assert one_line(text)[:40] in shown


def cell_in(entries):
    return Cell(entries["cell"]["id"], entries["config"])


@pytest.mark.parametrize("key", ["model", "task", "protocol", "budget"])
def test_names_of_a_record_are_names(key):
    for name in ("<script>", "../../x", "=cmd", "a\nb", "[red]", "", "x" * 300, "a|b", "/abs"):
        entries = made()
        entries["cell"][key] = name
        entries["config"][key] = {"name": name}
        with pytest.raises(RecordError, match=rf"(cell\.{key}|config\.{key}\.name): "):
            record.validate(entries)


def test_a_failed_record_holds_no_path_of_this_machine(places):
    cfg = compose(["model=latte", "task=lra/listops", *places])
    texts = [str(Path(cfg.paths.data).absolute() / "a.txt"), str(Path.home() / "secret" / "b.py"), cell_of(cfg).id]
    clean = without_folders(" ".join(texts), cfg)
    assert clean == f"<paths.data>/a.txt ~/secret/b.py {cell_of(cfg).id}"


def test_the_list_of_options_shows_no_control_characters_and_reads_no_file_elsewhere(tmp_path, run_here, capfd):
    """Descriptions are the first lines of shared files: a link, FIFO or device there is not read."""
    conf, private = tmp_path / "conf", tmp_path / "private.txt"
    (conf / "model").mkdir(parents=True)
    (conf / "table").mkdir()
    private.write_text("# a private line\n")
    (conf / "model" / "e.yaml").write_text("# clear \x1b[2J\x1b]0;title\a ‮\nname: e\n")
    (conf / "model" / "\x1b[2Jf.yaml").write_text("name: f\n")
    os.mkfifo(conf / "model" / "g.yaml")
    (conf / "model" / "h.yaml").symlink_to("/dev/zero")
    (conf / "table" / "i.yaml").symlink_to(private)
    assert run_here(["--config-dir", str(conf), "do=list"]) == 0
    listed = capfd.readouterr().out
    assert "clear \\x1b[2J" in listed and "  g" in listed and "private line" not in listed
    assert all(letter.isprintable() for letter in listed.replace("\n", ""))


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
def reported(tmp_path, monkeypatch):
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


def test_a_table_of_hostile_records_is_text(reported, capsys):
    cells = frame(load_records(reported["records"]))
    assert len(cells) == len(example()) >= len(TEXTS)
    made = report.report_tables("lavo/t11", cells, conf=pages.CONF, paths=reported, plots=False).files
    assert {path.suffix for path in made} == {".md", ".tex", ".csv"}
    for path in made:
        check_page(path)
    said = capsys.readouterr()
    assert "\x1b[2J" not in said.out + said.err


@pytest.mark.slow
def test_the_whole_report_and_the_site_of_hostile_records_are_text(reported, few_tables, capsys):
    cfg = OmegaConf.create({"check": False, "paths": reported, "format": ["md", "tex", "csv", "html"]})
    assert report.run(cfg, ["do=report"]) == 0
    said = capsys.readouterr()
    assert "Traceback" not in said.err and "\x1b[2J" not in said.out + said.err
    folders = [reported[name] for name in ("tables", "docs", "site")]
    made = [path for folder in folders for path in sorted(Path(folder).rglob("*")) if path.is_file()]
    assert {path.suffix for path in made} >= {".md", ".tex", ".csv", ".json"}
    for path in made:
        if path.suffix in (".md", ".tex", ".csv"):
            check_page(path)
