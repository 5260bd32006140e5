"""Phonemes of English text: CMUdict first, then `phonemizer` where it is installed, then letter by letter.

The symbols are ARPAbet's 39 phonemes, vowels with their stress 0, 1 or 2, a sign between words, and the punctuation
that fairseq's recipe keeps (`. , ? ! -`; other signs are left out). The recipe uses g2p-en, whose network guesses words
that CMUdict lacks; here espeak does, through phonemizer (optional, because it is under the GPL), or a table of letters.
The labels of the phonemes count the words from each of the three.
"""

import re
import unicodedata
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tasks.checks import DataError
from tasks.data_sources import BROKEN, Download, content, refusing
from tasks.regular_files import open_regular

CMUDICT = Download(
    "https://raw.githubusercontent.com/nltk/nltk_data/5db857e6f7df11eabb5e5665836db9ec8df07e28/packages/corpora/cmudict.zip",
    896_069,
    "d07cca47fd72ad32ea9d8ad1219f85301eeaf4568f8b6b73747506a71fb5afd6",
)
MEMBER = "cmudict/cmudict"
VOWELS = ("AA", "AE", "AH", "AO", "AW", "AY", "EH", "ER", "EY", "IH", "IY", "OW", "OY", "UH", "UW")
CONSONANTS = (
    *("B", "CH", "D", "DH", "F", "G", "HH", "JH", "K", "L", "M", "N", "NG"),
    *("P", "R", "S", "SH", "T", "TH", "V", "W", "Y", "Z", "ZH"),
)
PUNCTUATION = ".,?!-"
PADDING, START, UNKNOWN, END, GAP = "<pad>", "<s>", "<unk>", "</s>", "|"
# START is in fairseq's dictionary, whose size the printed parameters show; nothing reads it
STRESSED = tuple(f"{vowel}{stress}" for vowel in VOWELS for stress in "012")
SYMBOLS = (PADDING, START, UNKNOWN, END, GAP, *PUNCTUATION, *CONSONANTS, *STRESSED)
IDS = {symbol: number for number, symbol in enumerate(SYMBOLS)}
WAYS = ("dictionary", "phonemizer", "letters")
WORD = re.compile(rf"[a-z']*[a-z][a-z']*|[{re.escape(PUNCTUATION)}]")


def table(lines: str) -> dict[str, str]:
    """{first word: the others} of entries apart by slashes and line breaks."""
    return dict(entry.split(maxsplit=1) for entry in lines.strip().replace("\n", "/").split("/"))


# the most frequent sound of a letter, or of several
LETTERS = table(
    """
    tch CH/sch S K/ch CH/ck K/dg JH/gh G/kn N/ng NG/ph F/qu K W/sh SH/th TH/wh W/wr R
    ai EY1/au AO1/aw AO1/ay EY1/ea IY1/ee IY1/eu UW1/ew UW1/ie IY1/oa OW1/oi OY1/oo UW1/ou AW1/ow OW1/oy OY1
    a AE1/b B/c K/d D/e EH1/f F/g G/h HH/i IH1/j JH/k K/l L/m M/n N/o AA1/p P/q K/r R/s S/t T/u AH1/v V/w W/x K S
    y IY1/z Z
    """
)
SPELLING = re.compile("|".join(sorted(LETTERS, key=len, reverse=True)))

# espeak's symbols of American English; vowels take their stress from the mark before them
IPA = table(
    """
    iː IY/i IY/ɪ IH/ᵻ IH/eɪ EY/ɛ EH/æ AE/ɑː AA/ɑ AA/ɔː AO/ɔ AO/oʊ OW/o OW/oː OW/ʊ UH/uː UW/u UW/ʌ AH/ə AH/ɐ AH/ɜː ER
    ɚ ER/aɪ AY/aʊ AW/ɔɪ OY/ɑːɹ AA R/ɔːɹ AO R/oːɹ AO R/ɛɹ EH R/ɪɹ IH R/ʊɹ UH R/aɪɚ AY ER/aɪə AY AH/əl AH L/n̩ AH N
    p P/b B/t T/d D/k K/ɡ G/g G/tʃ CH/dʒ JH/f F/v V/θ TH/ð DH/s S/z Z/ʃ SH/ʒ ZH/h HH/m M/n N/ŋ NG/l L/ɹ R/r R/w W/j Y
    ɾ D/ʔ T
    """
)
STRESS = {"ˈ": "1", "ˌ": "2"}


@dataclass(frozen=True)
class Phonemes:
    """Ids of a text, closed by the end, and how many words each of `WAYS` gave."""

    ids: np.ndarray  # (M,) uint8
    words: tuple[int, int, int]


