"""Generated stories: names are introduced once, with their attributes, and asked for much later.

    Rolan is a weaver from Tarn and keeps a goat. ... `distance` bytes of filler or more ...
    Who is Rolan? The weaver from Tarn who keeps a goat.

The answer is 15 bits that stand nowhere else in the story, so a reader with less context than `distance` cannot know
them, and one with more can. Trades, towns and animals belong to names anew in each story. The rest of the text, small
sentences, tells nothing. A story is a function of the seed and its number alone, the same on every machine.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tasks.lm.documents import Document
from tasks.probe.draws import Numbered

VERSION = 1  # part of the cache key: raise it when the same seed gives other stories
FIRST, SECOND, TRADES, TOWNS, ANIMALS = (
    words.split()
    for words in (
        "Ba De Fi Go Ha Je Ki Lo Ma Ne Pi Ro Sa Te Vi Zo",
        "lan mir nor ska tel vin dra bex",
        "weaver baker miller potter tailor mason glazier cooper fiddler ferryman farrier printer gardener painter "
        "teacher sailor hunter fisher jeweller brewer joiner saddler thatcher clerk doctor juggler singer carter "
        "turner dyer founder porter",
        "Tarn Ulm Vesk Orly Bram Celle Dorn Elva Foss Gent Hild Ilva Jarn Kolm Lund Mora Nyon Oban Pisk Quen Rhos "
        "Sorn Tves Uzes Vang Wels Yarm Zell Arka Bodo Cork Dale",
        "goat crow mule hare duck lynx swan toad mole wolf hawk lamb calf colt dove frog gull newt rook seal wren "
        "carp crab eel fox hen owl pig ram rat cat dog",
    )
)
NAMES = [first + second for first in FIRST for second in SECOND]
INTRODUCTION = "{} is a {} from {} and keeps a {}. "
QUESTION = "Who is {}? The {} from {} who keeps a {}.\n"
FILLER = tuple(
    words.split()
    for words in (
        "old grey small young",
        "river street window garden",
        "waits turns shines sleeps",
        "under near behind beside",
        "hill bridge tower forest",
    )
)
FILLER_SENTENCE = "The {} {} {} {} the {}. "
LONGEST = max(
    len(form.format(*(max(words, key=len) for words in (NAMES, TRADES, TOWNS, ANIMALS))))
    for form in (INTRODUCTION, QUESTION)
)
SHORTEST_FILLER = len(FILLER_SENTENCE.format(*(min(words, key=len) for words in FILLER)))


def check(documents: int, document_bytes: int, names: int, distance: int) -> None:
    """Raises ValueError for settings that no story fits."""
    if documents < 1:
        raise ValueError(f"documents={documents} is less than 1")
    if not 1 <= names <= len(NAMES):
        raise ValueError(f"names={names} is not between 1 and {len(NAMES)}")
    most = document_bytes - 2 * LONGEST * (names + 2)
    if most < 0:
        least = document_bytes - most
        raise ValueError(f"document_bytes={document_bytes} is less than {least}, which a story of names={names} takes")
    if not 0 <= distance <= most:
        settings = f"document_bytes={document_bytes}, names={names}"
        raise ValueError(f"distance={distance} is not between 0 and {most}: {settings}")


@dataclass(frozen=True, kw_only=True)
class Stories(Numbered):
    stream, at_once = 0x16D0, 64

    document_bytes: int
    names: int
    distance: int

    @property
    def size(self) -> int:
        return self.count * self.document_bytes

    def documents(self) -> Iterator[Document]:
        draws = self.draws()
        step = (self.document_bytes - self.distance) // (self.names + 2)
        order = draws.orders(len(NAMES))[:, : self.names]
        traits = np.stack([draws.integers(len(words), self.names) for words in (TRADES, TOWNS, ANIMALS)], 2)
        delays = draws.integers(2 * step, self.names)
        filler = draws.integers(len(FILLER[0]), len(FILLER) * (self.document_bytes // SHORTEST_FILLER + 1))
        for i in range(self.count):
            people = [
                (NAMES[name], TRADES[trade], TOWNS[town], ANIMALS[animal])
                for name, (trade, town, animal) in zip(order[i].tolist(), traits[i].tolist(), strict=True)
            ]
            sentences = self._story(people, step, delays[i].tolist(), filler[i].reshape(-1, len(FILLER)).tolist())
            yield Document(f"story {self.first + i}", "".join(sentences))

    def _story(
        self, people: list[tuple[str, ...]], step: int, delays: list[int], filler: list[list[int]]
    ) -> Iterator[str]:
        """Sentences. Person i is introduced at about i * step; the question comes `distance` and a delay later."""
        asked: list[tuple[int, int]] = []  # (not before this byte, person)
        position, introduced, fillers = 0, 0, iter(filler)
        while introduced < len(people) or asked or position < self.document_bytes:
            if asked and min(asked)[0] <= position:
                asked.remove(due := min(asked))
                sentence = QUESTION.format(*people[due[1]])
            elif introduced < len(people) and introduced * step <= position:
                sentence = INTRODUCTION.format(*people[introduced])
                asked.append((position + len(sentence) + self.distance + delays[introduced], introduced))
                introduced += 1
            else:
                chosen = zip(FILLER, next(fillers), strict=True)
                sentence = FILLER_SENTENCE.format(*(words[number] for words, number in chosen))
            position += len(sentence)
            yield sentence
