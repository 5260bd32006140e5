"""ROUGE of summaries by `rouge-score`, F1 x 100, averaged over documents (Lin, 2004, ROUGE).

    rouge1, rouge2   overlap of words and of pairs of words
    rougeLsum        the union of the longest common subsequences of a sentence of the reference and each of the summary

Words are stemmed. The papers' scores come from ROUGE-1.5.5 by pyrouge with its own stemmer and resampling; the
definitions are the same, the last digits are not. Of a summary's sentences each stands on a line of its own.
"""

import re
import sys
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from tasks.data_sources import library
from tasks.metrics import Sums

NAMES = ("rouge1", "rouge2", "rougeLsum")
# white space after . ! or ?, quotes and brackets included, where what follows is not in lower case; or a line break
END = re.compile(r"(?:(?<=[.!?])|(?<=[.!?][\"'”’)\]]))\s+(?![a-z])|\s*\n\s*")
# a dot after these ends no sentence: titles before a name, a few others, single letters (initials, U.S.)
TITLES = r"Mr|Mrs|Ms|Dr|Prof|St|Sen|Rep|Gov|Gen|Lt|Col|Sgt|Jr|No|Fig|vs|al|e\.g|i\.e"
SHORT = re.compile(rf"(?:^|[\s(\"“‘.])(?:[A-Z]|{TITLES})\.$")


def sentences(text: str) -> list[str]:
    """The sentences of a text, without the white space around them: a rule, in place of nltk's trained model.

    It errs where an abbreviation that is not listed stands before a capital, and where a sentence begins in lower case.
    """
    parts: list[str] = []
    start = 0
    for gap in END.finditer(text):
        part = text[start : gap.start()].strip()
        if "\n" not in gap.group() and SHORT.search(part):
            continue
        parts += [part] if part else []
        start = gap.end()
    last = text[start:].strip()
    return [*parts, last] if last else parts


@lru_cache(maxsize=1)
def scorer() -> Any:
    """Raises DataError where `rouge-score` is not installed."""
    scorer, logging = (library(name, "summarization") for name in ("rouge_score.rouge_scorer", "absl.logging"))
    # it closes what was sys.stderr when it was imported, if that is another file by then: of a notebook, of a test
    logging.get_absl_handler().python_handler.stream = sys.__stderr__
    return scorer.RougeScorer(list(NAMES), use_stemmer=True)


def rouge(summary: str, reference: str) -> list[float]:
    """F1 x 100 of each of `NAMES`."""
    lines = ("\n".join(sentences(text)) for text in (reference, summary))
    scores = scorer().score(*lines)
    return [100 * scores[name].fmeasure for name in NAMES]


class Rouge(Sums):
    """The means over documents, and the words of a summary and of its reference (between white space)."""

    def __init__(self) -> None:
        super().__init__(len(NAMES) + 3)  # scores, words, and the count

    def update(self, scores: Tensor, summaries: Sequence[str], references: Sequence[str]) -> None:
        """Scores (n, 3) of n summaries, as `rouge` gives them."""
        words = [sum(len(text.split()) for text in texts) for texts in (summaries, references)]
        counts = scores.new_tensor([*words, len(summaries)], dtype=torch.float64)
        self.sums += torch.cat([scores.double().sum(0), counts]).to(self.sums.device)

    def compute(self) -> dict[str, Tensor]:
        return dict(zip((*NAMES, "words", "reference_words"), self.sums[:-1] / self.sums[-1], strict=True))
