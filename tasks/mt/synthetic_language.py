"""A constructed pair of languages: the source has its verb in the middle and no cases, the target its verb last, and
cases.

    the oldish gimas vinbe the fenek .
    die almten zolomen die rauet tremin .

The translation of a word depends on its neighbours in the source:

- an article says case, gender and number: subjects are nominative; an object's case is governed by the verb, which
  stands before it in the source and comes last in the target; after a preposition it is dative;
- gender is that of the last noun: two nouns in a row are a compound, in the target one word with an `s` between them;
- half of the verbs look like nouns and only their position tells them apart; a verb's ending in the target follows from
  the number of its subject, which the verb in the source does not show.

So an encoder that mixes nothing gives the decoder a noun without its role and an object without its verb. Sentences
have 6 to 24 words with their full stop. A pair is a function of the seed and its number alone, the same on every
machine.

    NOUNS nouns of three genders, VERBS verbs, of which odd ones govern the dative, ADJECTIVES adjectives
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tasks.probe.draws import Numbered
from tasks.seq2seq.pairs import Pair

VERSION = 1  # part of the cache key: raise it when the same seed gives other pairs
NOUNS, VERBS, ADJECTIVES, PREPOSITIONS = 32, 16, 8, 4
HOMONYMS = 8  # verbs 0, ..., 7 look like nouns 0, ..., 7


def _words(first: str, second: str) -> list[str]:
    return [stem + end for end in second.split(",") for stem in first.split()]


SOURCE_NOUNS = _words("bar dol fen gim hal jor kep lun", "a,ek,ip,os")
TARGET_NOUNS = _words("tisk wem rau zol pif neg doch kra", "om,et,ul,in")
SOURCE_VERBS = SOURCE_NOUNS[:HOMONYMS] + _words("mar sot vin wul", "be,do")
TARGET_VERBS = _words("glab spor trem klin", "a,e,i,o")  # stems
SOURCE_ADJECTIVES = _words("old new red big", "y,ish")
TARGET_ADJECTIVES = _words("alm gron sil bret", "k,t")  # stems
SOURCE_PREPOSITIONS, TARGET_PREPOSITIONS = ("with", "near", "under", "for"), ("mit", "bei", "unter", "vor")
NOMINATIVE, ACCUSATIVE, DATIVE = range(3)
ARTICLES = (("der", "die", "das"), ("den", "die", "das"), ("dem", "der", "dem"))  # case, then gender
PLURAL_ARTICLES = ("die", "die", "den")
PHRASES = 5  # subject, object, after the preposition; the second clause's subject and object


def article(case: int, gender: int, plural: bool) -> str:
    return PLURAL_ARTICLES[case] if plural else ARTICLES[case][gender]


@dataclass(frozen=True)
class Phrase:
    """A noun with its article, after an adjective and another noun if it has them."""

    noun: int
    before: int | None  # the first noun of a compound
    adjective: int | None
    plural: bool

    def source(self) -> list[str]:
        adjective = [] if self.adjective is None else [SOURCE_ADJECTIVES[self.adjective]]
        before = [] if self.before is None else [SOURCE_NOUNS[self.before]]
        return ["the", *adjective, *before, SOURCE_NOUNS[self.noun] + "s" * self.plural]

    def target(self, case: int) -> list[str]:
        ending = "e" if case == NOMINATIVE and not self.plural else "en"
        adjective = [] if self.adjective is None else [TARGET_ADJECTIVES[self.adjective] + ending]
        before = "" if self.before is None else TARGET_NOUNS[self.before] + "s"
        noun = before + TARGET_NOUNS[self.noun] + "en" * self.plural
        return [article(case, self.noun % 3, self.plural), *adjective, noun]


@dataclass(frozen=True)
class Clause:
    subject: Phrase
    verb: int
    object: Phrase
    preposition: int | None
    location: Phrase  # after the preposition

    def source(self) -> list[str]:
        location = [] if self.preposition is None else [SOURCE_PREPOSITIONS[self.preposition], *self.location.source()]
        return [*self.subject.source(), SOURCE_VERBS[self.verb], *self.object.source(), *location]

    def target(self) -> list[str]:
        case = DATIVE if self.verb % 2 else ACCUSATIVE
        location = (
            [] if self.preposition is None else [TARGET_PREPOSITIONS[self.preposition], *self.location.target(DATIVE)]
        )
        verb = TARGET_VERBS[self.verb] + ("n" if self.subject.plural else "t")
        return [*self.subject.target(NOMINATIVE), *self.object.target(case), *location, verb]


class Sentences(Numbered):
    stream, at_once = 0x3A70, 2048

    def pairs(self) -> Iterator[Pair]:
        draws = self.draws()
        nouns, before = draws.integers(NOUNS, PHRASES), draws.integers(NOUNS, PHRASES)
        adjectives, bits = draws.integers(ADJECTIVES, PHRASES), draws.integers(8, PHRASES)
        verbs, prepositions = draws.integers(VERBS, 2), draws.integers(PREPOSITIONS, 1)
        shape = draws.integers(4, 1)  # bit 0: with a preposition, bit 1: a second clause
        for row in range(self.count):
            drawn = (nouns, before, adjectives, bits)
            phrases = [self._phrase(*(int(numbers[row, i]) for numbers in drawn)) for i in range(PHRASES)]
            how = int(shape[row, 0])
            preposition = int(prepositions[row, 0]) if how & 1 else None
            clauses = [Clause(phrases[0], int(verbs[row, 0]), phrases[1], preposition, phrases[2])]
            if how & 2:
                # without a compound, so that no sentence is longer than 24 words
                short = Phrase(phrases[3].noun, None, phrases[3].adjective, phrases[3].plural)
                clauses.append(Clause(short, int(verbs[row, 1]), phrases[4], None, phrases[2]))
            source = " and ".join(" ".join(clause.source()) for clause in clauses)
            target = " und ".join(" ".join(clause.target()) for clause in clauses)
            yield Pair(f"pair {self.first + row}", f"{source} .", f"{target} .")

    @staticmethod
    def _phrase(noun: int, before: int, adjective: int, bits: int) -> Phrase:
        return Phrase(noun, before if bits & 2 else None, adjective if bits & 4 else None, bool(bits & 1))
