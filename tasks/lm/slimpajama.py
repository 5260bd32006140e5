"""SlimPajama: web pages, code, books and articles without duplicates (Cerebras, 2023), 627 billion tokens.

`hf` is DKYoon/SlimPajama-6B, a sample of 6 billion tokens with its validation and test parts, and results are named
after it: Latte's recipe reads 1.64 billion tokens, and the whole set is 0.9 TB.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from tasks.base import DataInfo, FinalEvaluation
from tasks.checks import Progress, one_of
from tasks.data_task import CachedSet
from tasks.examples import Shards, fingerprint
from tasks.lm import other_corpora
from tasks.lm.documents import FirstBytes, shards
from tasks.lm.text_sources import Corpus, HubFiles
from tasks.lm.windows import TokenStream, WindowSplit

HUB = HubFiles(
    "DKYoon/SlimPajama-6B",
    "b5f90f419b7489cdba26fdbc8c022fcb5562f968",
    {"train": "data/train-*.parquet", "val": "data/validation-*.parquet", "test": "data/test-*.parquet"},
)


@dataclass(kw_only=True, eq=False, repr=False)
class SlimPajama(Corpus):
    """SlimPajama. `source`: `hf`, `slice` or `synthetic`, see `Corpus`.

    `corpora` are others that the trained model is tested on (tasks/lm/other_corpora.py), each with its source: `hf`, or
    a file or folder of texts. They are scored in windows of `length` and of each of `lengths`: `pile_1x`, `pile_2x`.
    """

    name = "lm/slimpajama"
    hub, hub_is_complete = HUB, False

    source: str = "hf"
    corpora: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        self.corpora = dict(self.corpora or {})
        for name in self.corpora:
            one_of(other_corpora.PUBLISHED, corpora=name)
        if self.corpora and self.dictionary is not None:
            raise ValueError("corpora are not scored with a dictionary: set task.dictionary=null or task.corpora=null")
        super().__post_init__()

    def origin(self, complete: bool, part: str | None = None) -> str:
        return super().origin(False, "slimpajama_6b" if self.source == "hf" and self.path is None else part)

    def cached_sets(self) -> list[CachedSet]:
        return [*super().cached_sets(), *(self._cached(name) for name in self.corpora)]

    def load(self) -> DataInfo:
        """The fingerprint also covers the other corpora."""
        info = super().load()
        self._others, hashes = {}, [info.fingerprint]
        for name in self.corpora:
            cached = self._cached(name)
            stream = TokenStream(self.open(cached)["test"], self.tokens_from.end_id)
            hashes.append(self.facts(cached)["test"]["sha256"])
            for length in (self.length, *self.lengths):
                windows = WindowSplit(stream, length, self.stride)
                self._others[f"{name}_{length / self.length:g}x"] = windows
        sizes = info.sizes | {name: len(split) for name, split in self._others.items()}
        return replace(info, fingerprint=fingerprint(hashes), sizes=sizes) if self.corpora else info

    def final_evaluations(self) -> Sequence[FinalEvaluation]:
        others = (FinalEvaluation(name, split, batch_size=1) for name, split in self._others.items())
        return [*super().final_evaluations(), *others]

    def _cached(self, name: str) -> CachedSet:
        source = other_corpora.identity(name, self.corpora[name])
        how = {"corpus": name, "reader": self.version, "bytes": self.test_bytes}
        tokens = {"tokenizer": self.tokens_from.identity, "reading": self.reading}
        return CachedSet({**how, **source, **tokens}, partial(self._read, name))

    def _read(self, name: str, progress: Progress) -> dict[str, Shards]:
        pieces = other_corpora.pieces(name, self.corpora[name])
        limited = pieces if self.test_bytes is None else [FirstBytes(tuple(pieces), self.test_bytes)]
        return {"test": shards(limited, self.tokens_from, reading=self.reading, title=f"{name}, test")}
