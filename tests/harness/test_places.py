"""Unwritable folders are refused in one line before any training, and an ASCII terminal is enough."""

import io
import re
import sys

import pytest

from harness.commands import cli, train
from harness.commands.plan import run_all
from harness.config import places, schema
from harness.config.compose import compose
from harness.config.declared import stand_in
from harness.config.sweep import Command, expand_all
from harness.training.dependents import refused_at_once
from harness.training.run_cell import run_cell
from tests.conftest import ROOT
from tests.helpers.cells import request_of

CELL = ["model=no_mixing", "task=lra/listops", "budget=smoke", "trainer=cpu", "resources.cpus=1"]


@pytest.mark.parametrize("key", ["data", "outputs", "records"])
def test_a_place_that_cannot_be_written_stops_a_cell_before_its_first_update(places, tmp_path, key, capsys):
    file = tmp_path / "a file"
    file.touch()
    result = run_cell(request_of(compose([*CELL, *places, f"paths.{key}='{file}'"])))
    assert (result.state, result.code) == ("refused", 2)
    assert str(file) in result.detail and "Not a directory" in result.detail and "paths." in result.detail
    assert "step 4" not in capsys.readouterr().err


@pytest.mark.parametrize(("key", "words"), [("tables", "table=lavo/t11"), ("figures", "figure=latte/f8")])
def test_a_report_that_cannot_be_written_is_one_line(places, tmp_path, key, words, run_here, capfd):
    file = tmp_path / "a file"
    file.touch()
    (tmp_path / "records").mkdir()
    status = run_here(["do=report", words, *places, f"paths.figures={tmp_path}/figures", f"paths.{key}='{file}'"])
    printed = capfd.readouterr().err
    assert status == 2 and printed.count("\n") == 1 and printed.startswith(f"error: {file}")


def test_an_ascii_terminal_shows_what_it_can(places, run_here, monkeypatch):
    shown = io.BytesIO()
    terminal = io.TextIOWrapper(shown, encoding="ascii")  # as Python makes it of PYTHONIOENCODING=ascii
    monkeypatch.setattr(sys, "stdout", terminal)
    assert run_here(["do=plan", "cells=true", *CELL, *places]) == 0
    terminal.flush()
    assert b"no_mixing ? lra/listops ? skyformer" in shown.getvalue()


def test_an_error_without_a_file_is_not_hidden():
    with pytest.raises(ConnectionError):
        cli.of_file(ConnectionError("reset"))


def test_places_are_those_of_the_clone_wherever_the_command_is_typed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert schema.Paths().records == str(ROOT / "results" / "records")
    monkeypatch.chdir(ROOT)
    assert schema.Paths().records == "results/records"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(schema, "CLONE", None)  # without a clone those of the working directory
    assert (schema.Paths().records, schema.Paths().paper) == ("results/records", str(places.LEDGER))


def test_a_missing_file_is_named_with_its_substitute(places, tmp_path, capsys):
    text = ["task=lm/pg19", "model=no_mixing", "budget=reduced", f"paths.slices={tmp_path / 'slices'}", "trainer=cpu"]
    missing = f"{tmp_path}/slices/pg19/pg19_slice.tar.gz: missing, lm/pg19 reads it at budget=reduced; paths.slices="
    cfg = compose([*text, *places])
    assert run_all([Command(cfg)]) == 0
    assert f"data: {missing}" in capsys.readouterr().out
    result = run_cell(request_of(cfg))
    assert (result.state, result.code) == ("refused", 2) and result.detail.startswith(missing)
    (typed,) = re.findall(r"; (task\.source=.*) generates data instead", result.detail)
    words = ["budget=smoke", *(word for word in text if not word.startswith("budget"))]
    assert run_all([Command(compose([*words, *typed.split(), *places]))]) == 0
    assert "data: " not in capsys.readouterr().out


def test_a_sweep_runs_what_it_can_where_files_are_missing(places, tmp_path, capsys):
    missing = ["task=lm/pg19", "budget=reduced", f"paths.slices={tmp_path / 'slices'}", "trainer=cpu", *places]
    typed = [("model=no_mixing", f"seed={seed}", *missing) for seed in (1, 2)]
    commands = [Command(compose(words), words) for words in typed]
    listops = Command(compose(["model=no_mixing", "task=lra/listops", "budget=smoke", "trainer=cpu", *places]))
    requests = train.requests_of(expand_all([*commands, listops]))
    refused = refused_at_once(requests)
    assert [request.cell.task for request in train.without_refused(requests, refused)] == ["lra/listops"]
    assert [result.cell for result in refused.values()] == [str(request.cell) for request in requests[:2]]
    assert train.run_all(commands) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("refused: ")]
    assert line.startswith(f"refused: 2 x {requests[0].cell} · {tmp_path}/slices/pg19/pg19_slice.tar.gz: missing")


def test_nothing_stands_in_for_the_tokenizer_of_a_checkpoint(places):
    task = ["task=lm/slimpajama", "model=latte"]
    assert stand_in(compose([*task, "protocol=latte_extended", *places])) == []
    assert stand_in(compose([*task, "protocol=latte", *places]))


def test_a_file_that_changes_after_its_cell_was_planned_runs_under_no_id(places, tmp_path):
    file = tmp_path / "reviews.csv"
    file.write_text("text,label\n" + "".join(f"review {i},{i % 2}\n" for i in range(90)))
    typed = ["model=no_mixing", "task=data/classification", f"task.path={file}", "budget=smoke", "trainer=cpu"]
    request = request_of(compose([*typed, *places]))
    file.write_text(file.read_text().replace("review 7,", "review seven,"))
    result = run_cell(request)
    assert result.state == "refused" and result.detail == (
        f"{file}: it changed after the cell was planned; the same command runs it anew"
    )
    assert run_cell(request_of(request.cfg)).state == "done"
