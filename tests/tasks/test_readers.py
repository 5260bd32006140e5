"""Every reader of records reads what editors and desktops make of a file as the file itself, in time linear in it; and
files in the forms in which the community has them."""

import json
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tasks.checks import no_progress
from tasks.data import rows
from tasks.data_sources import MARK, files_in, records_of
from tasks.finetuning import glue
from tasks.lra import listops
from tasks.lra.retrieval import texts
from tasks.mt.pair_files import of_folder as translations
from tasks.summarization import pair_files
from tasks.tts.clips import read_clips
from tests.helpers.layouts import LAYOUTS, Layout
from tests.helpers.tasks import refused
from tests.helpers.timing import cpu_s, grows_linearly


def clips(file: Path) -> list:
    return [(clip.id, clip.text) for clip in read_clips(file.parent)]


def pairs(file: Path) -> list:
    return [pair[1:] for part in pair_files.of_rows(file, cut_abstract=False) for pair in part.pairs()]


def expressions(file: Path) -> list:
    made = listops.read_tsv(file, no_progress)
    return [made.tokens.tolist(), made.labels.tolist()]


def values(read, *columns: str):
    return lambda file: [row[1] for row in read(file, columns)]


def citations(file: Path) -> list:
    return list(texts(records_of(file), str(file), no_progress))


def expression(i: int) -> str:
    return f"( ( ( [MAX {i % 10} ) 0 ) ] )\t{i % 10}"


def json_line(**entries):
    return lambda i: json.dumps({key: value.format(i) for key, value in entries.items()})


# name of the file, its header, the line of record i, how it is read
READERS = {
    "own csv": ("a.csv", "text,label", "review {},a".format, values(rows.csv_rows, "text", "label")),
    "own json": ("a.jsonl", "", json_line(text="review {}"), values(rows.json_rows, "text")),
    "glue": ("a.tsv", "text\tlabel", "text {}\t1".format, values(glue.tsv_rows, "text", "label")),
    "race": ("b.jsonl", "", json_line(text="text {}"), values(rows.json_rows, "text")),
    "listops": ("a.tsv", "Source\tTarget", expression, expressions),
    "retrieval": ("a.tsv", "", "1.0\t1\t2\tfirst text {0}\tsecond text {0}".format, citations),
    "ljspeech": ("metadata.csv", "", "LJ001-{0:04d}|Words {0}|words and words".format, clips),
    "multi-news": ("train.jsonl", "", json_line(document="document {}", summary="summary {}"), pairs),
}


def written(folder: Path, name: str, count: int, change=lambda data: data) -> Path:
    file, header, line, _ = READERS[name]
    lines = [*([header] if header else []), *map(line, range(count))]
    (folder / "wavs").mkdir(parents=True, exist_ok=True)
    for i in range(count if name == "ljspeech" else 0):
        (folder / f"wavs/LJ001-{i:04d}.wav").touch()
    (folder / file).write_bytes(change(("\n".join(lines) + "\n").encode()))
    return folder / file


