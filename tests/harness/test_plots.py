"""Pictures are written whole, a damaged picture is out of date, and a model looks the same in all pictures."""

import io
import os

import matplotlib
import numpy as np
import pytest
from matplotlib.colors import to_rgb, to_rgba
from matplotlib.figure import Figure

from harness.config.places import CONF
from harness.config.table_rows import labelled, row_name
from harness.records.png import with_palette
from harness.report.plots import style
from harness.report.plots.file import Plot, is_current, save

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


def test_a_palette_keeps_grey_grey():
    """A pale line beside labels in all colours: 3,000 of them with their soft edges."""
    figure, full = Figure(figsize=(7, 5)), io.BytesIO()
    axis = figure.subplots()
    axis.axis("off")
    axis.plot([0, 9], [5, 5], color="0.15", linewidth=4, alpha=0.25)
    for number, colour in enumerate(style.looks()[2] * 4):
        axis.text(number * 0.37 % 9, number * 0.61 % 9, "label", color=colour, fontsize=7)
    figure.savefig(full, dpi=200)
    few = matplotlib.image.imread(io.BytesIO(with_palette(io.BytesIO(full.getvalue()))))[..., :3]
    whole = matplotlib.image.imread(io.BytesIO(full.getvalue()))[..., :3]
    grey = np.ptp(whole, axis=-1) < 0.01
    assert np.ptp(few[grey], axis=-1).max() < 0.02 and abs(whole - few).max() < 0.09


def test_a_picture_can_be_read_on_white_and_on_black():
    """Its ground is transparent, and no colour of text, axes or models is near white or black."""
    full = io.BytesIO()
    with matplotlib.rc_context(style.RC):
        figure = Figure(figsize=(3, 2))
        figure.subplots().set_title("a title")
        figure.savefig(full, dpi=100)
    whole = matplotlib.image.imread(io.BytesIO(full.getvalue()))
    few = matplotlib.image.imread(io.BytesIO(with_palette(full)))
    assert few[0, 0, 3] == 0 and abs(few - whole).mean() < 0.01
    greys, _, colours = style.looks()
    for colour in (*colours, *(grey["colour"] for grey in greys.values()), style.INK, style.SOFT, style.FAINT):
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in to_rgb(colour)]
        luminance = np.dot(linear, [0.2126, 0.7152, 0.0722])
        assert 1.05 / (luminance + 0.05) > 2.1 and (luminance + 0.05) / 0.0563 > 2.9, colour


def test_a_kill_while_it_is_written_leaves_the_old_one(tmp_path, page, monkeypatch):
    save(page, tmp_path / "one.png", SHOWS, dpi=50)
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        save(page, tmp_path / "one.png", "cd" * 32, dpi=80)
    assert is_current(tmp_path / "one.png", SHOWS) and len(list(tmp_path.iterdir())) == 1


def test_every_model_has_its_own_look():
    names = [path.relative_to(CONF / "model").with_suffix("").as_posix() for path in (CONF / "model").rglob("*.yaml")]
    greys, numbers, _ = style.looks()
    assert set(names) == {*numbers, *greys}, "a name that is not a model, or a model without a colour of its own"
    colours = [style.look(name)["colour"] for name in (*numbers, "vanilla", "vanilla_math", "no_mixing")]
    assert len({*colours, style.MUTED, style.BASELINE["colour"]}) == len(colours) + 2
    assert style.look("mine") == style.look("mine") != style.look("yours"), "the name alone gives a model its look"


def test_a_picture_without_numbers_is_no_file(tmp_path):
    def plot(series):
        return Plot({"title": "A figure", "panels": [{"series": series}]}, lambda data: Figure(), (path,))

    path, drawn = tmp_path / "a.png", []
    path.write_bytes(b"former")
    assert plot([]).update(True, lambda *made: drawn.append(made)) == [path] and path.exists()
    assert plot([]).update(False, lambda *made: drawn.append(made)) == [] == drawn and not path.exists()
    assert plot([{"x": [1]}]).update(False, lambda *made: drawn.append(made)) == [path] and drawn


def test_every_model_has_one_name_for_people():
    ids = [path.stem for path in (CONF / "model").glob("*.yaml") if path.stem not in ("custom", "module")]
    names = {id: row_name(id) for id in ids}
    assert names["vanilla"] == "softmax attention" and names["lavo"] == "LAVO" and names["local"] == "window"
    assert len(set(names.values())) == len(ids) and not [name for name, shown in names.items() if shown == name]
    assert labelled("luna (model.slots=16)", "luna") == "Luna (slots=16)" and labelled("luna_16", "luna") == "Luna-16"
    assert labelled("w 2K", "longnet") == "w 2K" and labelled("mine", "mine") == "mine"


def test_rows_of_one_model_share_its_marker_and_differ_in_shade_and_dash():
    names = ["Luna-16", "Luna-128", "Luna-256"]
    series = [{"name": name, "model": "luna", "role": ""} for name in names]
    first, second = style.with_looks([{"series": series}, {"series": series[1:]}])
    looks = [line["look"] for line in first["series"]]
    assert len({look["colour"] for look in looks}) == len({look["dash"] for look in looks}) == 3
    assert {look["marker"] for look in looks} == {style.look("luna")["marker"]}
    assert [line["look"] for line in second["series"]] == looks[1:], "the same row, the same look in every panel"


def test_pictures_of_notebooks_have_the_ground_and_the_inks_of_the_report():
    """Jupyter reads the matplotlibrc beside the notebooks."""
    settings = matplotlib.rc_params_from_file(CONF.parent / "notebooks" / "matplotlibrc", use_default_template=False)
    colours = {key: value for key, value in style.RC.items() if key.endswith("color") and key != "grid.color"}
    assert len(colours) == 7
    assert all(to_rgba(settings[key]) == to_rgba(value) for key, value in colours.items())
