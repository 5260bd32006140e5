"""Generated articles of facts, a few of which are announced: the announced facts, in order, are the summary.

    Rolan the weaver sold a lamp in Tarn . Second Pivir lost a drum . Jelan found a coin in Ulm . |||||
    First Sadel the baker broke a ring . ...
    -> Sadel the baker broke a ring . Pivir lost a drum .

A fact is announced by the word before it and by nothing else: the same words make the other facts, and every word
occurs many times in a document. So an encoder that mixes nothing gives a decoder no word of an announced fact by which
to tell it from the others. Facts have 5 to 9 words, and announced ones come in any order, so that what comes next
depends on how many sentences are written, which neither the last word nor its place tells. A document is a function of
the seed and its number alone, the same on every machine.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tasks.checks import at_least
from tasks.probe.draws import Numbered
from tasks.seq2seq.pairs import Pair

VERSION = 2  # part of the cache key: raise it when the same seed gives other documents
NAMES, TRADES, VERBS, THINGS, TOWNS, ANNOUNCEMENTS = (
    words.split()
    for words in (
        "Rolan Pivir Jelan Sadel Govin Haska Kibex Fidra",
        "weaver baker miller potter tailor mason fiddler sailor",
        "sold found lost broke bought hid mended painted",
        "lamp drum coin ring bell boat book clock",
        "Tarn Ulm Vesk Orly Bram Celle Dorn Elva",
        "First Second Third Fourth Fifth Sixth Seventh Eighth Ninth Tenth Eleventh Twelfth",
    )
)
BETWEEN = "|||||"  # articles, as in Multi-News


def check(documents: int, facts: int, announced: int, articles: int) -> None:
    """Raises ValueError for settings that no document fits."""
    at_least(1, documents=documents, document_facts=facts, announced=announced, articles=articles)
    if announced > min(facts, len(ANNOUNCEMENTS)):
        raise ValueError(f"announced={announced} is more than document_facts={facts} or than {len(ANNOUNCEMENTS)}")
    if articles > facts:
        raise ValueError(f"articles={articles} is more than document_facts={facts}")


@dataclass(frozen=True, kw_only=True)
class Articles(Numbered):
    stream, at_once = 0x5A10, 2048

    facts: int
    announced: int
    articles: int

    def pairs(self) -> Iterator[Pair]:
        draws = self.draws()
        words = [draws.integers(len(kind), self.facts) for kind in (NAMES, TRADES, VERBS, THINGS, TOWNS)]
        shown = draws.integers(4, self.facts)  # bit 0: the trade, bit 1: the town
        places = draws.distinct(self.facts, self.announced)  # in any order, which is that of the announcements
        for row in range(self.count):
            facts = [fact(*(int(kind[row, i]) for kind in (*words, shown))) for i in range(self.facts)]
            chosen = places[row].tolist()
            announcements = dict(zip(chosen, ANNOUNCEMENTS, strict=False))
            summary = " ".join(facts[index] for index in chosen)
            yield Pair(f"document {self.first + row}", self._document(facts, announcements), summary)

    def _document(self, facts: list[str], announcements: dict[int, str]) -> str:
        starts = {self.facts * article // self.articles for article in range(1, self.articles)}
        sentences: list[str] = []
        for number, sentence in enumerate(facts):
            sentences += [BETWEEN] if number in starts else []
            sentences += [announcements[number]] if number in announcements else []
            sentences.append(sentence)
        return " ".join(sentences)


def fact(name: int, trade: int, verb: int, thing: int, town: int, shown: int) -> str:
    """A sentence; `shown` says by its bits whether it has the trade and the town."""
    who = f"{NAMES[name]} the {TRADES[trade]}" if shown & 1 else NAMES[name]
    where = f" in {TOWNS[town]}" if shown & 2 else ""
    return f"{who} {VERBS[verb]} a {THINGS[thing]}{where} ."
