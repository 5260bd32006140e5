"""Documents become examples: labels, lines, skipped texts, any shards, workers and kills, and damage in one line."""

import gzip
import pickle
from concurrent.futures.process import BrokenProcessPool
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from tasks import cache
from tasks.checks import DataError
from tasks.examples import content_hash, join
from tasks.lm import documents
from tasks.lm.articles import article_index
from tasks.lm.documents import Document, TextFile, shards
from tasks.lm.parquet import parquet_rows
from tasks.lm.text_sources import MEMBER, text_splits
from tests.helpers.tasks import refused, tar
from tests.helpers.texts import BYTES, Deadly, folder, parquet, text_of, texts_of
from tests.helpers.timing import cpu_s, grows_linearly

TEXTS = {"train/10.txt": "Ten words.\nÆ", "train/9.txt": " nine  ", "validation/1.txt": "one", "test/2.txt": "two\n"}
WIKI = (
    b" \n = Tern = \n \n A tern is a bird . \n \n = = Life = = \n \n It flies . \n = 1 rad / s and k = \n so \n \n"
    b" = = = Nest = = = \n \n"
    b" \n = No = heading \n"
    b" \n = Gull = \n \n Gulls \xc3\xa9 . \n"
)


def encoded(pieces, reading="packed", tokenizer=BYTES):
    made = shards(pieces, tokenizer, reading=reading, title="train")
    return join(make() for make in made.makers)


def files(tmp_path, texts):
    folder(tmp_path, {f"{number}.txt": text for number, text in enumerate(texts)})
    return [TextFile.at(tmp_path / f"{number}.txt") for number in range(len(texts))]


def test_a_document_is_closed_and_counted(tmp_path):
    examples = encoded(files(tmp_path, ["To be, or\n not ", "é"]))
    assert examples.tokens.dtype == np.uint16 and examples.labels.dtype == np.int64
    assert examples.tokens.tolist() == [*b"To be, or\n not ", 256, *"é".encode(), 256]
    assert examples.offsets.tolist() == [0, 16, 19] and examples.labels.tolist() == [[4, 15], [1, 2]]


def test_lines_are_stripped_and_closed(tmp_path):
    """CAB's reading by hand: a blank line is a lone end token, and the document has no further one."""
    examples = encoded(files(tmp_path, ["  ab\r\n\n \tc d \n", "\ne", "f\n\n"]), "lines")
    end = 256
    assert examples.tokens.tolist() == [*b"ab", end, end, *b"c d", end, end, *b"e", end, *b"f", end, end]
    assert examples.lengths.tolist() == [8, 3, 3]
    assert examples.labels.tolist() == [[3, 14], [1, 2], [1, 3]], "words and bytes of the text as it was read"


def test_texts_without_a_word_are_left_out_and_a_split_of_them_is_refused(tmp_path):
    examples = encoded(files(tmp_path, ["", "a", " \n\t", "b"]))
    assert [text_of(examples, i) for i in range(2)] == ["a", "b"] and examples.count == 2
    with refused("empty/0.txt", "no words in it"):
        encoded(files(tmp_path / "empty", ["", "\n"]))
    with pytest.raises(DataError, match="train: no documents"):
        encoded([])


def test_small_batches_change_nothing(tmp_path, monkeypatch):
    pieces = files(tmp_path, ["one two\nthree", "", "four\n"] * 5)
    expected = {reading: encoded(pieces, reading) for reading in documents.READINGS}
    monkeypatch.setattr(documents, "BATCH", 10)
    monkeypatch.setattr(documents, "SHARD", 30)
    assert len(shards(pieces, BYTES, reading="packed", title="").makers) > 3
    for reading, whole in expected.items():
        assert content_hash(encoded(pieces, reading)) == content_hash(whole)


def test_pieces_are_grouped_by_size(monkeypatch):
    monkeypatch.setattr(documents, "SHARD", 100)
    pieces = [documents.Members(None, (str(i),), size) for i, size in enumerate([40, 60, 1, 300, 99, 1, 1])]
    groups = [make.pieces for make in shards(pieces, BYTES, reading="packed", title="").makers]
    assert [[piece.size for piece in group] for group in groups] == [[40, 60], [1], [300], [99, 1], [1]]


def test_time_to_group_is_linear_in_the_pieces():
    def seconds(count):
        pieces = [SimpleNamespace(size=70) for _ in range(count)]
        return cpu_s(lambda: list(documents.grouped(pieces, 1 << 30)))

    assert grows_linearly(seconds, 2000, 0.02)


def write(folder, tmp_path, *, workers, dies=False, count=8):
    pieces = [Deadly(number, tmp_path, dies=dies and number == 5) for number in range(count)]
    made = {
        name: shards(some, BYTES, reading="packed", title=name)
        for name, some in (("train", pieces), ("test", pieces[:1]))
    }
    cache.write(folder, made, {"seed": 1}, workers=workers)
    return cache.read(folder, {"seed": 1})