CHANGES = {
    "byte order mark": lambda data: MARK + data,
    "line ends of Windows": lambda data: data.replace(b"\n", b"\r\n"),
    "blank last lines": lambda data: data + b"\n \n",
    "no last line end": lambda data: data.rstrip(b"\n"),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", READERS)
def test_what_an_editor_makes_of_a_file_is_read_as_the_file(tmp_path, name, change):
    read = READERS[name][-1]
    plain = read(written(tmp_path / "plain", name, 20))
    assert plain and read(written(tmp_path / "changed", name, 20, CHANGES[change])) == plain


BROKEN = {
    "not UTF-8": lambda line: line[:-3] + b"\xff" + line[-3:],
    "no JSON": lambda line: b"text,label",
    "cut JSON": lambda line: line[:-9],
    "a list": lambda line: b'["fine", 1]',
    "deep": lambda line: b"[" * 100_000,
    "half a character": lambda line: line.replace(b'": "', b'": "\\ud83d ', 1),
}


@pytest.mark.parametrize("kind", BROKEN)
@pytest.mark.parametrize("name", READERS)
def test_a_broken_record_is_named_with_its_line(tmp_path, name, kind):
    file = written(tmp_path, name, 9)
    if kind != "not UTF-8" and file.suffix != ".jsonl":
        return
    lines = file.read_bytes().split(b"\n")
    lines[4] = BROKEN[kind](lines[4])
    file.write_bytes(b"\n".join(lines))
    with refused(f"{file}:5: "):
        READERS[name][-1](file)


@pytest.mark.parametrize("name", READERS)
def test_time_is_linear_in_the_records(tmp_path, name):
    def seconds(number: int) -> float:
        return cpu_s(READERS[name][-1], written(tmp_path / str(number), name, number))

    assert grows_linearly(seconds, 1000, 0.02)


def reader_of(name: str) -> object:
    """What reads the folder of a task: series differ in their columns only."""
    return "series" if name.startswith("forecasting/") else LAYOUTS[name]


# times the small folder: of large files fewer, and where 10 were too few to find a time that is not linear, more
FEW = {
    "lm/wikitext103": 20,
    "tts/ljspeech": 3,
    "lra/pathx": 2,
    "lra/pathfinder": 2,
    "lra/image": 2,
    "forecasting/weather": 5,
}


@pytest.mark.parametrize("name", {reader_of(name): name for name in LAYOUTS}.values())
def test_time_is_linear_in_the_data_of_each_task(tmp_path, monkeypatch, name):
    fresh = count()

    def seconds(times: int) -> float:
        folder = tmp_path / str(next(fresh))  # what another try has prepared would be read, not made
        task = Layout(name, folder / "data", folder / "prepared", monkeypatch, times).task()
        return cpu_s(lambda: (task.prepare(no_progress), task.load()))

    assert grows_linearly(seconds, FEW.get(name, 10), 0.05)


@pytest.mark.parametrize("name", {reader_of(name): name for name in LAYOUTS}.values())
def test_a_broken_file_is_found_by_prepare_and_named(tmp_path, monkeypatch, name):
    layout = Layout(name, tmp_path / "data", tmp_path / "prepared", monkeypatch)
    for file in [path for path in sorted((tmp_path / "data").rglob("*")) if path.is_file()]:
        if name == "completion/pcn" and "train" in file.parts:  # 231,792 clouds, each read when training draws it
            continue
        data = file.read_bytes()
        at = len(data) // 2
        file.write_bytes(data[:at] + b"\xff" * (len(data) - at if file.suffix != ".wav" else 0))
        with refused(str(file.relative_to(tmp_path / "data"))):
            layout.task().prepare(no_progress)
        file.write_bytes(data)


@pytest.mark.parametrize("name", ["._a.txt", ".DS_Store", "Thumbs.db", "__MACOSX/a.txt", ".hidden/a.txt"])
def test_what_a_desktop_leaves_in_a_folder_is_no_file_of_it(tmp_path, name):
    for file in ("b.txt", "a.txt", name):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).touch()
    assert files_in(tmp_path, "**/*.txt", "*.db", ".*") == [tmp_path / "a.txt", tmp_path / "b.txt"]


def test_translations_in_subwords_and_sgml_are_texts(tmp_path):
    for language, side in (("en", "ref"), ("de", "src")):
        for split in ("train", "valid"):
            (tmp_path / f"{split}.tok.clean.bpe.32000.{language}").write_text(f"a wo@@ rd in {language} .\n")
        segments = f'<doc><hl>\n<seg id="1">A &amp; B in {language}.</seg>\n</hl></doc>'
        (tmp_path / f"newstest2014-deen-{side}.{language}.sgm").write_text(segments)
    made = {
        name: [pair[1:] for part in parts for pair in part.pairs()] for name, parts in translations(tmp_path).items()
    }
    assert made["train"] == made["dev"] == [("a word in en.", "a word in de.")]
    assert made["test"] == [("A & B in en.", "A & B in de.")]


def test_summaries_in_parquet_and_under_the_names_of_their_release(tmp_path):
    (tmp_path / "rows").mkdir()
    (tmp_path / "lines").mkdir()
    for split in ("train", "val", "test"):
        table = pa.table({"document": ["a b"], "summary": ["c"]})
        pq.write_table(table, tmp_path / f"rows/{split}-00000-of-00001.parquet")
        for side, words in (("src", "a b"), ("tgt", "c")):
            (tmp_path / f"lines/{split}.txt.{side}.tokenized.fixed.cleaned.final.truncated.txt").write_text(
                f"{words}\n"
            )
    for folder in ("rows", "lines"):
        of_split = pair_files.pieces(tmp_path / folder, cut_abstract=False)
        assert {name: [pair[1:] for part in parts for pair in part.pairs()] for name, parts in of_split.items()} == (
            {key: [("a b", "c")] for key in ("train", "val", "test")}
        )
