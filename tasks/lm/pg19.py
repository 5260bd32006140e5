"""PG-19: books of Project Gutenberg from before 1919 (Rae et al., 2020): 28,602 to train, 50 to validate, 100 to test.

A document is a book as it is published: the licence taken off, some words replaced by `<DW>`. The authors publish
the numbers of words, by which a perplexity per word is to be computed. They do not say how they count; here
words are separated by white space. So the numbers of books must match theirs, and a split whose number of words
differs by more than 1 % is refused; the numbers themselves are in the cache's manifest.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tasks.checks import DataError, Progress
from tasks.data_task import SPLITS, Source
from tasks.lm.text_sources import Corpus, HubFiles, Pieces, text_splits

BOOKS = {"train": 28_602, "val": 50, "test": 100}
WORDS = {"train": 1_973_136_207, "val": 3_007_061, "test": 6_966_499}
TOLERANCE = 0.01
HUB = HubFiles(
    "emozilla/pg19",
    "b7bca68072ef1d86348f080bbda0996648d94315",
    {"train": "data/train-*.parquet", "val": "data/validation-*.parquet", "test": "data/test-*.parquet"},
)


@dataclass(kw_only=True, eq=False, repr=False)
class PG19(Corpus):
    """PG-19.

    `source`: `official` (11 GB, `path`: a copy of the authors' bucket with its train/, validation/ and test/),
    `hf` (a parquet mirror on the hub, or `path`: a folder with its files), `slice` or `synthetic`: see `Corpus`.
    """

    name = "lm/pg19"
    hub = HUB
    published = tuple(BOOKS.values())
    release = "a copy of gs://deepmind-gutenberg, with train/, validation/ and test/ (task.source=hf is fetched)"

    source: str = "official"

    def sources(self) -> dict[str, Source]:
        official = Source(self._official, self.identity, path=self.release, requires_path=True, complete=True)
        return {"official": official, **super().sources()}

    def prepare(self, progress: Progress) -> None:
        super().prepare(progress)
        if self._source.complete:
            self.check_words()

    def check_words(self) -> None:
        """Raises DataError if a prepared split differs too much from the published number of words."""
        for name, facts in self.facts(self.cached_sets()[0]).items():
            words = facts["label_sums"][0]
            if self._limits[name] is None and abs(words - WORDS[name]) > TOLERANCE * WORDS[name]:
                difference = f"{name} has {words:,} words, {WORDS[name]:,} are published"
                cure = "fetch the books again to another paths.data (task.source=slice takes a part)"
                raise DataError(f"{self.path or self.source}: {difference}", cure)

    def _official(self, progress: Progress) -> Pieces:
        return self._checked(text_splits(self.path))

    def _hub(self, progress: Progress) -> Pieces:
        return self._checked(HUB.rows(self.path))

    def _checked(self, pieces: Pieces) -> Mapping[str, Any]:
        books = [sum(piece.count for piece in pieces[name]) for name in SPLITS]
        self.check_is_complete(self.path or f"source={self.source}", books, list(BOOKS.values()), "books")
        return pieces
