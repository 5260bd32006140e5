"""BLEU of translations by `sacrebleu` (Papineni et al., 2002; Post, 2018), with one reference.

    sacrebleu       on texts, with 13a tokens, and smoothing only of zero counts (exp), as its signature states
    bleu            on the task's tokens, without smoothing: the tokenised BLEU that papers of the time print
    bleu_compounds  the same on Moses' tokens whose hyphens are tokens, `##AT##-##AT##`: of papers from 2017 to 2020
                    (get_ende_bleu.sh of tensor2tensor)
    chrf            mean over sentences of chrF2 (Popovic, 2015), the only score here that is a mean over sentences

BLEU belongs to a corpus. The counts of matching n-grams and of all n-grams, and the lengths, are summed over sentences:

    BLEU = 100 min(1, e^(1 - r / c)) (p_1 p_2 p_3 p_4)^(1/4)

The result is exact for any batches and devices. No mean over sentences equals it. Only `chrf` allows a comparison
sentence by sentence, which is why it is reported.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from tasks.data_sources import library
from tasks.metrics import Sums

GRAMS = 4
COUNTS = 2 * GRAMS + 2  # matching n-grams, all n-grams, length, length of the reference
# tokens and smoothing
KINDS = {"sacrebleu": ("13a", "exp"), "bleu": ("none", "none"), "bleu_compounds": ("none", "none")}


def sacrebleu() -> Any:
    """Raises DataError where it is not installed."""
    return library("sacrebleu", "mt")


@lru_cache(maxsize=3)
def _scorer(kind: str) -> Any:
    tokens, smoothing = KINDS[kind]
    return sacrebleu().BLEU(tokenize=tokens, smooth_method=smoothing, force=True)


def signature() -> str:
    """`sacrebleu`'s signature: its settings and version."""
    _scorer("sacrebleu").corpus_score(["a"], [["a"]])  # it takes the number of references from its last score
    return str(_scorer("sacrebleu").get_signature())


def counts(kind: str, text: str, reference: str) -> list[int]:
    """The counts of one sentence, `COUNTS` of them."""
    score = _scorer(kind).corpus_score([text], [[reference]])
    return [*score.counts, *score.totals, score.sys_len, score.ref_len]


def bleu(kind: str, summed: Sequence[float]) -> float:
    """BLEU from 0 to 100 of summed counts."""
    summed = [int(value) for value in summed]
    score = sacrebleu().BLEU.compute_bleu(
        correct=summed[:GRAMS],
        total=summed[GRAMS : 2 * GRAMS],
        sys_len=summed[-2],
        ref_len=summed[-1],
        smooth_method=KINDS[kind][1],
    )
    return score.score


def chrf(text: str, reference: str) -> float:
    """chrF2 from 0 to 100 of one sentence."""
    return sacrebleu().CHRF().sentence_score(text, [reference]).score


class Bleu(Sums):
    """All scores of KINDS, `chrf`, and the tokens of all translations over those of all references."""

    def __init__(self) -> None:
        super().__init__(len(KINDS) + 1, COUNTS)  # the counts of each of KINDS; chrF and the sentences

    def update(self, *forms: Sequence[tuple[str, str]], chrfs: Tensor) -> None:
        """Translations and references in the form of each of KINDS, and chrF of each sentence, (B,)."""
        rows = [[counts(kind, *pair) for pair in pairs] for kind, pairs in zip(KINDS, forms, strict=True)]
        self.sums[:-1] += torch.tensor(rows, dtype=torch.float64).sum(1).to(self.sums.device)
        self.sums[-1, :2] += torch.stack([chrfs.double().sum(), torch.tensor(len(chrfs))]).to(self.sums.device)

    def compute(self) -> dict[str, Tensor]:
        summed = dict(zip((*KINDS, "chrf"), self.sums.tolist(), strict=True))
        scores = {kind: bleu(kind, summed[kind]) for kind in KINDS}
        scores["chrf"] = summed["chrf"][0] / summed["chrf"][1]
        scores["length_ratio"] = summed["bleu"][-2] / max(1, summed["bleu"][-1])
        return {name: torch.tensor(value, dtype=torch.float64) for name, value in scores.items()}
