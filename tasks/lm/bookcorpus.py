"""BookCorpus: 74,004,228 sentences of novels (Zhu et al., 2015), in the order of the books, without boundaries.

Our readings (the papers name neither version nor split): the sentences of a row group, 8,192 at most, one per line,
are a document. The last 0.5 % of the sentences test and the previous 0.5 % validate, so that hardly any book is in two
splits.
"""

from dataclasses import dataclass

from tasks.checks import DataError, Progress
from tasks.lm.parquet import ParquetRows
from tasks.lm.text_sources import Corpus, HubFiles, Pieces

SENTENCES = 74_004_228
JOINED = 8192  # sentences of a document, at most
HELD_OUT = 0.005  # share of the sentences that validate, and of those that test
# The set itself is a script; the hub's own conversion has its rows. That is a branch, and no commit of it is known to
# be kept, so the number of rows is the check.
HUB = HubFiles("bookcorpus/bookcorpus", "refs/convert/parquet", {"train": "plain_text/train/*.parquet"})


@dataclass(kw_only=True, eq=False, repr=False)
class BookCorpus(Corpus):
    """BookCorpus. `source`: `hf`, `slice` or `synthetic`, see `Corpus`."""

    name = "lm/bookcorpus"

    hub = HUB

    source: str = "hf"

    def _hub(self, progress: Progress) -> Pieces:
        rows = HUB.rows(self.path, joined=JOINED)["train"]
        where = self.path or f"source={self.source}"
        sentences = sum(piece.stop - piece.start for piece in rows)
        self.check_is_complete(where, [sentences], [SENTENCES], "sentences")
        splits = in_order(rows)
        if not all(splits.values()):
            raise DataError(f"{where}: {sentences:,} sentences in {len(rows)} parts are too few")
        return splits


def in_order(rows: list[ParquetRows]) -> dict[str, list[ParquetRows]]:
    """The first pieces train, the next ones validate, and the last ones test."""
    total, done = sum(piece.stop - piece.start for piece in rows), 0
    splits: dict[str, list[ParquetRows]] = {"train": [], "val": [], "test": []}
    for piece in rows:
        done += piece.stop - piece.start
        left = 1 - done / total
        splits["test" if left < HELD_OUT else "val" if left < 2 * HELD_OUT else "train"].append(piece)
    return splits