def test_one_fingerprint_for_any_workers_and_after_a_kill(tmp_path, monkeypatch):
    monkeypatch.setattr(documents, "SHARD", 150)
    alone, manifest = write(tmp_path / "one", tmp_path, workers=1)
    assert 2 < len(alone["train"].shards) < 8
    with pytest.raises(BrokenProcessPool):
        write(tmp_path / "two", tmp_path, workers=2, dies=True)
    assert not (tmp_path / "two").exists() and list((tmp_path / ".two.partial").glob("*.arrow"))
    for file in tmp_path.glob("read-*"):
        file.unlink()
    killed, resumed = write(tmp_path / "two", tmp_path, workers=1, dies=True)
    assert resumed == manifest, "kills and workers leave no trace"
    assert len(list(tmp_path.glob("read-*"))) < 8, "a finished shard was read again"
    words, size = alone["train"].labels.sum(0).tolist()
    assert manifest["splits"]["train"]["label_sums"] == [words, size]
    assert (killed["train"].labels == alone["train"].labels).all() and killed["train"].labels.shape == (8, 2)
    assert text_of(killed["train"], 5) == Deadly(5, tmp_path).text


def test_labels_of_two_columns_are_part_of_the_content(tmp_path):
    whole = encoded(files(tmp_path, ["a b", "c"]))
    flat = whole._replace(labels=whole.labels.ravel(), offsets=np.array([0, 1, 2, 3, 6]))
    assert content_hash(whole) != content_hash(whole._replace(labels=whole.labels[:, ::-1]))
    assert content_hash(whole) != content_hash(flat)
    cache.write(tmp_path / "set", {"train": whole}, {})
    stored = cache.read(tmp_path / "set", {})[0]["train"]
    assert stored.labels.tolist() == [[2, 3], [1, 1]] and content_hash(stored.part(1, 2)) == content_hash(
        whole.part(1, 2)
    )
    data = bytearray((tmp_path / "set" / "train.arrow").read_bytes())
    at = data.rindex(np.array([2, 3], "<i8").tobytes())
    data[at] = 9
    (tmp_path / "set" / "train.arrow").write_bytes(data)
    with pytest.raises(cache.CacheError, match="damaged"):
        cache.read(tmp_path / "set", {})


def test_folders_and_archives_give_the_same_documents(tmp_path):
    texts = {name: text.encode() for name, text in TEXTS.items()}
    folders = [
        folder(tmp_path / "plain", TEXTS),
        folder(tmp_path / "inner" / "pg19", TEXTS).parent,
        folder(tmp_path / "zipped", {f"{name}.gz": gzip.compress(text) for name, text in texts.items()}),
        tar(tmp_path / "a.tar.gz", {f"pg19/{name}": texts[name] for name in reversed(texts)} | {"pg19/x.csv": b"x"}),
    ]
    for path in folders:
        splits = text_splits(path)
        assert {name: texts_of(pieces) for name, pieces in splits.items()} == {
            "train": [TEXTS["train/10.txt"], TEXTS["train/9.txt"]],  # in the order of names, as characters
            "val": ["one"],
            "test": ["two\n"],
        }
        assert sum(piece.count for piece in splits["train"]) == 2
    with refused(tmp_path / "part", "no texts to val"):
        text_splits(folder(tmp_path / "part", {"train/1.txt": "a", "test/1.txt": "b"}))


def test_an_archive_is_read_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(documents, "SHARD", 15)
    texts = {f"a/train/{number}.txt": f"text {number} {'x' * number}".encode() for number in range(7)}
    pieces = documents.members(tar(tmp_path / "a.tar", texts), MEMBER)["train"]
    assert len(pieces) > 2 and all(piece.size <= 15 for piece in pieces)
    assert texts_of(pieces) == [text.decode() for text in texts.values()]


def test_invalid_utf8_is_named_by_file_and_byte(tmp_path):
    bad = b"abc \xff def"
    wiki = WIKI.replace(b"\xc3\xa9", b"\xc3\xc3")
    folder(tmp_path, {"bad.txt": bad, "bad.txt.gz": gzip.compress(bad), "wiki.raw": wiki})
    whole = {f"{split}/1.txt": b"a" for split in ("train", "val", "test")}
    archive = tar(tmp_path / "a.tar", whole | {"train/2.txt": bad})
    for pieces, where, byte in (
        ([TextFile.at(tmp_path / "bad.txt")], tmp_path / "bad.txt", 4),
        ([TextFile.at(tmp_path / "bad.txt.gz")], tmp_path / "bad.txt.gz", 4),
        (text_splits(archive)["train"], f"{archive}/train/2.txt", 4),
        (article_index(tmp_path / "wiki.raw").pieces(size=1), tmp_path / "wiki.raw", wiki.index(b"\xc3\xc3")),
    ):
        with refused(f"{where}: byte {byte} (0x", "is not UTF-8"):
            encoded(pieces)


