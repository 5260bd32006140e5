"""OpenWebText: 8,013,769 web pages that Reddit linked to (Gokaslan and Cohen, 2019), 39.8 GB of text.

There is no published split. nanoGPT's is used, as by Latte: 0.05 % of the pages, drawn with seed 2357 as `datasets`
draws them, validate. There is no third part, and Latte reports what it validates on: `test` is `val`. Training pages
stay in the order of the files; the recipe draws windows anyway.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from tasks.checks import Progress
from tasks.lm.parquet import ParquetRows
from tasks.lm.text_sources import Corpus, HubFiles, Pieces

PAGES = 8_013_769
HELD_OUT, SEED = 0.0005, 2357  # nanoGPT's
HUB = HubFiles(
    "Skylion007/openwebtext",
    "b4325f019c648b1641a1784748667e8b74e5e064",
    {"train": "plain_text/train-*.parquet"},
)


@dataclass(kw_only=True, eq=False, repr=False)
class OpenWebText(Corpus):
    """OpenWebText. `source`: `hf`, `slice` or `synthetic`, see `Corpus`."""

    name = "lm/openwebtext"

    hub = HUB

    source: str = "hf"

    def _hub(self, progress: Progress) -> Pieces:
        rows = HUB.rows(self.path)["train"]
        pages = sum(piece.count for piece in rows)
        self.check_is_complete(self.path or f"source={self.source}", [pages], [PAGES], "pages")
        train, val = divided(rows, held_out(pages))
        return {"train": train, "val": val, "test": val}


def held_out(pages: int) -> np.ndarray:
    """Numbers of the pages that validate, in order: those of `datasets.Dataset.train_test_split`."""
    order = np.random.default_rng(SEED).permutation(pages)
    return np.sort(order[: math.ceil(HELD_OUT * pages)])


def divided(rows: list[ParquetRows], held: np.ndarray) -> tuple[list[ParquetRows], list[ParquetRows]]:
    """The pieces without the rows of these numbers, and pieces with only these rows."""
    without, only, number = [], [], 0
    for piece in rows:
        length = piece.stop - piece.start
        begin, end = np.searchsorted(held, [number, number + length])
        chosen = tuple((held[begin:end] - number + piece.start).tolist())
        if len(chosen) < length:
            without.append(replace(piece, without=chosen))
        if chosen:
            only.append(replace(piece, only=chosen, size=piece.size * len(chosen) // length))
        number += length
    return without, only
