"""Worker processes draw pictures with the same bytes and the same errors as this process."""

import signal
from functools import partial
from pathlib import Path

import pytest
from helpers import synthetic
from helpers.pages import T11

from harness.errors import UsageError
from harness.records.collect import frame
from harness.report.pages import answer
from harness.report.plots import drawing, scores
from harness.report.plots.file import Plot
from harness.report.scores import groups, select


@pytest.fixture(scope="module")
def shown():
    return answer.answers(groups.group_scores(select.select(frame(synthetic.example()), T11), T11))


def plot(shown, path):
    return partial(Plot(scores.data("a title", shown), scores.draw, (path,), dpi=50).write, [path]), [path]


@pytest.mark.slow
def test_processes_draw_the_same_bytes_and_name_the_first_picture_that_fails(tmp_path, shown, monkeypatch):
    monkeypatch.setattr(drawing, "FEW", 0)
    (tmp_path / "file").write_text("no folder")
    expected, made = tmp_path / "here.png", tmp_path / "pool" / "made.png"
    bad = [tmp_path / "file" / name for name in ("first.png", "second.png")]
    drawing.draw_now(*plot(shown, expected))
    with pytest.raises(OSError, match=r"file") as refused, drawing.drawing_processes(2) as draw:
        draw(*plot(shown, made))
        for path in bad:
            draw(path.touch, [path])
    assert made.read_bytes() == expected.read_bytes() and refused.value.filename == str(bad[0])


def test_an_error_names_the_picture():
    def fail(error):
        raise error

    with pytest.raises(OSError) as full:
        drawing.draw_now(partial(fail, OSError(28, "No space left on device")), [Path("a.png")])
    assert full.value.filename == "a.png"
    with pytest.raises(ZeroDivisionError) as bug:
        drawing.draw_now(partial(fail, ZeroDivisionError()), [Path("a.png"), Path("a.pdf")])
    assert bug.value.__notes__ == ["while a.png was drawn"]


def test_a_process_that_is_killed_ends_the_command_in_one_line(monkeypatch):
    monkeypatch.setattr(drawing, "FEW", 0)
    died = r"^a\.png: a process that draws died \(memory\?\)"
    with pytest.raises(UsageError, match=died), drawing.drawing_processes(2) as draw:
        draw(partial(signal.raise_signal, signal.SIGKILL), [Path("a.png")])
