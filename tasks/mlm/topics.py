"""Generated texts on topics: only pre-training reveals which words belong together.

A topic has WORDS words of its own, which come in two halves, and COMMON words belong to none. A section is on one
topic: SHARE words of ten are the topic's, the others common ones.

    to pre-train on     documents of SECTIONS sections, each with all words of its topic
    to fine-tune on     sections whose first half has one half of the topic's words, and whose second half the other

The two halves of such a section therefore share no word. Fine-tuning could also teach which words belong together,
because words of both halves occur in one section. The last HELD_OUT words of each half are therefore in no section to
fine-tune on, and the sections to validate and to test have only these words: only the pre-training text shows that they
are on one topic. (A model that is fine-tuned on some topics and
tested on others does not tell the others apart.)

A document and a section are functions of the seed and their number alone.
"""

import functools
from collections.abc import Iterator

import numpy as np

from tasks.lm.documents import Document
from tasks.probe.draws import Draws, Numbered

VERSION = 1  # of documents; part of the cache key: raise it when the same seed gives other ones
TOPICS, WORDS, COMMON = 16, 16, 32
HELD_OUT = WORDS // 4  # words of each half that fine-tuning does not see
SHARE = 8
SECTION, SECTIONS = 256, 10  # words of a section, sections of a document
CONSONANTS, VOWELS, LENGTH = "bdfgklmnprstvz", "aeiou", 5  # of a word, which is consonant, vowel, and so on
STREAM = 0x70B1  # of the random numbers, and the split's number
WORLD = STREAM - 1  # of those that say what the words are, which every seed has in common


@functools.cache
def vocabulary() -> tuple[str, ...]:
    """The words of topic 0, of topic 1, ..., the common ones: all different."""
    letters = [(CONSONANTS, VOWELS)[i % 2] for i in range(LENGTH)]
    sizes = [len(some) for some in letters]
    number = Draws(0, WORLD, [0]).distinct(int(np.prod(sizes)), TOPICS * WORDS + COMMON)[0]
    places = zip(*np.unravel_index(number, sizes), strict=True)
    return tuple("".join(some[i] for some, i in zip(letters, indices, strict=True)) for indices in places)


def sections(count: int, *, seed: int, split: int, first: int = 0, halves: bool) -> Iterator[list[str]]:
    """The words of sections first, ..., first + count - 1 of a split; section i is on topic i modulo TOPICS.

    `halves`: in the form for fine-tuning, where split 0 is to train and the others have the held-out words.
    """
    words = np.array(vocabulary())
    numbers = np.arange(first, first + count)
    draws = Draws(seed, STREAM + 2 * split + halves, numbers)
    topical = draws.integers(10, SECTION) < SHARE
    if halves:
        half = WORDS // 2
        words_used, first_used = (half - HELD_OUT, 0) if split == 0 else (HELD_OUT, half - HELD_OUT)
        inside = first_used + draws.integers(words_used, SECTION) + np.repeat([0, half], SECTION // 2)
    else:
        inside = draws.integers(WORDS, SECTION)
    common = TOPICS * WORDS + draws.integers(COMMON, SECTION)
    topic = (numbers % TOPICS)[:, None]
    yield from words[np.where(topical, topic * WORDS + inside, common)].tolist()


class Documents(Numbered):
    """To pre-train on."""

    at_once = 16

    @property
    def size(self) -> int:
        return self.count * SECTIONS * SECTION * (LENGTH + 1)

    def documents(self) -> Iterator[Document]:
        for number in range(self.first, self.first + self.count):
            texts = sections(SECTIONS, seed=self.seed, split=self.split, first=number * SECTIONS, halves=False)
            yield Document(f"document {number}", " ".join(word for section in texts for word in section))
