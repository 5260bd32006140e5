"""Pictures of a report are written whole, and a damaged one is not current."""

import os

import matplotlib
import pytest

from harness.report.plots import drawn

matplotlib.use("Agg")
SHOWS = "ab" * 32


@pytest.fixture
def page():
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(2, 1))
    axis.plot([1, 2])
    yield figure
    pyplot.close(figure)


@pytest.mark.parametrize("suffix", ["png", "pdf"])
def test_a_picture_that_was_cut_or_changed_is_not_current(tmp_path, page, suffix):
    path = tmp_path / "folder" / f"one.{suffix}"
    drawn.save(page, path, SHOWS, dpi=50)
    whole = path.read_bytes()
    assert drawn.is_current(path, SHOWS) and not drawn.is_current(path, "cd" * 32)
    for damaged in (whole[: len(whole) // 10], whole[:-1], b"", whole[:99] + bytes([whole[99] ^ 1]) + whole[100:]):
        path.write_bytes(damaged)
        assert not drawn.is_current(path, SHOWS)
    drawn.save(page, path, SHOWS, dpi=50)
    assert path.read_bytes() == whole, "the same figure, the same bytes"
    assert not drawn.is_current(tmp_path / "none.png", SHOWS)


def test_a_reader_of_png_does_not_mind(tmp_path, page):
    drawn.save(page, tmp_path / "one.png", SHOWS, dpi=50)
    assert matplotlib.image.imread(tmp_path / "one.png").shape == (50, 100, 4)


def test_a_kill_while_it_is_written_leaves_the_old_one(tmp_path, page, monkeypatch):
    drawn.save(page, tmp_path / "one.png", SHOWS, dpi=50)
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        drawn.save(page, tmp_path / "one.png", "cd" * 32, dpi=80)
    assert drawn.is_current(tmp_path / "one.png", SHOWS) and len(list(tmp_path.iterdir())) == 1
