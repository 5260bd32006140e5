"""Lines of progress in a log: the time left follows from what has ended, and lines become rare."""

import io

import pytest

from harness import progress as progress_module
from harness.progress import Progress, fitted, late_bar


@pytest.fixture
def lines(monkeypatch):
    """(lines, run): `run(updates)` makes updates of (seconds since the start, cells done) of 12 cells."""
    said, clock = [], [0.0]
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: clock[0])

    def run(updates):
        with Progress(said.append) as progress:
            for seconds, done in updates:
                clock[0] = seconds
                progress.update("cells", done, 12, "2 running")
        return said

    return run


def test_the_time_left_is_that_of_the_cells_that_ended_and_falls_between_two(lines):
    said = lines([(0, 0), (60, 1), (120, 2), (180, 3), (220, 3), (300, 5)])
    assert said[0] == "cells 1/12 (8 %) 1:00 each, 11:00 left 2 running"
    assert said[-1] == "cells 5/12 (42 %) 1:00 each, 7:00 left 2 running"
    quiet = lines([(0, 0), (60, 1), (661, 1)])
    assert quiet[-1].startswith("cells 1/12 (8 %) 1:00 each, 0:59 left"), "ten minutes have passed since"


def test_before_the_first_end_no_time_is_made_up(lines):
    assert lines([(0, 0), (600, 0)]) == ["cells 0/12 (0 %) 2 running"]


def test_fast_work_has_a_rate_and_lines_become_rare(lines):
    said = lines([(second, min(12, second)) for second in range(13)])
    assert said == ["cells 10/12 (83 %) 1/s, 0:02 left 2 running"] or said[0].startswith("cells 10/12 (83 %) 0:01 each")
    long = lines([(second, second) for second in range(1000)])[len(said) :]
    assert len(long) < 15, "ten minutes in a log are a dozen lines"


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_late_bar_shows_on_a_terminal_alone_and_only_for_long_work(monkeypatch):
    shown = []
    monkeypatch.setattr(Progress, "update", lambda self, *done: shown.append(done))
    for is_terminal, late_s in ((False, -1.0), (True, 1000.0), (True, -1.0)):
        monkeypatch.setattr(progress_module.sys, "stderr", Terminal() if is_terminal else io.StringIO())
        monkeypatch.setattr(progress_module, "LATE_S", late_s)
        with late_bar("planned") as report:
            report(1, 3)
    assert shown == [("planned", 1, 3)]


def test_a_line_breaks_between_words_on_a_terminal_alone(monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    line = "done: lavo · test acc 52.8 · /a/path/longer/than/twenty/characters"
    terminal, file = io.StringIO(), io.StringIO()
    terminal.isatty = lambda: True
    assert fitted(line, file) == line
    assert fitted(line, terminal).split() == line.split() and "\n    /a/path/longer" in fitted(line, terminal)
    assert all(len(part) <= 20 for part in fitted(line, terminal).split("\n")[:-1])
