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
from torchmetrics import Metric

from tasks.checks import DataError

GRAMS = 4
COUNTS = 2 * GRAMS + 2  # matching n-grams, all n-grams, length, length of the reference
# tokens and smoothing
KINDS = {"sacrebleu": ("13a", "exp"), "bleu": ("none", "none"), "bleu_compounds": ("none", "none")}


@lru_cache(maxsize=1)
def library() -> Any:
    """Raises DataError where `sacrebleu` is not installed."""
    try:
        import sacrebleu
    except ImportError as error:
        raise DataError(f"BLEU: {error}", "pip install -e .[mt]") from error
    return sacrebleu


@lru_cache(maxsize=3)
def _scorer(kind: str) -> Any:
    tokens, smoothing = KINDS[kind]
    return library().BLEU(tokenize=tokens, smooth_method=smoothing, force=True)


def signature() -> str:
    """`sacrebleu`'s signature: its settings and version."""
    _scorer("sacrebleu").corpus_score(["a"], [["a"]])  # it takes the number of references from its last score
    return str(_scorer("sacrebleu").get_signature())


def counts(kind: str, text: str, reference: str) -> list[int]:
    """The counts of one sentence, `COUNTS` of them."""
    score = _scorer(kind).corpus_score([text], [[reference]])
    return [*score.counts, *score.totals, score.sys_len, score.ref_len]


def bleu(kind: str, summed: Sequence[int]) -> float:
    """BLEU from 0 to 100 of summed counts."""
    summed = [int(value) for value in summed]
    score = library().BLEU.compute_bleu(
        correct=summed[:GRAMS],
        total=summed[GRAMS : 2 * GRAMS],
        sys_len=summed[-2],
        ref_len=summed[-1],
        smooth_method=KINDS[kind][1],
    )
    return score.score


def chrf(text: str, reference: str) -> float:
    """chrF2 from 0 to 100 of one sentence."""
    return library().CHRF().sentence_score(text, [reference]).score


class Bleu(Metric):
    """All scores of KINDS, `chrf`, and the tokens of all translations over those of all references."""

    is_differentiable = False
    higher_is_better = True
    full_state_update = False

    def __init__(self) -> None:
        super().__init__()
        for kind in KINDS:
            self.add_state(kind, torch.zeros(COUNTS, dtype=torch.long), dist_reduce_fx="sum")
        self.add_state("chrfs", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("sentences", torch.zeros((), dtype=torch.long), dist_reduce_fx="sum")

    def update(self, *forms: Sequence[tuple[str, str]], chrfs: Tensor) -> None:
        """Translations and references in the form of each of KINDS, and chrF of each sentence, (B,)."""
        for kind, pairs in zip(KINDS, forms, strict=True):
            summed = torch.tensor([counts(kind, *pair) for pair in pairs], dtype=torch.long).sum(0)
            setattr(self, kind, getattr(self, kind) + summed.to(self.chrfs.device))
        self.chrfs += chrfs.double().sum().to(self.chrfs.device)
        self.sentences += len(chrfs)

    def compute(self) -> dict[str, Tensor]:
        scores = {kind: bleu(kind, getattr(self, kind).tolist()) for kind in KINDS}
        scores["chrf"] = float(self.chrfs / self.sentences)
        scores["length_ratio"] = float(self.bleu[-2] / self.bleu[-1].clamp(min=1))
        return {name: torch.tensor(value, dtype=torch.float64) for name, value in scores.items()}
