"""Rows of a user's files: every format gives the same, every defect is one line with file, line and column."""

import csv
import datetime
import gzip
import json
import os
import time

import pytest

from tasks.checks import DataError
from tasks.data import rows
from tasks.data.rows import tables
from tasks.lm import parquet
from tests.helpers.tasks import refused

TEXTS = [("first, with a comma", "a"), ('second\nin "two" lines', "b"), ("third, ä", "a")]
COLUMNS = ("text", "label")


def write(folder, name, pairs=TEXTS, columns=COLUMNS):
    file = folder / name
    stem = name.removesuffix(".gz")
    if stem.endswith((".csv", ".tsv")):
        opener = gzip.open if name.endswith(".gz") else open
        with opener(file, "wt", newline="", encoding="utf-8") as stream:
            writer = csv.writer(stream, delimiter="\t" if stem.endswith(".tsv") else ",")
            writer.writerows([("id", *columns), *((number, *pair) for number, pair in enumerate(pairs))])
    elif stem.endswith((".jsonl", ".ndjson")):
        lines = "".join(json.dumps(dict(zip(columns, pair, strict=True))) + "\n" for pair in pairs).encode()
        file.write_bytes(gzip.compress(lines) if name.endswith(".gz") else lines)
    else:
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table({name: [pair[i] for pair in pairs] for i, name in enumerate(columns)}), file)
    return file


def read(path, columns=COLUMNS):
    return {
        split: [row.values for table in some for row in table.rows(columns)] for split, some in tables(path).items()
    }


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.tsv", "a.jsonl", "a.ndjson.gz", "a.parquet"])
def test_every_format_gives_the_same_rows(tmp_path, name):
    assert read(write(tmp_path, name)) == {"all": TEXTS}
    assert read(tmp_path / name, ("label", "text")) == {"all": [pair[::-1] for pair in TEXTS]}


def test_names_of_files_tell_the_split(tmp_path):
    for name in ("train-0.csv", "train-1.csv", "dev.csv", "test.csv"):
        write(tmp_path, name)
    assert {split: len(some) for split, some in read(tmp_path).items()} == {"train": 6, "val": 3, "test": 3}
    write(tmp_path, "more.csv")
    with pytest.raises(DataError, match=r"more\.csv begins with none of"):
        tables(tmp_path)


def test_files_without_these_names_are_one_table(tmp_path):
    write(tmp_path, "a.csv")
    write(tmp_path, "b.jsonl")
    (tmp_path / "readme.md").write_text("not read")
    assert read(tmp_path) == {"all": TEXTS + TEXTS}


@pytest.mark.parametrize(("name", "content", "message"), [
    ("a.csv", b"text,label\nx,y\nz\n", r"a\.csv:3: 1 cells under 2 columns"),
    ("a.csv", b"words,label\nx,y\n", r"a\.csv:1: no column 'text', there is words, label"),
    ("a.csv", b"text,label,label\nx,y,z\n", r"a\.csv:1: 2 columns 'label'; give each column a name of its own"),
    ("a.csv", b"", r"a\.csv:1: empty; begin it with the names of its columns, among them 'text'"),
    ("a.csv", b"text,label\n", r"a\.csv: no rows"),
    ("a.csv", b'text,label\n"x,y\n', r"a\.csv:2: unexpected end of data"),
    ("a.csv", b"text,label\nx\xff,y\n", r"a\.csv:2: byte 1 \(0xff\) is not UTF-8"),
    ("a.csv.gz", b"no gzip", r"a\.csv\.gz:1: "),
    ("a.jsonl", b'{"text": "x", "label": "y"}\n{"text": "x"}\n', r"a\.jsonl:2: no column 'label', there is text"),
    ("a.jsonl", b'{"text"\n', r"a\.jsonl:1: no JSON"),
    ("a.jsonl", b"[1]\n", r"a\.jsonl:1: no JSON object"),
    ("a.jsonl", b'{"text": "x", "label": "y", "label": "z"}\n', "an object with two values of 'label'"),
    ("a.parquet", b"PAR1", r"a\.parquet: "),
    ("a.xlsx", b"x", r"a\.xlsx: of an unknown kind"),
    ("a.pkl", b"x", r"a\.pkl: of an unknown kind"),
])  # fmt: skip
def test_a_broken_file_is_one_line_with_its_place(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with refused(match=message):
        read(tmp_path / name)


def test_only_regular_files_are_read(tmp_path):
    os.mkfifo(tmp_path / "a.csv")
    for path in (tmp_path / "a.csv", tmp_path / "missing.csv", tmp_path / "empty"):
        with pytest.raises(DataError, match=r"(a\.csv|missing\.csv|empty):1"):
            tables(path)


def test_a_line_has_a_bound(tmp_path, monkeypatch):
    monkeypatch.setattr("tasks.data_sources.LONGEST_LINE", 100)
    monkeypatch.setattr(rows, "LONGEST_LINE", 100)
    (tmp_path / "a.csv").write_text("text,label\n" + "x" * 200 + ",y\n")
    with pytest.raises(DataError, match=r"a\.csv:2: more than 0 MiB in a line"):
        read(tmp_path / "a.csv")
    (tmp_path / "a.csv").write_text('text,label\n"' + ("x" * 50 + "\n") * 4 + '",y\n')
    with pytest.raises(DataError, match="field larger than field limit"):
        read(tmp_path / "a.csv")


def test_what_unpacks_without_end_is_refused_within_seconds(tmp_path):
    """Two letters a row, so that as many rows as possible lie in a small file."""
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"text,label\n" + b"a,b\n" * (4 << 20)))
    started = time.process_time()
    with pytest.raises(DataError, match=r"a\.csv\.gz:\d+: it unpacks to more than \d MiB") as error:
        read(tmp_path / "a.csv.gz")
    assert "\n" not in str(error.value) and time.process_time() - started < 5


