"""The Text task: reviews from every source, the splits, generated data; and everything that can be broken."""

import functools
import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from tasks.examples import content_hash
from tasks.lra import classification, text
from tasks.lra.text import Text
from tests.helpers import tasks
from tests.helpers.tasks import baseline_scores, never, published, ready, refuses

SLICE = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "lra_text"


def loaded(root, **changes) -> Text:
    return ready(Text(data_root=root, **changes))


# files to read


def rows_of(split: str, count: int):
    """Reviews that differ, labels that alternate."""
    return [{"text": f" {split} review number {i}: caf\u00e9 \u2603 <br />", "label": i % 2} for i in range(count)]


def write_slice(folder: Path, train=50, test=12, end=".gz") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for split, count in (("train", train), ("test", test)):
        data = "".join(json.dumps(row) + "\n" for row in rows_of(split, count)).encode()
        (folder / f"imdb_{split}_{count}.jsonl{end}").write_bytes(gzip.compress(data) if end else data)
    return folder


def write_archive(file: Path, monkeypatch, extra=(), train=50, test=12) -> Path:
    """An archive like the published one, which `text.ARCHIVE` now means."""
    members = {"aclImdb/README": b"hello", "aclImdb/train/unsup/0_0.txt": b"no label"}
    for split, count in (("train", train), ("test", test)):
        for i, row in enumerate(rows_of(split, count)):
            members[f"aclImdb/{split}/{text.CLASSES[row['label']]}/{i}_7.txt"] = row["text"].encode()
    return published(monkeypatch, text, file, {**members, **dict(extra)})


def library(monkeypatch, kind: str, train=50, test=12):
    data = {split: rows_of(split, count) for split, count in (("train", train), ("test", test))}
    if kind == "tfds":
        data = {split: [{**row, "text": row["text"].encode()} for row in rows] for split, rows in data.items()}
    tasks.library(monkeypatch, kind, data)


def test_every_source_gives_the_same_examples(tmp_path, monkeypatch):
    library(monkeypatch, "hf")
    library(monkeypatch, "tfds")
    monkeypatch.setattr(Text, "published", (50, 12))
    path = {
        "official": write_archive(tmp_path / "aclImdb.tar.gz", monkeypatch),
        "slice": write_slice(tmp_path / "part"),
    }
    infos = {}
    for source in ("official", "hf", "tfds", "slice"):
        task = loaded(tmp_path / "data", source=source, path=path.get(source))
        infos[source] = task.load()
        task.prepare(never)
        assert infos[source].sizes == {"train": 45, "val": 5, "test": 12}
    assert len({info.fingerprint for info in infos.values()}) == 1
    assert [info.source for info in infos.values()] == ["full", "full", "full", "slice:part"]
    batch = task.split("test").batch([0])
    assert bytes((batch["tokens"][0] - 1).tolist()).decode().startswith("test review number")
    part = loaded(tmp_path / "data", source="hf", train=44)
    assert part.load().source == "slice:hf" and part.load().fingerprint != infos["hf"].fingerprint


def test_all_reviews_are_wanted_but_of_a_slice(tmp_path, monkeypatch):
    monkeypatch.setattr(Text, "published", (50, 13))
    write_archive(tmp_path / "data" / "downloads" / "aclImdb.tar.gz", monkeypatch)
    task = Text(data_root=tmp_path / "data", source="official")
    refuses(task, "source=official", "50 + 12 instead of 50 + 13 examples", "task.source=slice")
    part = loaded(tmp_path / "other", source="slice", path=write_slice(tmp_path / "part"))
    assert part.load().source == "slice:part"


def test_a_tenth_is_held_out_by_the_seed(tmp_path):
    folder = write_slice(tmp_path / "part")
    open_ = functools.partial(loaded, tmp_path / "data", source="slice", path=folder)
    tasks = {seed: open_(data_seed=seed) for seed in (0, 1)}
    held = {seed: task.split("val").examples.tokens.tobytes() for seed, task in tasks.items()}
    assert held[0] != held[1]
    few = open_(train=7, val=3)
    assert few.load().sizes == {"train": 7, "val": 3, "test": 12}
    assert held[0].startswith(few.split("val").examples.tokens.tobytes())
    assert content_hash(few.split("test").examples) == content_hash(tasks[0].split("test").examples)
    for task in tasks.values():
        seen = [bytes(row) for name in ("train", "val") for row in sequences(task.split(name).examples)]
        assert sorted(seen) == sorted(row["text"].strip().encode() for row in rows_of("train", 50))


def sequences(examples):
    return np.split(examples.tokens, examples.offsets[1:-1])


def test_validation_may_be_the_test_split(tmp_path, monkeypatch):
    monkeypatch.setattr(Text, "published", (50, 12))
    monkeypatch.setattr(classification, "SLICE", "another word")
    task = loaded(tmp_path / "data", source="slice", path=write_slice(tmp_path / "part"), validation="test")
    info = task.load()
    assert info.sizes == {"train": 50, "val": 12, "test": 12} and info.source == "full"
    assert content_hash(task.split("val").examples) == content_hash(task.split("test").examples)
    few = loaded(tmp_path / "data", source="slice", path=tmp_path / "part", validation="test", val=5)
    assert few.load().sizes["val"] == 5


# broken files

GOOD = b'{"text": "fine", "label": 1}'
BROKEN = {
    "no text": (b'{"label": 1}', "no column 'text'"),
    "empty text": (b'{"text": "", "label": 1}', "the text is empty"),
    "no label": (b'{"text": "fine"}', "no column 'label'"),
    "a word as label": (b'{"text": "fine", "label": "1"}', "label '1'"),
}


@pytest.mark.parametrize(("line", "reason"), BROKEN.values(), ids=BROKEN.keys())
def test_broken_lines(tmp_path, line, reason):
    folder = write_slice(tmp_path / "part", end="")
    [file] = folder.glob("imdb_train*")
    file.write_bytes(GOOD + b"\n" + GOOD + b"\n" + line + b"\n" + GOOD)
    refuses(Text(data_root=tmp_path / "data", source="slice", path=folder), f"{file}:3: ", reason)


def test_broken_reviews_in_the_archive(tmp_path, monkeypatch):
    name = "aclImdb/test/pos/99_7.txt"
    for i, (data, reason) in enumerate(((b" \n", "the text is empty"), (b"caf\xe9", "the text is not UTF-8 at 4"))):
        file = write_archive(tmp_path / f"{i}.tar.gz", monkeypatch, [(name, data)])
        refuses(Text(data_root=tmp_path / "data", path=file), f"{file}/{name}:1: ", reason)
    file = write_archive(tmp_path / "x.tar.gz", monkeypatch, [("aclImdb/../../evil", b"")])
    refuses(Text(data_root=tmp_path / "data", path=file), file, "leads out of it")
    file = write_archive(tmp_path / "y.tar.gz", monkeypatch, test=0)
    refuses(Text(data_root=tmp_path / "data", path=file), file, "no aclImdb/test")


@pytest.mark.skipif(not SLICE.exists(), reason="the slice is not next to the clone")
def test_real_slice(tmp_path):
    task = loaded(tmp_path, source="slice", path=SLICE)
    info = task.load()
    assert (info.source, info.sizes) == ("slice:lra_text", {"train": 3600, "val": 400, "test": 2000})
    lengths = np.concatenate([np.diff(task.split(name).examples.offsets) for name in info.sizes])
    assert lengths.mean() == pytest.approx(1330, rel=0.02) and baseline_scores(task)["acc"] == 50
    assert task.split("train").batch(range(32))["tokens"].shape[1] <= 4000