class Phonemizer:
    """Text to phonemes by a dictionary {word: phonemes} and, for other words, `espeak` (None: by letters)."""

    def __init__(self, dictionary: Mapping[str, str], espeak: Callable[[str], str] | None = None):
        self.dictionary, self.espeak = dictionary, espeak
        self.others: dict[str, tuple[str, int]] = {}  # words from outside the dictionary

    def __call__(self, text: str, where: str) -> Phonemes:
        """Raises DataError for a text without words, or with digits."""
        plain = unicodedata.normalize("NFKD", text.replace("’", "'")).lower()
        plain = "".join(character for character in plain if not unicodedata.combining(character))
        if digits := re.search(r"\d+", plain):
            raise DataError(f"{where}: {digits.group()[:20]!r} in a text", "write numbers as words")
        if not re.search("[a-z]", plain):
            raise DataError(f"{where}: a text without words", "add the spoken text")
        symbols, counts = [], [0, 0, 0]
        for token in WORD.findall(plain):
            if token in PUNCTUATION:
                symbols.append(token)
                continue
            spoken, way = self.word(token)
            counts[way] += 1
            symbols += [*spoken.split(), GAP]
        ids = [IDS[symbol] for symbol in (*symbols, END)]
        return Phonemes(np.array(ids, np.uint8), tuple(counts))

    def word(self, word: str) -> tuple[str, int]:
        """Phonemes of a word, and the index in `WAYS` of their origin."""
        for spelling in (word, word.strip("'")):
            if spelling in self.dictionary:
                return self.dictionary[spelling], 0
        if word not in self.others:
            guessed = arpabet(self.espeak(word)) if self.espeak else None
            self.others[word] = (by_letters(word), 2) if guessed is None else (guessed, 1)
        return self.others[word]


def by_letters(word: str) -> str:
    """Phonemes of a word by its letters; doubled letters count once, and a final e is silent."""
    once = re.sub(r"([^aeo])\1", r"\1", word.replace("'", ""))
    if len(once) > 2 and once.endswith("e") and not once.endswith("ee"):
        once = once[:-1]
    return " ".join(LETTERS[part] for part in SPELLING.findall(once))


def arpabet(ipa: str) -> str | None:
    """espeak's phonemes, between spaces, in ARPAbet; None if one has no equal."""
    phonemes = []
    for token in ipa.split():
        marks = [STRESS[sign] for sign in token if sign in STRESS]
        symbols = IPA.get("".join(sign for sign in token if sign not in STRESS))
        if symbols is None:
            return None
        stress = marks[0] if marks else "0"
        phonemes += [f"{symbol}{stress}" if symbol in VOWELS else symbol for symbol in symbols.split()]
    return " ".join(phonemes) or None


def espeak() -> tuple[Callable[[str], str], str] | None:
    """(a word's phonemes in IPA, version) by phonemizer, or None where it or espeak is not installed."""
    try:
        import phonemizer
        from phonemizer.backend import EspeakBackend
        from phonemizer.separator import Separator

        backend = EspeakBackend("en-us", with_stress=True)
    except (ImportError, RuntimeError):
        return None
    separator = Separator(phone=" ", word="", syllable="")
    return lambda word: backend.phonemize([word], separator=separator, strip=True)[0], phonemizer.__version__


def read_dictionary(file: Path) -> dict[str, str]:
    """{word in lower case: phonemes} of CMUdict's archive, the first of several pronunciations. Raises DataError."""
    errors = (*BROKEN, KeyError, ValueError, NotImplementedError, RuntimeError)
    with (
        refusing(file, f"put {CMUDICT.url} there", errors),
        open_regular(file, follow=True) as packed,
        zipfile.ZipFile(packed) as archive,
        archive.open(MEMBER) as stream,
    ):
        data = content(stream, f"{file}: {MEMBER}")
    dictionary: dict[str, str] = {}
    for number, line in enumerate(data.decode("latin-1").splitlines(), 1):
        fields = line.split()
        phonemes = [f"{symbol}0" if symbol in VOWELS else symbol for symbol in fields[2:]]
        if not phonemes or any(symbol not in IDS for symbol in phonemes):
            raise DataError(f"{file}: {MEMBER}:{number}: {line[:60]!r} is no word and its phonemes")
        dictionary.setdefault(fields[0].lower(), " ".join(phonemes))
    return dictionary


def spelled(ids: Sequence[int]) -> str:
    """Ids as symbols between spaces, without padding and end."""
    return " ".join(SYMBOLS[number] for number in ids if SYMBOLS[number] not in (PADDING, END))
