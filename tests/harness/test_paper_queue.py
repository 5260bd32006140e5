"""`make paper`: the cheapest numbers first, at the time limit what runs is saved, and missing data are left out."""

import threading
import time

import pytest

from benchmarks import paper
from harness.config.sweep import compose_commands
from harness.records.estimate import MEASURED, Estimate

WORDS = ["table=lavo/t11", "budget=smoke", "task=lra/listops"]


def test_the_number_whose_cells_take_the_least_time_is_first(places, monkeypatch):
    real = paper.plan_rows
    minutes = {"lavo": 3, "vanilla": 1, "no_mixing": None}

    def rows(*arguments):
        for row in real(*arguments):
            time = minutes.get(row.cell.model, 9)
            state = "done" if (row.cell.model, row.cell.seed) == ("lavo", 2) else row.state
            known = Estimate(60.0 * time, "", MEASURED) if time else None
            yield type(row)(row.cell, state, known, row.refusal)

    monkeypatch.setattr(paper, "plan_rows", rows)
    monkeypatch.setattr(paper, "refusal", lambda cfg: None)  # as if the data were there
    cells = [planned.cell for planned in paper.cheapest_first(compose_commands([[*WORDS, *places]])).cells]
    names = [(cell.model, cell.seed) for cell in cells]
    assert [model for model, _ in names[:5]] == ["vanilla"] * 5, "five seeds of a minute"
    assert [model for model, _ in names[5:9]] == ["lavo"] * 4 and ("lavo", 2) not in names, "four of three minutes"
    assert [model for model, _ in names[-5:]] == ["no_mixing"] * 5 and len(names) == len(set(names))


def test_cells_without_data_are_left_out_with_the_command(places, capsys):
    assert paper.main(["lavo/t8", "--minutes", "1", "seed=1", "task=forecasting/etth1", *places]) == 2
    assert "do=prepare" in capsys.readouterr().out


@pytest.mark.slow
def test_at_the_limit_cells_are_saved_and_the_same_command_resumes_them(places, tmp_path, monkeypatch, capsys):
    """The time is over when the cell has said what is awaited, and no later than typed."""

    class Timer(threading.Timer):
        def run(self):
            until, words = time.monotonic() + self.interval, next(awaited)
            while time.monotonic() < until and not any(words in log.read_text() for log in logs.rglob("log.txt")):
                time.sleep(0.05)
            self.function()

    logs, awaited = tmp_path / "outputs", iter(["step 20", "resumed at step"])
    monkeypatch.setattr(paper, "refusal", lambda cfg: None)  # the first cell generates its data
    monkeypatch.setattr(paper.threading, "Timer", Timer)
    words = ["lavo/t11", "--budget=smoke", "--at-once=2", "task=lra/listops", "model=lavo", "seed=1", *places]
    words += ["train.max_steps=100000", "checkpoint.every_steps=10", "--minutes=1"]
    for _ in range(2):
        assert paper.main(words) == 0
        said = capsys.readouterr()
        assert "interrupted" in said.out + said.err
    (log,) = logs.rglob("log.txt")
    assert "resumed at step" in log.read_text()
