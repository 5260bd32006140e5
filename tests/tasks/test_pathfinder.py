"""The Pathfinder tasks: settings, generated data, LRA's folders and a slice of them; and everything broken in them."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from models.attention.base import Pattern
from tasks import cache
from tasks.base import DataError, Task
from tasks.lra import pathfinder, pathfinder_reader
from tasks.lra.pathfinder import Pathfinder, PathX
from tasks.lra.pathfinder_design import LRA, PATHX
from tasks.lra.pathfinder_generator import generate

NEXT = "do=prepare task=lra/pathfinder"
DESIGN = {"contour_length": 2, "distractor_length": 1, "distractors": 1, "seed_distance": 2}
TINY = {"max_length": 144, "design": DESIGN, "train": 60, "val": 10, "test": 20, "workers": 1}


def quiet(*_):
    """Progress that nobody watches."""


def never(*call):
    raise AssertionError(f"worked although all was there: {call}")


def tiny(root, **changes) -> Pathfinder:
    return Pathfinder(data_root=root, **{**TINY, **changes})


def loaded(root, **changes) -> Pathfinder:
    task = tiny(root, **changes)
    task.prepare(quiet)
    task.load()
    return task


def read(root, folder, **changes) -> Pathfinder:
    """The task on a folder of pictures of 12 x 12 pixels."""
    return Pathfinder(data_root=root, **{"source": "slice", "path": folder, "max_length": 144, **changes})


def one_line(error, *parts):
    text = str(error.value)
    assert "\n" not in text
    for part in (*parts, NEXT):
        assert str(part) in text, text


def png(pixels, mode="L", **options) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(stream, "PNG", **options)
    return stream.getvalue()


def write_folder(folder: Path, count=40, batches=2, seed=0) -> Path:
    """A folder as LRA's release has it."""
    examples = generate(count, loaded_design(), seed=seed)
    pictures = examples.tokens.reshape(count, 12, 12)
    (folder / "metadata").mkdir(parents=True)
    for batch in range(batches):
        (folder / "imgs" / str(batch)).mkdir(parents=True)
        rows = []
        for i, picture in list(enumerate(pictures))[batch::batches]:
            (folder / "imgs" / str(batch) / f"sample_{i}.png").write_bytes(png(picture))
            rows.append(f"imgs/{batch} sample_{i}.png {i} {examples.labels[i]} 1.0 14 4 2 0.5 1 1\n")
        (folder / "metadata" / f"{batch}.npy").write_text("".join(rows))
    return folder


def loaded_design():
    return tiny(".").design


def pairs(task):
    """All (pixels, label) of all splits."""
    found = []
    for name in ("train", "val", "test"):
        batch = task.split(name).batch(range(len(task.split(name))))
        found += zip(batch["tokens"].tolist(), batch["label"].tolist(), strict=True)
    return found


# settings


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_length": 143}, "max_length=143 is no square picture"),
        ({"max_length": 144, "append_eos": True}, "no square picture and an end symbol"),
        ({"max_length": 0}, "max_length=0|size=0"),
        ({"design": {"contour": 9}}, "design.contour is none of antialias, continuity, contour_length"),
        ({"design": {"size": 12}}, "design.size is none of"),
        ({"design": {**DESIGN, "contour_length": 1}}, "contour_length=1"),
        ({"design": {**DESIGN, "seed_distance": 3}}, "no room for 4 x seed_distance=3"),
        ({"source": "guess"}, "generated, official, slice"),
        ({"path": "somewhere"}, "takes no path"),
        ({"pattern": "causal_cross"}, "causal_cross"),
        ({"train": 0}, "train=0"),
        ({"workers": 0}, "workers=0"),
        ({"data_seed": -1}, "data_seed=-1"),
    ],
)
def test_invalid_settings_touch_nothing(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message) as error:
        tiny(tmp_path / "data", **changes)
    assert "\n" not in str(error.value) and not isinstance(error.value, DataError)
    assert not (tmp_path / "data").exists()


