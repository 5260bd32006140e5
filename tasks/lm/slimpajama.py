"""SlimPajama: web pages, code, books and articles without duplicates (Cerebras, 2023), 627 billion tokens.

`hf` is DKYoon/SlimPajama-6B, a sample of 6 billion tokens with its validation and test parts, and results are named
after it: Latte's recipe reads 1.64 billion tokens, and the whole set is 0.9 TB.
"""

from dataclasses import dataclass

from tasks.checks import Progress
from tasks.data_task import Source
from tasks.lm.text_sources import Corpus, HubFiles, Pieces

HUB = HubFiles(
    "DKYoon/SlimPajama-6B",
    "b5f90f419b7489cdba26fdbc8c022fcb5562f968",
    {"train": "data/train-*.parquet", "val": "data/validation-*.parquet", "test": "data/test-*.parquet"},
)


@dataclass(kw_only=True, eq=False, repr=False)
class SlimPajama(Corpus):
    """SlimPajama.

    `source`: `hf` (the hub's parquet files, or `path`: a folder with them), `slice` (`path`: any texts laid out like
    PG-19's, after which the results are named) or `synthetic`: see `Corpus`.
    """

    name = "lm/slimpajama"

    source: str = "hf"

    def sources(self) -> dict[str, Source]:
        return {"hf": self.hub_source(HUB, self._hub, complete=False), **super().sources()}

    def origin(self, complete: bool, part: str | None = None) -> str:
        return super().origin(False, "slimpajama_6b" if self.source == "hf" and self.path is None else part)

    def _hub(self, progress: Progress) -> Pieces:
        return HUB.rows(self.path, self.hint)