def test_a_quotation_without_end_is_refused_within_seconds(tmp_path):
    (tmp_path / "a.csv").write_bytes(b'text,label\nx,y\n"' + b"x\n" * (1 << 18))
    started = time.process_time()
    with pytest.raises(DataError, match=r"a\.csv:3: unexpected end of data; close its quotation") as error:
        read(tmp_path / "a.csv")
    assert "\n" not in str(error.value) and time.process_time() - started < 5
    (tmp_path / "a.csv").write_text('text,label\n"1\n2\n3\n4",y\n"1\n2\n3\n4",y\n')
    assert read(tmp_path / "a.csv") == {"all": [("1\n2\n3\n4", "y")] * 2}


def test_a_parquet_file_that_unpacks_without_end_is_refused_before_it_is_read(tmp_path, monkeypatch):
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({"text": ["x" * (20 << 20)], "label": ["a"]})
    pq.write_table(table, tmp_path / "a.parquet", compression="gzip", use_dictionary=False)
    assert (tmp_path / "a.parquet").stat().st_size < 1 << 20
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", lambda *_, **__: pytest.fail("it is read"))
    with refused(match="it unpacks to 20 MiB, a text of its size to"):
        read(tmp_path / "a.parquet")
    with pytest.raises(DataError, match="it unpacks to 20 MiB"):
        parquet.parquet_rows(tmp_path / "a.parquet")


def parquet_of(folder, **columns):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table(columns), folder / "a.parquet")
    return folder / "a.parquet"


@pytest.mark.parametrize("values", [[{"a": 1}], [["x"]], [[[1]]], [b"x"], [datetime.date(1, 1, 1)], [[{"a": 1}]]])
def test_columns_hold_texts_numbers_or_lists_of_numbers(tmp_path, values):
    file = parquet_of(tmp_path, text=["x"], label=values)
    with refused(match=r"a\.parquet: column 'label' holds .*, no texts, numbers"):
        read(file)
    assert read(file, ("text",)) == {"all": [("x",)]}


def test_cells_of_a_binary_file_have_bounds(tmp_path, monkeypatch):
    monkeypatch.setattr(rows, "LONGEST_LINE", 10)
    monkeypatch.setattr(rows, "LONGEST_LIST", 3)
    file = parquet_of(tmp_path, text=["x", "x" * 11], label=[[1, 2], [1, 2, 3]])
    assert read(file, ("label",)) == {"all": [([1, 2],), ([1, 2, 3],)]}
    with pytest.raises(DataError, match="more than 0 MiB in a cell"):
        read(file)
    with pytest.raises(DataError, match="column 'label': more than 3 numbers in a cell"):
        read(parquet_of(tmp_path, text=["x"], label=[[1, 2, 3, 4]]))


@pytest.mark.parametrize("name", ["a.parquet", "a.csv"])
def test_a_table_has_a_bound(tmp_path, monkeypatch, name):
    monkeypatch.setattr(rows, "MOST_ROWS", 2)
    with pytest.raises(DataError, match="more than 2"):
        read(write(tmp_path, name))


def test_a_text_that_is_repeated_is_kept_once(tmp_path):
    file = parquet_of(tmp_path, text=["x" * (1 << 20)] * 200, label=["a", "b"] * 100)
    import pyarrow as pa

    before, most = pa.total_allocated_bytes(), 0
    (table,) = tables(file)["all"]
    for _ in table.rows(COLUMNS):
        most = max(most, pa.total_allocated_bytes() - before)
    assert most < 50 << 20


def test_a_broken_text_of_a_parquet_file_has_its_row(tmp_path):
    import pyarrow as pa

    data = pa.array([b"x", b"y", b"\xff"])
    file = parquet_of(tmp_path, text=pa.StringArray.from_buffers(3, *data.buffers()[1:]), label=["a", "b", "a"])
    with pytest.raises(DataError, match=r"a\.parquet:3: byte 0 \(0xff\) is not UTF-8"):
        read(file)