def test_facts_known_before_any_data(tmp_path):
    task = Pathfinder(data_root=tmp_path)
    assert isinstance(task, Task) and (task.metric, task.higher_is_better) == ("acc", True)
    assert task.design == LRA and task.sizes == {"train": 160_000, "val": 20_000, "test": 20_000}
    facts = {"vocab_size": 256, "classes": 2, "max_length": 1024, "pattern": Pattern.NONCAUSAL_SELF, "padding_id": None}
    assert task.dimensions() == facts
    ended = Pathfinder(data_root=tmp_path, append_eos=True, mask_black=True)
    assert ended.dimensions() == {**facts, "vocab_size": 257, "max_length": 1025, "padding_id": 0}
    far = PathX(data_root=tmp_path)
    assert far.design == PATHX and far.dimensions()["max_length"] == 16_384
    assert "task=lra/pathx" in far.hint


# generated data


def test_prepare_load_and_no_second_work(tmp_path):
    task, calls = tiny(tmp_path), []
    with pytest.raises(DataError) as error:
        task.load()
    one_line(error, "not there")
    task.prepare(lambda *call: calls.append(call))
    assert calls[-1][1:] == (90, 90)
    task.prepare(never)
    info = task.load()
    assert (info.source, info.sizes) == ("synthetic", {"train": 60, "val": 10, "test": 20})
    expected = generate(90, task.design)
    batch = task.split("test").batch([3, 0])
    assert batch["tokens"].tolist() == expected.tokens.reshape(90, -1)[[3, 0]].tolist()
    assert batch["label"].tolist() == expected.labels[[3, 0]].tolist()
    assert batch["tokens"].dtype == torch.int64 and task.tokens(batch) == 288
    manifest = json.loads(next(tmp_path.rglob(cache.MANIFEST)).read_text())
    assert manifest["parameters"]["contour_length"] == 2 and manifest["parameters"]["tables"]


def test_splits_share_no_picture_and_keep_their_place(tmp_path):
    few, many = loaded(tmp_path / "few", train=30), loaded(tmp_path / "many")
    for name in ("val", "test"):
        assert cache.content(few.split(name).examples) == cache.content(many.split(name).examples)
    assert len({tuple(pixels) for pixels, _ in pairs(many)}) == 90
    scores = many.baseline()
    for name in ("val", "test"):
        labels = many.split(name).labels
        assert scores[name] == pytest.approx(100 * (labels == many.majority_class).mean())


def test_black_pixels_are_padding_only_if_asked(tmp_path):
    plain, masked = loaded(tmp_path), loaded(tmp_path, mask_black=True)
    assert plain.load().fingerprint == masked.load().fingerprint, "the same data"
    batch = plain.split("val").batch(range(10))
    assert plain.tokens(batch) == 1440 and masked.tokens(batch) == int((batch["tokens"] > 0).sum()) < 1440


def test_full_only_at_the_papers_settings(tmp_path, monkeypatch):
    monkeypatch.setattr(Pathfinder, "published", (70, 20))
    assert loaded(tmp_path).load().source == "synthetic", "another design"
    monkeypatch.setattr(Pathfinder, "drawn", loaded_design())
    assert loaded(tmp_path).load().source == "full"
    assert loaded(tmp_path, train=50).load().source == "synthetic"
    assert loaded(tmp_path, design={**DESIGN, "distractor_contrast": 1.5}).load().source == "synthetic"


def test_integers_and_floats_of_one_design_share_a_cache(tmp_path):
    loaded(tmp_path, design={**DESIGN, "marker_radius": 2})
    tiny(tmp_path, design={**DESIGN, "marker_radius": 2.0}).prepare(never)


def test_end_symbol(tmp_path):
    task = loaded(tmp_path, max_length=145, append_eos=True)
    batch = task.split("val").batch(range(3))
    assert batch["tokens"].shape == (3, 145) and (batch["tokens"][:, -1] == 256).all()


