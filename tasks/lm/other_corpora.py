"""Corpora that only test a language model, in addition to its own: those of Latte's Table 4.

pile             the Pile without its books (the Pile itself is not published any more), test part, JSON lines
openwebtext      what `lm/openwebtext` validates on
tiny_stories     TinyStories, validation part
"""

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.checks import DataError
from tasks.data_sources import files_in, json_object
from tasks.file_digests import path_identity
from tasks.lm import openwebtext
from tasks.lm.documents import Document, Piece, TextFile
from tasks.lm.parquet import refusing_arrow
from tasks.lm.text_sources import TEXTS, HubFiles

HF = "hf"  # in place of a path: the published files
PILE = HubFiles("monology/pile-uncopyrighted", "3be90335b66f24456a5d6659d9c8d208c0357119", {"test": "test.jsonl.zst"})
TINY_STORIES = HubFiles(
    "roneneldan/TinyStories",
    "f54c09fd23315a6f9c86f9dc80f725de7d8f9c64",
    {"test": "data/validation-*.parquet"},
)
LINE = 1 << 26  # bytes of a JSON line at most
PACKED = 4  # times the size of a compressed text


@dataclass(frozen=True)
class JsonLines:
    """Documents of a file with one JSON object in each line, its text in `text`, compressed with zstd."""

    file: Path
    size: int
    count: int = 1

    def documents(self) -> Iterator[Document]:
        """Raises DataError."""
        import pyarrow as pa

        with (
            refusing_arrow(self.file),
            pa.input_stream(str(self.file), compression="zstd") as packed,
            io.BufferedReader(packed) as stream,
        ):
            for number, line in enumerate(iter(lambda: stream.readline(LINE), b""), 1):
                where = f"{self.file}:{number}"
                text = json_object(line, where).get("text")
                if not isinstance(text, str):
                    raise DataError(f"{where}: no JSON object with a text", "put the right file there")
                yield Document(where, text)


def pile() -> list[Piece]:
    return [JsonLines(file, PACKED * file.stat().st_size) for file in PILE.at(None)["test"]]


def pages() -> list[Piece]:
    rows = openwebtext.HUB.rows(None)["train"]
    return list(openwebtext.divided(rows, openwebtext.held_out(sum(piece.count for piece in rows)))[1])


PUBLISHED: Mapping[str, tuple[HubFiles, Callable[[], Sequence[Piece]]]] = {
    "pile": (PILE, pile),
    "openwebtext": (openwebtext.HUB, pages),
    "tiny_stories": (TINY_STORIES, lambda: TINY_STORIES.rows(None)["test"]),
}


def pieces(name: str, source: str) -> Sequence[Piece]:
    """The texts of a corpus: the published ones, or a (gzipped) file or a folder of texts. Raises DataError."""
    if source == HF:
        return PUBLISHED[name][1]()
    path = Path(source).expanduser()
    if not path.is_dir():
        return [TextFile.at(path)]
    files = files_in(path, *TEXTS)
    if not files:
        raise DataError(f"{path}: no .txt nor .txt.gz", f"put the texts of {name} there")
    return [TextFile.at(file) for file in files]


def identity(name: str, source: str) -> dict[str, Any]:
    """The identity of the texts, a part of their cache key. Raises DataError."""
    if source == HF:
        return {"name": PUBLISHED[name][0].name, "revision": PUBLISHED[name][0].revision}
    return {"files": path_identity(Path(source).expanduser())}
