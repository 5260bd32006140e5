"""Tiny Shakespeare: 40,000 lines of the plays, 1,115,394 characters (Karpathy, 2015, char-rnn).

There is no published split. As in nanoGPT, the last tenth is held out: here it tests. The tenth before it validates and
the rest trains. The file does not say where a play begins, so a split is one document. It begins with a speech: edges
are moved on to the next blank line.
"""

import hashlib
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from tasks.checks import DataError, Progress
from tasks.data_sources import Download
from tasks.data_task import SPLITS, Source
from tasks.lm.documents import Part, blocks
from tasks.lm.text_sources import Corpus, Pieces

TEXT = Download(
    "https://raw.githubusercontent.com/karpathy/char-rnn/6f9487a6fe5b420b7ca9afb0d7c078e37c1d1b4e/data/tinyshakespeare/input.txt",
    1_115_394,
    "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
)
SHARES = (0.8, 0.9)  # of the bytes, where the validation and the test split begin
GAP = b"\n\n"  # between two speeches


@dataclass(kw_only=True, eq=False, repr=False)
class Shakespeare(Corpus):
    """Tiny Shakespeare.

    `source`: `official` (1.1 MB, fetched, or `path`: a copy, perhaps .gz), `slice` (any text) or `synthetic`, see
    `Corpus`.
    """

    name = "lm/shakespeare"
    published = (1, 1, 1)  # documents
    release = TEXT.url

    source: str = "official"

    def sources(self) -> dict[str, Source]:
        identity = partial(self.identity, sha256=TEXT.sha256)
        official = Source(self._official, identity, path=f"a copy of {TEXT.url}, perhaps .gz", complete=True)
        return {"official": official, **super().sources()}

    def _official(self, progress: Progress) -> Pieces:
        file = self.path or TEXT.fetch(self.data_root / "downloads" / "tinyshakespeare", progress)
        text = b"".join(data for _, data in blocks(file))
        if hashlib.sha256(text).hexdigest() != TEXT.sha256:
            raise DataError(f"{file}: {len(text):,} bytes, not the published text", f"put {TEXT.url} there")
        edges = [0, *(after_gap(text, share) for share in SHARES), len(text)]
        return {name: [Part(file, *bounds)] for name, bounds in zip(SPLITS, pairwise(edges), strict=True)}


def after_gap(text: bytes, share: float) -> int:
    """Where the first speech begins at or after this share of the bytes; the end if none does."""
    gap = text.find(GAP, int(share * len(text)) - len(GAP))
    return len(text) if gap < 0 else gap + len(GAP)
