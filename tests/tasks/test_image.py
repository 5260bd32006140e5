"""The Image task: grey pixels from every source, the quirk, generated data; and everything that can be broken."""

from pathlib import Path

import numpy as np
import PIL.Image
import pytest

from tasks.lra import image
from tasks.lra.image import Image, grey, to_sequences
from tests.helpers import tasks
from tests.helpers.tasks import published, ready, refuses

SMALL = {"source": "synthetic", "max_length": 64, "train": 60, "val": 20, "test": 31}


def loaded(root, **changes) -> Image:
    return ready(Image(data_root=root, **changes))


def pictures(split: str, count: int):
    """Colours (count, 32, 32, 3) that differ, and classes."""
    draw = np.random.Generator(np.random.PCG64([len(split), 1]))
    return draw.integers(0, 256, (count, 32, 32, 3), np.uint8), np.arange(count, dtype=np.uint8) % 10


def write_slice(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in members_of().items():
        (folder / Path(name).name).write_bytes(data)
    return folder


def members_of(train=50, test=12) -> dict[str, bytes]:
    """Like the published archive: records of the class, then red, green and blue."""
    records = {}
    for split, count in (("train", train), ("test", test)):
        colours, labels = pictures(split, count)
        planes = colours.transpose(0, 3, 1, 2).reshape(count, -1)
        records[split] = np.concatenate([labels[:, None], planes], 1)
    files = {f"data_batch_{i + 1}.bin": records["train"][10 * i : 10 * (i + 1)].tobytes() for i in range(5)}
    files = {"batches.meta.txt": b"airplane", **files, "test_batch.bin": records["test"].tobytes()}
    return {f"cifar-10-batches-bin/{name}": data for name, data in files.items()}


def write_archive(file: Path, monkeypatch, members=None) -> Path:
    return published(monkeypatch, image, file, members_of() if members is None else members)


def library(monkeypatch, kind: str, change=lambda row: row):
    column = {"hf": "img", "tfds": "image"}[kind]
    data = {}
    for split, count in (("train", 50), ("test", 12)):
        colours, labels = pictures(split, count)
        rows = [{column: colours[i], "label": int(labels[i])} for i in range(count)]
        data[split] = [change(row) for row in rows]
    tasks.library(monkeypatch, kind, data)


# pixels


def test_grey_is_that_of_tensorflow():
    """tf.image.rgb_to_grayscale in float32: to [0, 1], weighted, times 255.5, cut."""
    colours = np.random.Generator(np.random.PCG64(0)).integers(0, 256, (200_000, 3), np.uint8)
    weighted = (colours.astype(np.float32) / np.float32(255)) @ np.array([0.2989, 0.587, 0.114], np.float32)
    theirs = (weighted * np.float32(255.5)).astype(np.uint8)
    different = np.flatnonzero(theirs != grey(colours))
    assert len(different) < 20 and (abs(theirs[different].astype(int) - grey(colours)[different]) == 1).all()
    basic = np.array([[0, 0, 0], [255, 255, 255], [255, 0, 0], [0, 255, 0], [0, 0, 255], [59, 62, 63]], np.uint8)
    assert grey(basic).tolist() == [0, 255, 76, 149, 29, 61]


@pytest.mark.parametrize(("length", "block"), [(1024, 1), (256, 2), (64, 4), (16, 8)])
def test_smaller_pictures_are_means(length, block):
    colours, labels = pictures("train", 3)
    examples = to_sequences(colours, labels, length)
    level, side = grey(colours), 32 // block
    expected = [
        int(level[i, block * y : block * (y + 1), block * x : block * (x + 1)].astype(int).sum()) // block**2
        for i in range(3)
        for y in range(side)
        for x in range(side)
    ]
    assert examples.tokens.tolist() == expected
    assert examples.offsets.tolist() == [0, length, 2 * length, 3 * length] and examples.labels.tolist() == [0, 1, 2]


def test_black_is_padding_only_when_asked(tmp_path):
    whole = {**SMALL, "max_length": 1024}
    tasks = {masked: loaded(tmp_path, **whole, mask_black=masked) for masked in (False, True)}
    batches = [task.split("train").batch(range(60)) for task in tasks.values()]
    assert batches[0]["tokens"].equal(batches[1]["tokens"]) and batches[0]["tokens"].shape == (60, 1024)
    black = int((batches[0]["tokens"] == 0).sum())
    assert black > 0
    assert [task.tokens(batches[0]) for task in tasks.values()] == [60 * 1024, 60 * 1024 - black]


# files to read


def test_every_source_gives_the_same_examples(tmp_path, monkeypatch):
    library(monkeypatch, "hf")
    library(monkeypatch, "tfds")
    monkeypatch.setattr(Image, "published", (50, 12))
    path = {
        "official": write_archive(tmp_path / "cifar.tar.gz", monkeypatch),
        "slice": write_slice(tmp_path / "part"),
    }
    infos = []
    for source in ("official", "hf", "tfds", "slice"):
        task = loaded(tmp_path / "data", source=source, path=path.get(source))
        infos.append(task.load())
        assert infos[-1].sizes == {"train": 45, "val": 5, "test": 12}
        colours, labels = pictures("test", 12)
        rows = {bytes(row): int(label) for row, label in zip(grey(colours).reshape(12, -1), labels, strict=True)}
        batch = task.split("test").batch(range(12))
        actual = {bytes(row.tolist()): int(y) for row, y in zip(batch["tokens"], batch["label"], strict=True)}
        assert actual == rows
    assert len({info.fingerprint for info in infos}) == 1
    assert [info.source for info in infos] == ["full", "full", "full", "slice:part"]


def test_pictures_of_the_hub_may_be_encoded(tmp_path, monkeypatch):
    monkeypatch.setattr(Image, "published", (50, 12))
    library(monkeypatch, "hf")
    plain = loaded(tmp_path / "plain", source="hf").load().fingerprint
    library(monkeypatch, "hf", lambda row: {**row, "img": PIL.Image.fromarray(row["img"])})
    assert loaded(tmp_path / "encoded", source="hf").load().fingerprint == plain


# broken files


RECORDS = {
    "cut": (lambda data: data[:-1], ":1: 30,729 bytes are no whole number of pictures"),
    "a tenth class": (lambda data: data[:3073] + b"\x0a" + data[3074:], ":2: label '10'"),
}


@pytest.mark.parametrize(("break_", "reason"), RECORDS.values(), ids=RECORDS.keys())
def test_broken_records(tmp_path, monkeypatch, break_, reason):
    members = members_of()
    name = "cifar-10-batches-bin/data_batch_3.bin"
    file = write_archive(tmp_path / "cifar.tar.gz", monkeypatch, {**members, name: break_(members[name])})
    refuses(Image(data_root=tmp_path / "data", path=file), f"{file}/{name}{reason}")


def test_broken_archives(tmp_path, monkeypatch):
    members = members_of()
    del members["cifar-10-batches-bin/data_batch_5.bin"]
    file = write_archive(tmp_path / "a.tar.gz", monkeypatch, members)
    refuses(Image(data_root=tmp_path / "data", path=file), file, "40 + 12 instead of 50,000 + 10,000")
    del members["cifar-10-batches-bin/test_batch.bin"]
    file = write_archive(tmp_path / "c.tar.gz", monkeypatch, members)
    refuses(Image(data_root=tmp_path / "data", path=file), file, "no pictures to test")
    file = write_archive(tmp_path / "b.tar.gz", monkeypatch, {"../data_batch_1.bin": b"", **members_of()})
    refuses(Image(data_root=tmp_path / "data", path=file), file, "leads out of it")
    file.write_bytes(file.read_bytes() + b"\0")
    refuses(Image(data_root=tmp_path / "data", path=file), file, "bytes instead of", image.ARCHIVE.url)
    refuses(Image(data_root=tmp_path / "data"), image.ARCHIVE.url, "not fetched")


@pytest.mark.parametrize("kind", ["hf", "tfds"])
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda row: {**row, "label": 10}, "train:1: label '10'"),
        (lambda row: {"label": 1}, "is object ()"),
        (lambda row: {**row, "img": np.zeros((32, 32), np.uint8), "image": np.zeros((32, 32), np.uint8)}, "(32, 32)"),
    ],
)
def test_broken_libraries(tmp_path, monkeypatch, kind, change, reason):
    library(monkeypatch, kind, change)
    refuses(Image(data_root=tmp_path, source=kind), kind, "train:1: ", reason)
