"""Sources of the corpora: a folder or archive of texts, parquet files of the hub, generated stories."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar, NamedTuple

from tasks import data_sources
from tasks.checks import DataError, Progress
from tasks.data_task import SLICE, SPLITS, SYNTHETIC, Source
from tasks.lm import synthetic_text
from tasks.lm.documents import Piece, TextFile, members
from tasks.lm.language_modelling import LanguageModelling
from tasks.lm.parquet import ParquetRows, parquet_rows
from tasks.lm.synthetic_text import Stories

Pieces = Mapping[str, Sequence[Piece]]  # of each split

FOLDERS = {"train": "train", "validation": "val", "valid": "val", "val": "val", "test": "test"}  # and their splits
MEMBER = re.compile(rf"(?:[^/]+/)*({'|'.join(FOLDERS)})/[^/]+\.txt")
TEXTS = ("*.txt", "*.txt.gz")
LAYOUT = "a folder or tar archive with train/, validation/ and test/ of .txt files, one document each"
ENDS = re.compile(r"(\.(tar|tgz|zip|gz|bz2|xz))+$")


class HubFiles(NamedTuple):
    """Parquet files of a data set of the hub: the files of each of its splits, in order of their names."""

    name: str
    revision: str
    patterns: Mapping[str, str]

    def at(self, path: Path | None) -> dict[str, list[Path]]:
        """The files by split, in `path` if it is given, else from the hub. Raises DataError."""
        folder = path or data_sources.files_from_hub(self.name, self.revision, list(self.patterns.values()))
        files_by_split = {}
        for split, pattern in self.patterns.items():
            # a folder filled by hand may lack the folders in between
            files = data_sources.files_in(folder, pattern)
            files = files or data_sources.files_in(folder, f"**/{pattern.rsplit('/', 1)[-1]}")
            if not files:
                cure = f"put the files of https://huggingface.co/datasets/{self.name} there"
                raise DataError(f"{folder}: no {pattern}", cure)
            files_by_split[split] = files
        return files_by_split

    def rows(self, path: Path | None, *, joined: int | None = None) -> dict[str, list[ParquetRows]]:
        """All rows of each of its splits. Raises DataError."""
        files = self.at(path)
        return {
            split: [piece for file in some for piece in parquet_rows(file, joined=joined)]
            for split, some in files.items()
        }


@dataclass(kw_only=True, eq=False, repr=False)
class Corpus(LanguageModelling):
    """A corpus: what its sources share.

    `hf` reads the hub's parquet files, or `path`: a folder with them. `slice` reads `path`: a folder or archive of
    texts laid out like PG-19's, after which the results are named. `synthetic` generates `documents` stories to train
    and an eighth as many to validate and to test; `document_bytes`, `names` and `distance`: tasks/lm/synthetic_text.py.
    """

    hub: ClassVar[HubFiles | None] = None
    hub_is_complete: ClassVar[bool] = True

    documents: int = 512
    document_bytes: int = 8192
    names: int = 40
    distance: int = 2048

    def sources(self) -> dict[str, Source]:
        hub = {} if self.hub is None else {"hf": self._hub_source(self.hub)}
        return {
            **hub,
            SLICE: Source(self.read_slice, self.identity, path=LAYOUT, requires_path=True),
            SYNTHETIC: Source(
                lambda progress: Stories.splits(self.documents, SPLITS, seed=self.data_seed, **self._story()),
                lambda: {"version": synthetic_text.VERSION, "documents": self.documents, **self._story()},
                check=lambda: synthetic_text.check(self.documents, **self._story()),
            ),
        }

    def _hub_source(self, files: HubFiles) -> Source:
        """The files of the hub, or of `path`."""
        identity = partial(self.identity, name=files.name, revision=files.revision)
        layout = f"a folder with the parquet files of {files.name}"
        return Source(self._hub, identity, path=layout, complete=self.hub_is_complete)

    def _hub(self, progress: Progress) -> Pieces:
        return self.hub.rows(self.path)

    def read_slice(self, progress: Progress) -> Pieces:
        return text_splits(self.path)

    def origin(self, complete: bool, part: str | None = None) -> str:
        return super().origin(complete, part or (self.path and part_name(self.path)))

    def _story(self) -> dict[str, int]:
        return {"document_bytes": self.document_bytes, "names": self.names, "distance": self.distance}


def text_splits(path: Path) -> Pieces:
    """Pieces of the texts in a folder or tar archive, one document per file, in order of the files' names.

    Raises DataError if a split has none.
    """
    splits: dict[str, list[Piece]] = {name: [] for name in SPLITS}
    if path.is_dir():
        folder = inner_folder(path)
        for name, split in FOLDERS.items():
            files = data_sources.files_in(folder, *(f"{name}/{end}" for end in TEXTS))
            splits[split] += [TextFile.at(file) for file in files]
    else:
        for name, pieces in members(path, MEMBER).items():
            splits[FOLDERS[name]] += pieces
    if empty := [name for name in SPLITS if not splits[name]]:
        raise DataError(f"{path}: no texts to {empty[0]}", f"it is to be {LAYOUT}")
    return splits


def inner_folder(folder: Path) -> Path:
    """The folder, or the only one in it, as archives unpack."""
    inside = data_sources.files_in(folder, "*")
    return inside[0] if len(inside) == 1 and inside[0].is_dir() and inside[0].name not in FOLDERS else folder


def part_name(path: Path) -> str:
    """The name of a part of published data: its file or folder without an archive's suffixes."""
    return ENDS.sub("", path.resolve().name)