def test_a_design_without_room_is_one_line(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise ValueError("found no room")

    monkeypatch.setattr(pathfinder.generator, "generate", refuse)
    with pytest.raises(DataError) as error:
        tiny(tmp_path).prepare(quiet)
    one_line(error, "found no room", "task.design")
    assert not list(tmp_path.rglob("*.arrow"))


def test_a_sheet_of_both_classes_stands_beside_the_data(tmp_path):
    task = tiny(tmp_path)
    task.prepare(quiet)
    file = task.samples
    assert file.is_relative_to(tmp_path) and sorted(path.name for path in file.parent.iterdir()) == [
        "manifest.json",
        "samples.png",
        "test.arrow",
        "train.arrow",
        "val.arrow",
    ]
    with Image.open(file) as sheet:
        assert sheet.size == (8 * 144, 4 * 144) and len(sheet.getcolors()) <= 64
    file.unlink()
    task.prepare(quiet)
    assert file.exists(), "drawn again from the data"
    task.load()


def test_a_closed_folder_only_lacks_the_sheet(tmp_path, monkeypatch):
    def closed(*_):
        raise PermissionError

    monkeypatch.setattr(pathfinder.sheet, "write", closed)
    task = loaded(tmp_path)
    assert task.samples is None and task.load().sizes["train"] == 60


# LRA's folders


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
    official.prepare(quiet)
    assert official.load().fingerprint == info.fingerprint and official.load().source == "slice:curv"
    monkeypatch.setattr(Pathfinder, "published", (36, 4))
    assert official.load().source == "full" and task.load().source == "slice:curv"
    part = read(tmp_path / "data", folder, train=10)
    part.prepare(never)
    assert part.load().sizes["train"] == 10 and part.load().fingerprint != info.fingerprint


def test_splits_follow_from_the_pictures_and_the_seed(tmp_path):
    """Not from the order of the rows or of the files, which differ from copy to copy."""
    one, two = write_folder(tmp_path / "one"), write_folder(tmp_path / "two", batches=3)
    info = [prepared(tmp_path / str(i), folder).fingerprint for i, folder in enumerate((one, two))]
    assert info[0] == info[1]
    assert prepared(tmp_path / "seed", one, data_seed=1).fingerprint != info[0]


def prepared(root, folder, **changes):
    task = read(root, folder, **changes)
    task.prepare(quiet)
    return task.load()


def test_the_one_picture_published_empty_is_left_out(tmp_path):
    folder = write_folder(tmp_path / "curv")
    (folder / "imgs" / "0" / "sample_172.png").write_bytes(b"")
    with open(folder / "metadata" / "0.npy", "a") as stream:
        stream.write("imgs/0 sample_172.png 172 1 1.0 6 2 2 0.5 1 1\n")
    assert sum(prepared(tmp_path / "data", folder).sizes.values()) == 40
    (folder / "imgs" / "0" / "sample_172.png").write_bytes(b"half a picture")
    with pytest.raises(DataError) as error:
        read(tmp_path / "other", folder).prepare(quiet)
    one_line(error, "0.npy:21", "sample_172.png", "no PNG")


def test_changed_metadata_is_other_data(tmp_path):
    folder = write_folder(tmp_path / "curv")
    task = read(tmp_path / "data", folder)
    task.prepare(quiet)
    file = folder / "metadata" / "1.npy"
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(DataError, match=NEXT):
        task.load()
    task.prepare(quiet)
    assert sum(task.load().sizes.values()) == 39


ROW = "imgs/0 sample_0.png 0 1 1.0 14 4 2 0.5 1 1"
SQUARE = np.arange(144, dtype=np.uint8).reshape(12, 12)
BAD_ROWS = {
    "missing columns": (b"imgs/0 sample_0.png 0", "3 columns"),
    "blank": (b"", "0 columns"),
    "label of words": (ROW.replace(" 1 1.0", " yes 1.0").encode(), "label 'yes'"),
    "label of three classes": (ROW.replace(" 1 1.0", " 2 1.0").encode(), "label '2'"),
    "label with a point": (ROW.replace(" 1 1.0", " 1.0 1.0").encode(), "label '1.0'"),
    "negative label": (ROW.replace(" 1 1.0", " -1 1.0").encode(), "label '-1'"),
    "missing picture": (ROW.replace("sample_0", "sample_999").encode(), "No such file"),
    "a folder": (ROW.replace("sample_0.png", ".").encode(), "directory"),
    "listed twice": (ROW.encode(), "listed twice"),
    "up and out": (ROW.replace("imgs/0", "../../etc").encode(), "leads out"),
    "up in the name": (ROW.replace("sample_0.png", "../../../etc/passwd").encode(), "leads out"),
    "absolute": (ROW.replace("imgs/0", "/etc").encode(), "leads out"),
    "absolute name": (ROW.replace("sample_0.png", "/etc/passwd").encode(), "leads out"),
    "a zero byte": (ROW.replace("sample_0", "sample\0").encode(), "leads out"),
    "not UTF-8": (b"imgs/0 sample_\xff.png 0 1", "UTF-8"),
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
    "text": (b"<html>404</html>", "no PNG"),
    "cut": (png(SQUARE)[:60], "no PNG"),
    "without its end": (png(SQUARE)[:-30], "no PNG"),
    "a wrong sum": (png(SQUARE)[:50] + b"\xff\xff" + png(SQUARE)[52:], "no PNG"),
    "another size": (png(SQUARE[:, :11]), "11 x 12 pixels"),
    "colours": (png(SQUARE, "RGB"), "mode RGB"),
    "a palette": (png(SQUARE, "P"), "mode P"),
    "one bit": (png(SQUARE, "1"), "mode 1"),
    "sixteen bits": (png(SQUARE.astype(np.uint16), "I;16"), "mode I;16"),
    "a JPEG": (b"\xff\xd8\xff\xe0\x00\x10JFIF", "no PNG"),
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
        task.prepare(quiet)
    one_line(error, *parts)
    assert not list((tmp_path / "data").rglob("*")), "no half-written cache"


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_a_bomb_is_refused_by_its_header(tmp_path):
    folder = write_folder(tmp_path / "curv", count=12)
    bomb = io.BytesIO()
    Image.new("L", (12_000, 12_000)).save(bomb, "PNG")
    (folder / "imgs" / "1" / "sample_5.png").write_bytes(bomb.getvalue())
    refused(tmp_path, folder, "sample_5.png", "12000 x 12000 pixels")


@pytest.mark.parametrize("missing", ["all", "metadata", "rows"])
def test_folders_that_are_none(tmp_path, missing):
    folder = tmp_path / "curv"
    if missing != "all":
        write_folder(folder, count=4)
        for file in (folder / "metadata").iterdir():
            file.unlink() if missing == "metadata" else file.write_text("")
    reason = "too few pictures" if missing == "rows" else "No such file"
    refused(tmp_path, folder, folder, reason)


# fuzz


FUZZ = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@FUZZ
@given(line=st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_any_row_is_a_row_or_one_line(line):
    try:
        path, label = pathfinder_reader._row(line)
    except ValueError as error:
        assert "\n" not in str(error)
    else:
        assert label in (0, 1) and not path.is_absolute() and ".." not in path.parts


@FUZZ
@given(edits=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=4), cut=st.integers(0, 10**6))
def test_any_damaged_picture_is_a_picture_or_one_line(tmp_path, edits, cut):
    data = bytearray(png(SQUARE))
    for place, value in edits:
        data[place % len(data)] = value
    file = tmp_path / "picture.png"
    file.write_bytes(bytes(data[: cut % (2 * len(data)) or None]))
    found = pathfinder_reader._picture(file, 12)
    if isinstance(found, str):
        assert "\n" not in found and found
    else:
        assert found.shape == (12, 12) and found.dtype == np.uint8
