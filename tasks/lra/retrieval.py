"""Retrieval: does one paper cite the other? Two times 4,000 bytes, two towers (Tay et al., Long Range Arena, 2021).

Pairs of papers of the ACL Anthology Network (Radev et al., 2013) in LRA's files: 147,086 / 18,090 / 17,437 lines of
`label TAB id TAB id TAB text TAB text`, no header and no quoting, label 1.0 if one cites the other. Each text is its
bytes, the first `max_length` of them (the code takes 10,000 first, which changes nothing); a batch holds the two of a
pair side by side, for a backbone with two towers.

Our readings:
- The backbone combines the towers (X2: [a, b, a * b, a - b] in the paper, [a, b] in its code), and selects the
  position that represents a text (X3: its first byte in the code, where "CLS" is meant).
- The splits are LRA's own. Their 7.7 GB cannot be fetched piece by piece and no checksum is published, so they are not
  fetched here: `path` names the folder of its three files.
"""

import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tasks import data_sources, file_digests
from tasks.base import Predictor
from tasks.checks import DataError, Progress
from tasks.data_sources import RELEASE
from tasks.data_task import SLICE, SYNTHETIC, Source
from tasks.examples import BYTE_SHIFT, BYTE_SYMBOLS, Examples, pack_bytes
from tasks.lra import synthetic_pairs, synthetic_text
from tasks.lra.classification import SequenceClassification
from tasks.lra.classifiers import NaiveBayes
from tasks.lra.fitted import at_most, boosted, logistic, within
from tasks.lra.ngram_counts import FIT_ON, LONGEST, TOKENS, shared_and_not, similarities

FILES = {"train": "new_aan_pairs.train.tsv", "val": "new_aan_pairs.eval.tsv", "test": "new_aan_pairs.test.tsv"}
LABELS = {b"0": 0, b"0.0": 0, b"1": 1, b"1.0": 1}
COLUMNS = 5
KEPT = 4000  # bytes of a text that are kept: as many as any published recipe reads


@dataclass(kw_only=True, eq=False, repr=False)
class Retrieval(SequenceClassification):
    """LRA Retrieval.

    `source`: `official` (`path`: the folder `tsv_data` of `lra_release.gz`), `slice` (`path`: a folder with files of
    the same names, `.gz` or not) or `synthetic` (of `synthetic_pairs`, which `distance`, `negated`, `words`
    and `against` belong to).
    """

    name = "lra/retrieval"
    classes = 2
    symbols, shift, per_example = BYTE_SYMBOLS, BYTE_SHIFT, 2
    published = (147_086 + 18_090, 17_437)
    release = f"the folder tsv_data of {RELEASE}"

    source: str = "official"
    max_length: int = KEPT
    train: int = 147_086
    val: int = 18_090
    test: int = 17_437
    distance: int = 1000
    negated: float = 0.5
    words: int = synthetic_text.MOST_WORDS
    against: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.source != SYNTHETIC and self.max_length - self.append_eos > KEPT:
            raise ValueError(f"max_length={self.max_length}: no more than {KEPT} bytes of a text are kept")

    def sources(self) -> dict[str, Source]:
        settings = {"distance": self.distance, "negated": self.negated, "words": self.words, "against": self.against}
        return {
            "official": self.path_source(self._read, self._identity, official=True, complete=True),
            SLICE: self.path_source(self._read, self._identity),
            SYNTHETIC: self.generated(synthetic_pairs, max_length=self.max_length, **settings),
        }

    def baselines(self, seen: int | None = None) -> Mapping[str, Callable[[], Predictor]]:
        """`most_cited`: how often each text was on its side of a citing pair; boosted trees on similarities; regression
        on which n-grams both texts have, and which only one of them."""
        train = self.split("train")
        most = within(train, TOKENS, at_most(FIT_ON, seen))
        similar, both = (partial(features, symbols=self.vocab_size) for features in (similarities, shared_and_not))
        return {
            **super().baselines(seen),
            "most_cited": partial(NaiveBayes, train, self.classes, text_numbers, seen),
            "boosted_similarity": partial(self.fitted, similar, boosted, most),
            f"shared_{LONGEST}gram_logistic_regression": partial(self.fitted, both, logistic, most),
        }

    def _files(self) -> dict[str, Path]:
        packed = {name: self.path / f"{file}.gz" for name, file in FILES.items()}
        return {name: file if file.exists() else file.with_suffix("") for name, file in packed.items()}

    def _identity(self) -> dict[str, Any]:
        return file_digests.identities(self._files())

    def _read(self, progress: Progress) -> dict[str, Examples]:
        return {
            name: pack_bytes(texts(data_sources.records_of(file), str(file), progress))
            for name, file in self._files().items()
        }


def text_numbers(tokens: np.ndarray) -> np.ndarray:
    """Pairs (B, 2, N) -> (B, 2) int64: a number of each text and the side that it stands on."""
    content = [[text[text > 0].astype("<u2").tobytes() for text in pair] for pair in tokens]
    return np.array([[zlib.crc32(text) * 2 + side for side, text in enumerate(pair)] for pair in content], np.int64)


def texts(lines: Iterator[tuple[int, bytes]], where: str, progress: Progress) -> Iterator[tuple[bytes, int]]:
    """(first KEPT bytes, label) of the two texts of each line. Raises DataError."""
    for number, line in lines:
        data_sources.decoded(line, f"{where}:{number}")
        try:
            first, second, label = pair(line)
        except ValueError as error:
            raise DataError(f"{where}:{number}: {error}") from error
        yield first[:KEPT], label
        yield second[:KEPT], label
        if not number % 1000:
            progress(f"reading {Path(where).name}", number, max(number, Retrieval.published[0]))


def pair(line: bytes) -> tuple[bytes, bytes, int]:
    """The two texts and the label. Raises ValueError."""
    columns = line.split(b"\t")
    if len(columns) != COLUMNS:
        raise ValueError(f"{len(columns)} columns instead of {COLUMNS} (label, id, id, text, text)")
    label, _, _, first, second = columns
    if label not in LABELS:
        raise ValueError(f"label {label[:20].decode(errors='replace')!r} is neither 0.0 nor 1.0")
    if not first or not second:
        raise ValueError(f"the {'second' if first else 'first'} text is empty")
    return first, second, LABELS[label]
