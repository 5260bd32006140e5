"""Texts for the corpora: a piece that is killed once, tokenizers, archives, parquet files; what a split holds."""

import os
import signal
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tasks.lm import tokenizers
from tasks.lm.documents import Document

BYTES = tokenizers.Bytes()


@dataclass(frozen=True)
class Deadly:
    """A piece of one document that kills its process in the middle the first time it is read in a folder."""

    number: int
    folder: Path
    dies: bool = False
    count: int = 1

    @property
    def size(self) -> int:
        return len(self.text)

    @property
    def text(self) -> str:
        return f"document {self.number} " * (5 + self.number % 3)

    def documents(self):
        with open(self.folder / f"read-{self.number}", "a") as stream:
            stream.write(".")
        if self.dies and not (self.folder / "killed").exists():
            (self.folder / "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        yield Document(f"piece {self.number}", self.text)


def text_of(split, index: int) -> str:
    """A document of a split in bytes, without its end token."""
    ids = split.tokens_of(index)
    assert ids[-1] == BYTES.end_id and (ids[:-1] < BYTES.end_id).all()
    return bytes(ids[:-1].tolist()).decode()


def texts_of(pieces) -> list[str]:
    return [document.text for piece in pieces for document in piece.documents()]


def parquet(file: Path, texts, rows: int = 4, column: str = "text", kind=None) -> Path:
    """A file with `rows` texts in a row group."""
    file.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table({"number": pa.array(range(len(texts))), column: pa.array(texts, kind)})
    pq.write_table(table, file, row_group_size=rows)
    return file


def folder(path: Path, files: dict[str, str | bytes]) -> Path:
    for name, content in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return path
