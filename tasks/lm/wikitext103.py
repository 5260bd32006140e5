"""WikiText-103: good articles of Wikipedia (Merity et al., 2017): 28,475 to train, 60 to validate, 60 to test.

The raw version: no word is replaced by `<unk>`. A document is an article, from the blank line before its heading on;
documents one after another are the file. The published numbers of lines must match.

`hf` has one line per row, from which the files are put together again, so that all sources give the same documents. A
slice without a training file trains on the validation text less the last tenth of its articles, and validates on those.
"""

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.checks import DataError, Progress
from tasks.data_sources import BROKEN, MIB, Download, refusing, write_whole
from tasks.data_task import SLICE, Source
from tasks.lm.articles import ArticleIndex, Articles, article_index
from tasks.lm.text_sources import Corpus, HubFiles, Pieces
from tasks.regular_files import open_regular

LINES = {"train": 1_801_350, "val": 3_760, "test": 4_358}
NAMES = {"train": "train", "val": "valid", "test": "test"}  # of the splits in file names
ZIP = Download(
    "https://wikitext.smerity.com/wikitext-103-raw-v1.zip",
    191_984_949,
    "91c00ae287f0d699e18605c84afc9e45c192bc6b7797ff8837e5474655a33794",
)
HUB = HubFiles(
    "Salesforce/wikitext",
    "b08601e04326c79dfdd32d625aee71d232d685c3",
    {
        name: f"wikitext-103-raw-v1/{file}-*.parquet"
        for name, file in (("train", "train"), ("val", "validation"), ("test", "test"))
    },
)
BLANK = " \n"  # a blank line in the official files; in the hub's rows it is empty
HELD_BACK = 10
ENDINGS = (".raw", ".tokens", ".txt")


@dataclass(kw_only=True, eq=False, repr=False)
class WikiText103(Corpus):
    """WikiText-103.

    `source`: `official` (the archive of the authors, or `path`: a copy or a folder with its files), `hf` (the hub's
    parquet files, or `path`: a folder with them), `slice` (`path`: a folder with wiki.valid and wiki.test, and perhaps
    wiki.train, .raw or .tokens, or these .gz) or `synthetic`: see `Corpus`.
    """

    name = "lm/wikitext103"
    hub = HUB
    release = "wikitext-103-raw-v1.zip, or the folder in it"

    source: str = "official"

    def sources(self) -> dict[str, Source]:
        layout = "a folder with wiki.valid and wiki.test, .raw or .tokens, perhaps .gz"
        shared = super().sources()
        return {
            "official": Source(self._official, self._official_identity, path=self.release, complete=True),
            **shared,
            SLICE: Source(self.read_slice, shared[SLICE].identity, path=layout, requires_path=True),
        }

    def read_slice(self, progress: Progress) -> Pieces:
        return self._articles(self.path)

    def _official_identity(self) -> dict[str, Any]:
        if self.path is not None and self.path.is_dir():
            return self.identity()
        return {"sha256": ZIP.sha256}

    def _official(self, progress: Progress) -> Pieces:
        if self.path is not None and self.path.is_dir():
            return self._articles(self.path)
        folder = self.data_root / "downloads"
        return self._articles(unpacked(ZIP.at(self.path, folder, progress), folder / "wikitext-103-raw"))

    def _hub(self, progress: Progress) -> Pieces:
        """The official files, put together again below `data_root`."""
        rows = HUB.rows(self.path)
        counts = [sum(piece.count for piece in rows[name]) for name in LINES]
        self.check_is_complete(self.path or HUB.name, counts, list(LINES.values()), "lines")
        folder = self.data_root / "downloads" / "wikitext-103-hf"
        for name, pieces in rows.items():
            lines = (row.text or BLANK for piece in pieces for row in piece.documents())
            write_whole(folder / f"wiki.{NAMES[name]}.raw", (line.encode() for line in lines))
        return self._articles(folder)

    def _articles(self, folder: Path) -> Pieces:
        files = {name: text_file(folder, file) for name, file in NAMES.items()}
        needed = LINES if self._source.complete else ("val", "test")
        if missing := [NAMES[name] for name in needed if files[name] is None]:
            raise DataError(f"{folder}: no wiki.{missing[0]}.raw", "put it there")
        indices = {name: article_index(file) for name, file in files.items() if file is not None}
        lines = [indices[name].lines for name in indices]
        self.check_is_complete(folder, lines, list(LINES.values()), "lines")
        if "train" in indices:
            return {name: index.pieces() for name, index in indices.items()}
        return {**divided(indices["val"]), "test": indices["test"].pieces()}


def divided(index: ArticleIndex) -> dict[str, list[Articles]]:
    """`train` and `val` of the articles of one file: the last tenth validates. Raises DataError for fewer than two."""
    first = len(index.starts) - max(1, len(index.starts) // HELD_BACK)
    if not first:
        raise DataError(f"{index.file}: one article, too few to train and to validate")
    return {"train": index.pieces(0, first), "val": index.pieces(first)}


def text_file(folder: Path, split: str) -> Path | None:
    """The file of a split in a folder, under one of the names that it has."""
    names = [f"{start}{split}{end}{zipped}" for start in ("wiki.", "") for end in ENDINGS for zipped in ("", ".gz")]
    return next((folder / name for name in names if (folder / name).is_file()), None)


def unpacked(file: Path, folder: Path) -> Path:
    """The three texts of the archive, below `folder`; those that are there whole are kept. Raises DataError."""
    errors = (KeyError, *BROKEN)
    with (
        refusing(file, f"put {ZIP.url} there", errors),
        open_regular(file, follow=True) as packed,
        zipfile.ZipFile(packed) as archive,
    ):
        for split in NAMES.values():
            member, there = archive.getinfo(f"wikitext-103-raw/wiki.{split}.raw"), folder / f"wiki.{split}.raw"
            if not there.is_file() or there.stat().st_size != member.file_size:
                with archive.open(member) as stream:
                    write_whole(there, iter(lambda stream=stream: stream.read(MIB), b""))
    return folder
