"""Translation word for word, by the dictionary of IBM's model 1 (Brown et al., 1993, section 4.1, equations 17 to 19).

    t(f | e)   the probability that the source word e gives the target word f, fitted by expectation and maximisation
    c(f | e)   sum over pairs of t(f | e) / sum over source words e' of the pair of t(f | e')

The empty source word takes target words that no source word gives. A source word becomes its most likely target word,
in the source's order, and a word that is not in the dictionary stays as it is.
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np

ROUNDS = 10  # of expectation and maximisation; more change little on the made language
EMPTY = ""  # the source word that every sentence has


class Dictionary:
    """Fitted to pairs of texts, whose words are what stands between white space. Raises ValueError without words."""

    def __init__(self, pairs: Sequence[tuple[str, str]], rounds: int = ROUNDS):
        self.saw = f"{len(pairs):,} pairs"
        sources = [[EMPTY, *source.split()] for source, _ in pairs]
        targets = [target.split() for _, target in pairs]
        if not any(targets):
            raise ValueError("a dictionary needs pairs with words, and there are none")
        self.words, source_ids = _numbered(sources)
        self.translations, target_ids = _numbered(targets)
        # all pairs of a source word and a target word within a pair of sentences, which are the events of the model
        events = [(np.repeat(f, len(e)), np.tile(e, len(f))) for e, f in zip(source_ids, target_ids, strict=True)]
        target, source = (np.concatenate([event[i] for event in events]) for i in (0, 1))
        sizes = [(len(e), len(f)) for e, f in zip(source_ids, target_ids, strict=True)]
        occurrence = np.repeat(np.arange(sum(f for _, f in sizes)), [e for e, f in sizes for _ in range(f)])
        # (source word, target word) of each entry of the table, and the entry of each event
        entries, entry = np.unique(source * len(self.translations) + target, return_inverse=True)
        self.source, self.target = np.divmod(entries, len(self.translations))
        self.probability = np.ones(len(entries))
        for _ in range(rounds):
            weight = self.probability[entry]
            share = weight / np.bincount(occurrence, weight)[occurrence]
            counts = np.bincount(entry, share, minlength=len(entries))
            self.probability = counts / np.bincount(self.source, counts)[self.source]

    @cached_property
    def best(self) -> dict[str, str]:
        """The most likely target word of each source word, the first one of several."""
        order = np.lexsort((-self.probability, self.source))
        first = order[np.unique(self.source[order], return_index=True)[1]]
        return {self.words[self.source[i]]: self.translations[self.target[i]] for i in first}

    def translate(self, text: str) -> str:
        return " ".join(self.best.get(word, word) for word in text.split())


def _numbered(sentences: Sequence[Sequence[str]]) -> tuple[list[str], list[np.ndarray]]:
    """The different words, and the numbers of each sentence's words."""
    words = sorted({word for sentence in sentences for word in sentence})
    numbers = {word: number for number, word in enumerate(words)}
    return words, [np.array([numbers[word] for word in sentence], np.int64) for sentence in sentences]
