"""Language modelling of a user's own texts: a column of a file's rows, or text files.

A row is a document, and so is each .txt file of a folder. One .txt file is cut at line ends into three: its beginning
trains, its end tests (`fractions`). A folder with train/, validation/ and test/ of .txt files is read as
PG-19's is.
Test documents that are copies of training documents are counted: `without_copies` scores the others once more.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tasks.base import DataInfo, FinalEvaluation
from tasks.checks import DataError, Progress
from tasks.data.own_files import FILES, check_columns, chosen_source, text_of
from tasks.data.rows import ALL, FORMATS, READS, Table, ending, folders_in, tables
from tasks.data.splits import check_fractions, copied, digest, divided, split_in
from tasks.data_sources import files_in
from tasks.data_task import SPLITS, SYNTHETIC, Source
from tasks.examples import AnyExamples, join
from tasks.lm.documents import Document, Piece, TextFile, cut
from tasks.lm.text_sources import FOLDERS, TEXTS, Corpus, Pieces, text_splits
from tasks.lm.windows import TokenStream, WindowSplit

TEXT = ".txt"


@dataclass(kw_only=True, eq=False, repr=False)
class OwnText(Corpus):
    """`text` names a column of the files at `path`; .txt files have none."""

    name = "data/lm"
    reads = (*READS, *TEXTS, *(f"**/{name}/{end}" for name in FOLDERS for end in TEXTS))
    repeated = ("text", "split_column", "tokenizer", "tokenizer_path", "vocabulary", "end_token", "length")

    source: str = FILES
    text: str = "text"
    split_column: str | None = None
    fractions: Sequence[float] = (0.8, 0.1, 0.1)
    tokenizer: str = "bytes"

    def __post_init__(self) -> None:
        check_fractions(self.fractions)
        self.source = chosen_source(self.source, self.path, SYNTHETIC)
        super().__post_init__()

    def sources(self) -> dict[str, Source]:
        description = f"a {TEXT} file, a folder of them, {FORMATS}"
        shared = super().sources()[SYNTHETIC]
        return {
            FILES: Source(self._read, self._files_identity, path=description, requires_path=True),
            SYNTHETIC: shared,
        }

    def check_source(self) -> None:
        super().check_source()
        if self.source == FILES and self.path.is_file() and not is_text(self.path):
            check_columns(self.path, [self.text, *([self.split_column] if self.split_column else [])])

    def _files_identity(self) -> dict[str, Any]:
        return {**self.identity(), "text": self.text, "split": self.split_column, "fractions": list(self.fractions)}

    def _read(self, progress: Progress) -> Pieces:
        path = self.path
        if folders_in(path, FOLDERS):
            return text_splits(path)
        if path.is_dir() and (files := files_in(path, f"*{TEXT}", f"*{TEXT}.gz")):
            return self._by_split([(ALL, TextFile.at(file)) for file in files])
        if is_text(path):
            return cut(path, self.fractions)
        return self._of_rows(tables(path))

    def _by_split(self, pieces: Sequence[tuple[str, Piece]]) -> Pieces:
        contents = [digest("\0".join(document.text for document in piece.documents()).encode()) for _, piece in pieces]
        named = divided([split for split, _ in pieces], contents, self.fractions, self.data_seed, self.path)
        return {
            split: [piece for (_, piece), name in zip(pieces, named, strict=True) if name == split] for split in SPLITS
        }

    def _of_rows(self, by_split: dict[str, list[Table]]) -> Pieces:
        columns = [self.text, *([self.split_column] if self.split_column else [])]
        splits, contents, sizes = [], [], []
        read = [(split, table) for split, some in by_split.items() for table in some]
        first = [0]  # number of each table's first row
        for split, table in read:
            for where, cells in table.rows(columns):
                text = text_of(cells[0], self.text, where).encode()
                splits.append(split_in(cells[1], self.split_column, where) if self.split_column else split)
                contents.append(digest(text))
                sizes.append(len(text))
            first.append(len(splits))
        named = divided(splits, contents, self.fractions, self.data_seed, self.path)
        pieces: dict[str, list[Piece]] = {split: [] for split in SPLITS}
        for (_, table), (start, stop) in zip(read, itertools.pairwise(first), strict=True):
            for split in SPLITS:
                if rows := [row for row in range(start, stop) if named[row] == split]:
                    numbers = frozenset(row - start for row in rows)
                    pieces[split].append(RowTexts(table, self.text, numbers, sum(sizes[row] for row in rows)))
        return pieces

    def load(self) -> DataInfo:
        info = super().load()
        examples = self.open(self.cached_sets()[0])
        train, test = (contents_of(examples[name]) for name in ("train", "test"))
        unseen = np.setdiff1d(np.arange(examples["test"].count), copied(train, test))
        if not len(unseen):
            raise DataError(f"{self.path}: all {examples['test'].count} test texts are copies of training texts")
        self._unseen = None
        if len(unseen) < examples["test"].count:
            self._unseen = self._windows_of(examples["test"], unseen)
        sizes = {evaluation.name: len(evaluation.split) for evaluation in self.final_evaluations()}
        return DataInfo(info.source, info.fingerprint, info.sizes | sizes)

    def _windows_of(self, documents: AnyExamples, numbers: np.ndarray) -> WindowSplit | None:
        """Windows of some documents; None where these are shorter than one."""
        some = join(part for number in numbers.tolist() for part in documents.part(number, number + 1).shards)
        stream = TokenStream(some, self.tokens_from.end_id)
        return WindowSplit(stream, self.length, self.stride) if len(stream) >= self.length else None

    def final_evaluations(self) -> Sequence[FinalEvaluation]:
        copies = [] if self._unseen is None else [FinalEvaluation("without_copies", self._unseen)]
        return [*super().final_evaluations(), *copies]


def contents_of(examples: AnyExamples) -> Iterator[bytes]:
    for number in range(examples.count):
        yield examples.tokens_of(number).tobytes()


@dataclass(frozen=True)
class RowTexts:
    """The texts of these rows of a table."""

    table: Table
    column: str
    numbers: frozenset[int]
    size: int

    @property
    def count(self) -> int:
        return len(self.numbers)

    def documents(self) -> Iterator[Document]:
        for number, (where, (text,)) in enumerate(self.table.rows((self.column,))):
            if number in self.numbers:
                yield Document(where, text_of(text, self.column, where))


def is_text(path: Path) -> bool:
    return ending(path) == TEXT
