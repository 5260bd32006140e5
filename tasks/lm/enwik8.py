"""enwik8 and text8: the first 10^8 bytes of an English Wikipedia, and a text of a to z and blanks made of one (Mahoney,
2011, mattmahoney.net/dc/textdata.html). 90, 5 and 5 million bytes train, validate and test, as all papers cut them.

Results are `bits_per_byte`, which for text8 are bits per character. No byte is changed; a cut that would fall into a
character is a byte or two before it.
"""

import hashlib
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from tasks.checks import DataError, Progress
from tasks.data_sources import Download, opened_text, refusing
from tasks.data_task import SLICE, Source
from tasks.lm.documents import cut
from tasks.lm.text_sources import Corpus, Pieces

SHARES = (0.9, 0.05, 0.05)


ENWIK8 = Download(
    "http://mattmahoney.net/dc/enwik8.zip",
    36_445_475,
    "547994d9980ebed1288380d652999f38a14fe291a6247c157c3d33d4932534bc",
)
TEXT8 = Download(
    "http://mattmahoney.net/dc/text8.zip",
    31_344_016,
    "a6640522afe85d1963ad56c05b0ede0a0c000dddc9671758a6cc09b7a38e5232",
)


@dataclass(kw_only=True, eq=False, repr=False)
class Enwik8(Corpus):
    """`source`: `official` (36 MB, fetched, or `path`: a copy, packed or not), `slice` (`path`: any text, also .zip and
    .gz, which is cut in the same shares) or `synthetic`, see `Corpus`."""

    name = "lm/enwik8"
    archive: ClassVar[Download] = ENWIK8
    sha256: ClassVar[str] = "2b49720ec4d78c3c9fabaee6e4179a5e997302b3a70029f30f2d582218c024a8"  # of the text in it

    source: str = "official"

    def sources(self) -> dict[str, Source]:
        copy = f"a copy of {self.archive.url}, packed or not"
        identity = partial(self.identity, sha256=self.sha256)
        return {
            "official": Source(self._official, identity, path=copy, complete=True),
            **super().sources(),
            SLICE: Source(self.read_slice, self.identity, path="a text, also .zip or .gz", requires_path=True),
        }

    def read_slice(self, progress: Progress) -> Pieces:
        return cut(self.path, SHARES, marks=())

    def _official(self, progress: Progress) -> Pieces:
        file = self.path or self.archive.fetch(self.data_root / "downloads", progress)
        with opened_text(file) as stream, refusing(file):
            digest, size = hashlib.file_digest(stream, "sha256").hexdigest(), stream.tell()
        if digest != self.sha256:
            problem = f"{file}: {size:,} bytes, not the published text"
            raise DataError(problem, f"put {self.archive.url} there, or read it with task.source={SLICE}")
        return cut(file, SHARES, marks=())


class Text8(Enwik8):
    """31 MB."""

    name = "lm/text8"
    archive = TEXT8
    sha256 = "6e890197040d37d85beb962ae1f041ff1d9a9ca8d20c7d99c85027eebf51dca7"
