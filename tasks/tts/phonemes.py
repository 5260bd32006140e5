"""Phonemes of English text: CMUdict first, then letter by letter.

The symbols are ARPAbet's 39 phonemes, vowels with their stress 0, 1 or 2, a sign between words, and the punctuation
that fairseq's recipe keeps (`. , ? ! -`; other signs are left out). The recipe uses g2p-en, whose network guesses words
that CMUdict lacks; here a table of letters does. Each text has the number of words from each of the two.
"""

import re
import unicodedata
import zipfile
from collections.abc import Mapping, Sequence
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
WORD = re.compile(rf"[a-z']*[a-z][a-z']*|[{re.escape(PUNCTUATION)}]")
# columns of the labels; the one between them is 0, as in prepared data that count the words of a phonemizer there
BY_DICTIONARY, BY_LETTERS = 0, 2

# the most frequent sound of a letter, or of several
SOUNDS = """
tch CH/sch S K/ch CH/ck K/dg JH/gh G/kn N/ng NG/ph F/qu K W/sh SH/th TH/wh W/wr R
ai EY1/au AO1/aw AO1/ay EY1/ea IY1/ee IY1/eu UW1/ew UW1/ie IY1/oa OW1/oi OY1/oo UW1/ou AW1/ow OW1/oy OY1
a AE1/b B/c K/d D/e EH1/f F/g G/h HH/i IH1/j JH/k K/l L/m M/n N/o AA1/p P/q K/r R/s S/t T/u AH1/v V/w W/x K S
y IY1/z Z
"""
LETTERS = dict(entry.split(maxsplit=1) for entry in SOUNDS.strip().replace("\n", "/").split("/"))
SPELLING = re.compile("|".join(sorted(LETTERS, key=len, reverse=True)))


def spoken(text: str, where: str, dictionary: Mapping[str, str]) -> tuple[np.ndarray, tuple[int, int, int]]:
    """Ids of a text, (M,) uint8, closed by the end, and its words by their source; `dictionary`: {word: phonemes}.

    Raises DataError for a text without words, or with digits.
    """
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
        known = dictionary.get(token) or dictionary.get(token.strip("'"))
        counts[BY_DICTIONARY if known else BY_LETTERS] += 1
        symbols += [*(known or by_letters(token)).split(), GAP]
    ids = [IDS[symbol] for symbol in (*symbols, END)]
    return np.array(ids, np.uint8), tuple(counts)


def by_letters(word: str) -> str:
    """Phonemes of a word by its letters; doubled letters count once, and a final e is silent."""
    once = re.sub(r"([^aeo])\1", r"\1", word.replace("'", ""))
    if len(once) > 2 and once.endswith("e") and not once.endswith("ee"):
        once = once[:-1]
    return " ".join(LETTERS[part] for part in SPELLING.findall(once))


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
