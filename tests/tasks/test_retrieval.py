"""The Retrieval task: pairs from LRA's files, two texts, generated data; and everything that can be broken."""

import gzip
from pathlib import Path

import pytest

from tasks.lra.retrieval import FILES, Retrieval
from tests.helpers.tasks import baseline_scores, ready, refused, refuses

SLICE = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "lra_retrieval"
COUNTS = {"train": 30, "val": 6, "test": 7}


def loaded(root, **changes) -> Retrieval:
    return ready(Retrieval(data_root=root, **changes))


def tsv(name: str, count: int) -> bytes:
    rows = (f"{i % 2}.0\tP{i}\tQ{i}\t{name} caf\u00e9 {i}\tsecond \u2603 {i * i}\n" for i in range(count))
    return "".join(rows).encode()


def write_files(folder: Path, end="") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, count in COUNTS.items():
        data = tsv(name, count)
        (folder / f"{FILES[name]}{end}").write_bytes(gzip.compress(data) if end else data)
    return folder


def test_a_missing_folder_says_where_to_get_it(tmp_path):
    task = Retrieval(data_root=tmp_path / "data", path=tmp_path / "nowhere")
    refuses(task, f"{tmp_path}/nowhere/new_aan_pairs.train.tsv:1: No such file", "lra_release.gz (7.7 GB)")
    with refused("No such file", "lra_release.gz (7.7 GB)"):
        task.load()


@pytest.mark.parametrize("form", ["plain", "gzipped"])
def test_files_are_read_in_every_form(tmp_path, monkeypatch, form):
    path = write_files(tmp_path / "tsv_data", ".gz" if form == "gzipped" else "")
    monkeypatch.setattr(Retrieval, "published", (36, 7))
    task = loaded(tmp_path / "data", path=path)
    info = task.load()
    assert info == loaded(tmp_path / "other", path=write_files(tmp_path / "same")).load()
    assert (info.source, info.sizes) == ("full", COUNTS)
    for name, count in COUNTS.items():
        batch = task.split(name).batch(range(count))
        assert batch["label"].tolist() == [i % 2 for i in range(count)]
        for i, pair in enumerate(batch["tokens"]):
            texts = [bytes((row[row > 0] - 1).tolist()).decode() for row in pair]
            assert texts == [f"{name} caf\u00e9 {i}", f"second \u2603 {i * i}"]
    few = loaded(tmp_path / "data", path=path, train=9, test=3)
    assert few.load().sizes == {"train": 9, "val": 6, "test": 3} and few.load().source.startswith("slice:tsv_data")
    part = loaded(tmp_path / "data", source="slice", path=path, drop_remainder=5)
    assert part.load().sizes == {"train": 30, "val": 5, "test": 5} and part.load().source.startswith("slice:tsv_data")


@pytest.mark.parametrize("append_eos", [False, True])
def test_both_towers_are_cut_and_padded_alike(tmp_path, append_eos):
    task = loaded(
        tmp_path / "data", path=write_files(tmp_path / "files"), source="slice", max_length=12, append_eos=append_eos
    )
    batch = task.split("train").batch([4, 11])
    texts = [[f"train caf\u00e9 {i}", f"second \u2603 {i * i}"] for i in (4, 11)]
    rows = [
        [[byte + 1 for byte in text.encode()[: 12 - append_eos]] + [257] * append_eos for text in pair]
        for pair in texts
    ]
    longest = max(len(row) for pair in rows for row in pair)
    assert batch["tokens"].tolist() == [[row + [0] * (longest - len(row)) for row in pair] for pair in rows]
    assert task.tokens(batch) == sum(len(row) for pair in rows for row in pair)
    assert task.backbone_kwargs()["vocab_size"] == 257 + append_eos


# broken files

GOOD = b"1.0\tP1\tP2\tfirst\tsecond"
BROKEN = {
    "four columns": (b"1.0\tP1\tP2\tfirst", "4 columns instead of 5"),
    "header": (b"label\tid1\tid2\ttext1\ttext2", "label 'label'"),
    "not UTF-8": (b"0.0\tP1\tP2\tfirst\ts\xff", "byte 17 (0xff) is not UTF-8"),
    "empty text": (b"0.0\tP1\tP2\t\tsecond", "the first text is empty"),
}


@pytest.mark.parametrize(("line", "reason"), BROKEN.values(), ids=BROKEN.keys())
def test_broken_lines(tmp_path, line, reason):
    folder = write_files(tmp_path / "files")
    file = folder / FILES["val"]
    file.write_bytes(GOOD + b"\n" + line + b"\n" + GOOD + b"\n")
    refuses(Retrieval(data_root=tmp_path / "data", path=folder), f"{file}:2: ", reason)


@pytest.mark.skipif(not SLICE.exists(), reason="the slice is not next to the clone")
def test_real_slice(tmp_path):
    task = loaded(tmp_path, source="slice", path=SLICE)
    info = task.load()
    assert (info.source, info.sizes) == ("slice:lra_retrieval", {"train": 1600, "val": 200, "test": 200})
    assert [baseline_scores(task, split=name)["acc"] for name in ("val", "test")] == [50, 50]
    batch = task.split("train").batch(range(8))
    assert batch["tokens"].shape == (8, 2, 4000) and batch["label"].tolist() == [0, 1, 1, 0, 0, 0, 0, 0]