def test_a_file_that_is_cut_off_is_one_line(tmp_path):
    zipped = gzip.compress(WIKI * 50, mtime=0)
    rows = parquet(tmp_path / "rows.parquet", ["some text"] * 9).read_bytes()
    folder(tmp_path, {"cut.txt.gz": zipped[:-40], "cut.parquet": rows[:-40]})
    for read, name in (
        (lambda: encoded([TextFile.at(tmp_path / "cut.txt.gz")]), "cut.txt.gz"),
        (lambda: article_index(tmp_path / "cut.txt.gz"), "cut.txt.gz"),
        (lambda: parquet_rows(tmp_path / "cut.parquet"), "cut.parquet"),
        (lambda: TextFile.at(tmp_path / "missing.txt"), "missing.txt"),
    ):
        with refused(tmp_path / name):
            read()
    pieces = parquet_rows(tmp_path / "rows.parquet")
    end = int.from_bytes(rows[-8:-4], "little") + 8
    (tmp_path / "rows.parquet").write_bytes(b"\xff" * (len(rows) - end) + rows[-end:])
    with refused(tmp_path / "rows.parquet"):
        encoded(pieces)


def test_rows_are_documents_however_they_are_cut(tmp_path, monkeypatch):
    texts = [f"row {number} é" for number in range(11)]
    file = parquet(tmp_path / "rows.parquet", texts, rows=6)
    assert [(piece.group, piece.first, piece.count) for piece in parquet_rows(file)] == [(0, 0, 6), (1, 6, 5)]
    for size in (1, 40, 1 << 20):
        monkeypatch.setattr("tasks.lm.parquet.SHARD", size)
        pieces = parquet_rows(file)
        documents = [document for piece in pieces for document in piece.documents()]
        assert documents == [Document(f"{file}:{number}", text) for number, text in enumerate(texts, 1)]
    assert len({(piece.group, piece.start) for piece in pieces}) == 2
    monkeypatch.setattr("tasks.lm.parquet.SHARD", 1 << 20)
    joined = parquet_rows(file, joined=4)
    assert sum(piece.count for piece in joined) == 4
    assert texts_of(joined) == [
        "".join(f"{text}\n" for text in some) for some in (texts[:4], texts[4:6], texts[6:10], texts[10:])
    ]


@pytest.mark.parametrize(
    ("texts", "options", "reason"),
    [
        (["a", None, "b"], {}, "rows.parquet:2: no text in this row"),
        (["a"], {"column": "body"}, "no column text with strings"),
        ([1, 2], {}, "no column text with strings"),
    ],
)
def test_rows_that_are_no_texts_are_one_line(tmp_path, texts, options, reason):
    file = parquet(tmp_path / "rows.parquet", texts, **options)
    with refused(file, reason):
        encoded(parquet_rows(file))


def test_a_row_with_invalid_utf8_is_named(tmp_path):
    file = parquet(tmp_path / "rows.parquet", pa.array([b"fine", b"ab\xff"]).view(pa.string()))
    with refused(f"{file}:2: byte 2 (0xff) is not UTF-8"):
        encoded(parquet_rows(file))


@pytest.mark.parametrize("zipped", [False, True])
def test_articles_begin_at_headings_between_blank_lines(tmp_path, zipped):
    file = tmp_path / ("wiki.raw.gz" if zipped else "wiki.raw")
    file.write_bytes(gzip.compress(WIKI) if zipped else WIKI)
    index = article_index(file)
    assert (index.lines, index.size, len(index.starts)) == (WIKI.count(b"\n"), len(WIKI), 2)
    expected = [WIKI[: WIKI.index(b" \n = Gull")].decode(), WIKI[WIKI.index(b" \n = Gull") :].decode()]
    for size in (1, len(WIKI)):
        articles = [document for piece in index.pieces(size=size) for document in piece.documents()]
        assert [document.text for document in articles] == expected
        assert [document.where for document in articles] == [f"{file}:1", f"{file}:16"]
    assert texts_of(index.pieces(1)) == expected[1:] and texts_of(index.pieces(0, 1)) == expected[:1]


@pytest.mark.parametrize("start", [b"", b" = Tern = \n", b"Before it. \n"])
def test_what_stands_before_the_first_heading_is_not_lost(tmp_path, start):
    file = tmp_path / "wiki.raw"
    file.write_bytes(start + WIKI)
    index = article_index(file)
    assert len(index.starts) == 2 + bool(start) and "".join(texts_of(index.pieces(size=1))).encode() == start + WIKI


def test_pieces_can_be_sent_to_other_processes(tmp_path):
    file = parquet(tmp_path / "rows.parquet", ["a", "b"])
    folder(tmp_path, {"wiki.raw": WIKI})
    every = [*parquet_rows(file), *article_index(tmp_path / "wiki.raw").pieces()]
    again = pickle.loads(pickle.dumps(every))
    assert again == every and texts_of(again) == texts_of(every)
