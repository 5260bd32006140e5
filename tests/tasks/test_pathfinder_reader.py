"""LRA's folders of pictures and slices of them; and everything broken in them."""

import io

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from tasks.checks import DataError
from tasks.lra import pathfinder_reader
from tasks.lra.pathfinder import Pathfinder
from tasks.lra.pathfinder_generator import generate
from tests.helpers.pathfinder import (
    loaded_design,
    one_line,
    pairs,
    png,
    read,
    write_folder,
)
from tests.helpers.tasks import info_of, never, no_progress


def test_folder_round_trip(tmp_path, monkeypatch):
    folder = write_folder(tmp_path / "curv")
    task, calls = read(tmp_path / "data", folder), []
    task.prepare(lambda *call: calls.append(call))
    task.prepare(never)
    info = task.load()
    assert (info.source, info.sizes) == ("slice:curv", {"train": 32, "val": 4, "test": 4})
    examples = generate(40, loaded_design())
    made = zip(examples.tokens.reshape(40, -1).tolist(), examples.labels.tolist(), strict=True)
    assert sorted(pairs(task)) == sorted(made)
    official = read(tmp_path / "data", folder, source="official")
    assert info_of(official).fingerprint == info.fingerprint and official.load().source == "slice:curv"
    monkeypatch.setattr(Pathfinder, "published", (36, 4))
    assert official.load().source == "full" and task.load().source == "slice:curv"
    part = read(tmp_path / "data", folder, train=10)
    part.prepare(never)
    assert part.load().sizes["train"] == 10 and part.load().fingerprint != info.fingerprint


def test_splits_follow_from_the_pictures_and_the_seed(tmp_path):
    """Not from the order of the rows or of the files, which differ from copy to copy."""
    small, large = write_folder(tmp_path / "one"), write_folder(tmp_path / "two", batches=3)
    info = [prepared(tmp_path / str(i), folder).fingerprint for i, folder in enumerate((small, large))]
    assert info[0] == info[1]
    assert prepared(tmp_path / "seed", small, data_seed=1).fingerprint != info[0]


def prepared(root, folder, **changes):
    task = read(root, folder, **changes)
    return info_of(task)


def test_the_one_picture_published_empty_is_left_out(tmp_path):
    folder = write_folder(tmp_path / "curv")
    (folder / "imgs" / "0" / "sample_172.png").write_bytes(b"")
    with open(folder / "metadata" / "0.npy", "a") as stream:
        stream.write("imgs/0 sample_172.png 172 1 1.0 6 2 2 0.5 1 1\n")
    assert sum(prepared(tmp_path / "data", folder).sizes.values()) == 40
    (folder / "imgs" / "0" / "sample_172.png").write_bytes(b"half a picture")
    with pytest.raises(DataError) as error:
        read(tmp_path / "other", folder).prepare(no_progress)
    one_line(error, "0.npy:21", "sample_172.png", "no PNG")


def test_an_easier_folder_is_not_the_official_one(tmp_path):
    folder = write_folder(tmp_path / "curv")
    for file in folder.glob("metadata/*.npy"):
        file.write_text(file.read_text().replace(" 1.0 14 ", " 1.0 9 "))
    with pytest.raises(DataError) as error:
        read(tmp_path / "data", folder, source="official").prepare(no_progress)
    one_line(error, "0.npy:1", "paths of 9 dashes, not of 14")
    assert prepared(tmp_path / "data", folder).source == "slice:curv"


ROW = "imgs/0 sample_0.png 0 1 1.0 14 4 2 0.5 1 1"
SQUARE = np.arange(144, dtype=np.uint8).reshape(12, 12)
BAD_ROWS = {
    "missing columns": (b"imgs/0 sample_0.png 0", "3 columns"),
    "label of words": (ROW.replace(" 1 1.0", " yes 1.0").encode(), "label 'yes'"),
    "missing picture": (ROW.replace("sample_0", "sample_999").encode(), "No such file"),
    "a folder": (ROW.replace("sample_0.png", ".").encode(), "directory"),
    "listed twice": (ROW.encode(), "listed twice"),
    "up and out": (ROW.replace("imgs/0", "../../etc").encode(), "leads out"),
    "absolute name": (ROW.replace("sample_0.png", "/etc/passwd").encode(), "leads out"),
    "a zero byte": (ROW.replace("sample_0", "sample\0").encode(), "leads out"),
    "NumPy's own format": (b"\x93NUMPY\x01\x00v\x00{'descr': '<U19'}", "NumPy"),
}


@pytest.mark.parametrize(("row", "reason"), BAD_ROWS.values(), ids=BAD_ROWS.keys())
def test_broken_metadata(tmp_path, row, reason):
    folder = write_folder(tmp_path / "curv", count=12)
    file = folder / "metadata" / "0.npy"
    file.write_bytes(file.read_bytes() + row + b"\n")
    refused(tmp_path, folder, f"{file}:7", reason)


BAD_PICTURES = {
    "empty": (b"", "an empty file"),
    "without its end": (png(SQUARE)[:-30], "no PNG"),
    "a wrong sum": (png(SQUARE)[:50] + b"\xff\xff" + png(SQUARE)[52:], "no PNG"),
    "another size": (png(SQUARE[:, :11]), "11 x 12 pixels"),
    "colours": (png(SQUARE, "RGB"), "mode RGB"),
    "too long": (png(SQUARE) + bytes(1 << 20), "more than"),
}


@pytest.mark.parametrize(("data", "reason"), BAD_PICTURES.values(), ids=BAD_PICTURES.keys())
def test_broken_pictures(tmp_path, data, reason):
    folder = write_folder(tmp_path / "curv", count=12)
    file = folder / "imgs" / "1" / "sample_5.png"
    file.write_bytes(data)
    refused(tmp_path, folder, folder / "metadata" / "1.npy:3", file, reason)


def refused(tmp_path, folder, *parts):
    task = read(tmp_path / "data", folder)
    with pytest.raises(DataError) as error:
        task.prepare(no_progress)
    one_line(error, *parts)
    assert not list((tmp_path / "data").rglob("*")), "no half-written cache"


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_a_bomb_is_refused_by_its_header(tmp_path):
    folder = write_folder(tmp_path / "curv", count=12)
    bomb = io.BytesIO()
    Image.new("L", (12_000, 12_000)).save(bomb, "PNG")
    (folder / "imgs" / "1" / "sample_5.png").write_bytes(bomb.getvalue())
    refused(tmp_path, folder, "sample_5.png", "12000 x 12000 pixels")


# fuzz


FUZZ = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])


@FUZZ
@given(line=st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_any_row_is_a_row_or_one_line(line):
    try:
        path, label = pathfinder_reader._row(line, None)
    except ValueError as error:
        assert "\n" not in str(error)
    else:
        assert label in (0, 1) and not path.is_absolute() and ".." not in path.parts


@FUZZ
@given(edits=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=4), cut=st.integers(0, 10**6))
def test_any_damaged_picture_is_a_picture_or_one_line(tmp_path, edits, cut):
    data = bytearray(png(SQUARE))
    for position, value in edits:
        data[position % len(data)] = value
    file = tmp_path / "picture.png"
    file.write_bytes(bytes(data[: cut % (2 * len(data)) or None]))
    picture = pathfinder_reader._picture(file, 12)
    if isinstance(picture, str):
        assert "\n" not in picture and picture
    else:
        assert picture.shape == (12, 12) and picture.dtype == np.uint8
