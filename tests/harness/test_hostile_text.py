"""Foreign text is data: never markup, a heading or a terminal command, and no name leads out of its folder."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.synthetic import record as made

from harness.commands import status
from harness.config.cell import Cell, cell_of
from harness.config.compose import compose
from harness.config.places import ROOT
from harness.errors import UsageError, one_line
from harness.records import record
from harness.records.measurements import load_measurements
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
    assert "\x1b" not in shown and len(shown.splitlines()) == 3, shown
    assert one_line(text)[:40] in shown


def cell_in(entries):
    return Cell(entries["cell"]["id"], entries["config"])


@pytest.mark.parametrize("key", ["model", "task", "protocol", "budget"])
@pytest.mark.parametrize("name", ["<script>", "../../x", "=cmd", "a\nb", "[red]", "", "x" * 300, "a|b", "/abs"])
def test_names_of_a_record_are_names(key, name):
    entries = made()
    entries["cell"][key] = name
    entries["config"][key] = {"name": name}
    with pytest.raises(RecordError, match=rf"(cell\.{key}|config\.{key}\.name): "):
        record.validate(entries)


@pytest.mark.parametrize("name", ["/abs", "../..", "${oc.env:HOME}", "x" * 300, "a b", ".hidden"])
def test_names_that_are_typed_stay_inside(tmp_path, name):
    with pytest.raises(UsageError, match="a name has letters"):
        compose(["model=latte", "task=lra/listops", f"model.name={name}" if "$" in name else f"model.name='{name}'"])


def test_a_measurement_is_called_as_its_file(tmp_path):
    measured = {"kind": "bench", "name": "../../x", "points": []}
    (tmp_path / "one.json").write_text(json.dumps(measured))
    with pytest.raises(UsageError, match=r"one\.json: not a measurement"):
        load_measurements(tmp_path)


def test_a_failed_record_holds_no_path_of_this_machine(places):
    cfg = compose(["model=latte", "task=lra/listops", *places])
    texts = [str(Path(cfg.paths.data).absolute() / "a.txt"), str(Path.home() / "secret" / "b.py"), cell_of(cfg).id]
    clean = without_folders(" ".join(texts), cfg)
    assert clean == f"<paths.data>/a.txt ~/secret/b.py {cell_of(cfg).id}"


def test_the_list_of_options_shows_no_control_characters_and_reads_no_file_elsewhere(tmp_path):
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
    command = [sys.executable, ROOT / "run.py", "--config-dir", conf, "do=list"]
    listed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert listed.returncode == 0 and "clear \\x1b[2J" in listed.stdout and "  g" in listed.stdout
    assert all(letter.isprintable() for letter in listed.stdout.replace("\n", ""))
    assert "private line" not in listed.stdout
