"""Pictures are written whole, a damaged picture is out of date, and a model looks the same in all pictures."""

import os
import re
from pathlib import Path

import matplotlib
import pytest
from matplotlib.figure import Figure

from harness.config.places import CONF
from harness.report import site
from harness.report.plots import style
from harness.report.plots.file import is_current, save

SHOWS = "ab" * 32


@pytest.fixture
def page():
    figure = Figure(figsize=(2, 1))
    figure.subplots().plot([1, 2])
    return figure


@pytest.mark.parametrize("suffix", ["png", "pdf"])
def test_a_picture_that_was_cut_or_changed_is_not_current(tmp_path, page, suffix):
    path = tmp_path / "folder" / f"one.{suffix}"
    save(page, path, SHOWS, dpi=50)
    whole = path.read_bytes()
    assert is_current(path, SHOWS) and not is_current(path, "cd" * 32)
    for damaged in (whole[: len(whole) // 10], whole[:-1], b"", whole[:99] + bytes([whole[99] ^ 1]) + whole[100:]):
        path.write_bytes(damaged)
        assert not is_current(path, SHOWS)
    save(page, path, SHOWS, dpi=50)
    assert path.read_bytes() == whole, "the same figure, the same bytes"
    assert not is_current(tmp_path / "none.png", SHOWS)


def test_other_png_readers_accept_the_picture(tmp_path, page):
    save(page, tmp_path / "one.png", SHOWS, dpi=50)
    page.savefig(tmp_path / "full.png", dpi=50)
    picture, full = (matplotlib.image.imread(tmp_path / name) for name in ("one.png", "full.png"))
    assert picture.shape == (50, 100, 4) and abs(picture - full).max() < 0.07, "the palette is close"


def test_a_kill_while_it_is_written_leaves_the_old_one(tmp_path, page, monkeypatch):
    save(page, tmp_path / "one.png", SHOWS, dpi=50)
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        save(page, tmp_path / "one.png", "cd" * 32, dpi=80)
    assert is_current(tmp_path / "one.png", SHOWS) and len(list(tmp_path.iterdir())) == 1


def test_every_model_has_its_own_look():
    names = [path.relative_to(CONF / "model").with_suffix("").as_posix() for path in (CONF / "model").rglob("*.yaml")]
    assert set(style.MODELS) <= set(names), "a name that is no model"
    looks = {(look["colour"], look["marker"]) for look in map(style.look, style.MODELS)}
    assert len(looks) == len(style.MODELS) and len(set(style.MODELS)) == len(style.MODELS)
    assert style.look("mine") == style.look("mine") != style.look("yours"), "the name alone gives a model its look"


def test_roles_look_the_same_for_every_model():
    assert style.look("lavo", "reference") == style.look("vanilla", "reference") == style.ROLES["reference"]
    assert style.look("no_mixing") == style.look("no_cross") == style.ROLES["control"]
    assert style.look("lavo", "own") == style.look("lavo")


def test_rows_of_one_model_share_its_marker_and_differ_in_shade_and_dash():
    names = ["Luna-16", "Luna-128", "Luna-256"]
    series = [{"name": name, "model": "luna", "role": ""} for name in names]
    first, second = style.with_looks([{"series": series}, {"series": series[1:]}])
    looks = [line["look"] for line in first["series"]]
    assert len({look["colour"] for look in looks}) == len({look["dash"] for look in looks}) == 3
    assert {look["marker"] for look in looks} == {style.look("luna")["marker"]}
    assert [line["look"] for line in second["series"]] == looks[1:], "the same row, the same look in every panel"


def test_the_marks_of_the_site_are_those_of_the_pictures():
    script = (Path(site.__file__).parent / "static" / "charts.js").read_text(encoding="utf-8")
    used = {*style.MARKERS, *(look["marker"] for look in style.ROLES.values() if look["marker"] != "|")}
    symbols, dashes = (re.search(rf"{name} = {{(.*?)}};", script)[1] for name in ("SYMBOLS", "DASHES"))
    assert used == set(re.findall(r'"(.)":', symbols)) and set(style.DASHES) == set(re.findall(r'"(\S+?)":', dashes))
