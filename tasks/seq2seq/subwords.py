"""Parts of words by byte-pair encoding (Sennrich et al., 2016), as in subword-nmt: the last part ends in `</w>`.

White space separates words. A vocabulary is trained on the training split, or follows from subword-nmt's codes: a
file whose first line is `#version: 0.2` and whose others are the two parts of a merge each. Of codes the vocabulary has
every letter that occurs in them, within and at the end of a word, and what each merge makes. Piece 0 is `<unk>`, which
stands for any other letter.
"""

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from tasks import data_sources, file_digests
from tasks.checks import DataError, Progress, at_least
from tasks.examples import digest
from tasks.lm.tokenizers import Pieces
from tasks.lm.trained import Trained

END = "</w>"
UNKNOWN = "<unk>"  # piece 0
VERSION_LINE = "#version: 0.2"
FORMAT = 1  # of a trained vocabulary; part of its identity
# the most frequent ones, which are pieces: within a word and at its end at most 496 (40,496 - 40,000 merges)
LETTERS = 248
AT_ONCE = 1000  # repetitions of a word
LEAST_COUNT = 2  # occurrences of a pair that training joins


class Subwords(Pieces):
    """`vocab_size` counts `<unk>`."""

    name = "subwords"
    end_id = -1  # no end token: a sequence ends with the row `</s>` of the vocabulary

    @staticmethod
    def joined(pieces: list[str]) -> str:
        """Words, separated by blanks; `<unk>` becomes a word U+FFFD."""
        from tokenizers import decoders

        words = ["\ufffd" + END if piece == UNKNOWN else piece for piece in pieces]
        return decoders.BPEDecoder(suffix=END).decode(words)


@dataclass(frozen=True)
class Codes(Subwords):
    file: Path
    vocab_size: int
    identity: str

    def prepare(self, texts: Callable[[], Iterable[str]], progress: Progress) -> None:
        """Nothing to prepare: the file exists."""

    def open(self) -> Any:
        return _tokenizer(*read_codes(self.file))


@dataclass(frozen=True)
class TrainedSubwords(Trained, Subwords):
    """Trained on all texts, without words that have rare letters.

    The library numbers letters at the ends of words in the order of a hash table, and of equally frequent pairs joins
    the one with lower numbers. They are sorted here, so that the same texts give the same pieces.
    """

    name = "subwords"
    end_id = -1

    def _train(self, texts: Callable[[], Iterable[str]], progress: Progress) -> str:
        from tokenizers import trainers

        words = Counter(itertools.chain.from_iterable(text.split() for text in texts()))
        count = Counter[str]()
        for word, times in words.items():
            for letter in word:
                count[letter] += times
        letters = set(sorted(count, key=lambda letter: (-count[letter], letter))[:LETTERS])
        words = {word: times for word, times in words.items() if letters.issuperset(word)}
        tokenizer = _tokenizer({UNKNOWN: 0}, [])
        trainer = trainers.BpeTrainer(
            vocab_size=self.vocab_size,
            min_frequency=LEAST_COUNT,
            show_progress=False,
            special_tokens=[UNKNOWN, *sorted({word[-1] + END for word in words})],
            end_of_word_suffix=END,
        )
        tokenizer.train_from_iterator(_repeated(words), trainer)
        if (size := tokenizer.get_vocab_size()) != self.vocab_size:
            problem = f"tokenizer=subwords: the training split gives {size - 1:,} pieces, not {self.vocab_size - 1:,}"
            raise DataError(problem, arguments=f"task.vocabulary={size - 1}")
        model = json.loads(tokenizer.to_str())["model"]
        # made again without special tokens: no part of a text is one
        return _tokenizer(model["vocab"], [tuple(merge) for merge in model["merges"]]).to_str()


def make(path: Path | None, vocabulary: int | None, folder: Path, follows_from: Mapping[str, Any]) -> Subwords:
    """Codes of a file `path`, or `vocabulary` pieces trained on what `follows_from` says.

    Raises ValueError for a vocabulary below 2, DataError for a file that has no codes.
    """
    if path is not None:
        pieces, _ = read_codes(path)
        identity = digest({"subwords": file_digests.identity(path)})
        return Codes(path, len(pieces), identity)
    at_least(2, vocabulary=vocabulary)
    settings = {"format": FORMAT, "pieces": vocabulary, "letters": LETTERS, "least": LEAST_COUNT}
    identity = digest({"subwords": settings, "from": follows_from})
    return TrainedSubwords(vocabulary + 1, identity, folder / f"subwords-{vocabulary}-{identity[:12]}.json")


@lru_cache(maxsize=4)
def read_codes(file: Path) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """(number of each piece, merges in order) of a file of codes. Raises DataError."""
    merges: list[tuple[str, str]] = []
    letters: dict[str, None] = {}
    made: dict[str, None] = {}
    for number, line in data_sources.lines_of(file):
        where = f"{file}:{number}"
        text = data_sources.decoded(line, where)
        if number == 1:
            if text.strip() != VERSION_LINE:
                problem = f"{where}: codes of another version ({text[:40]!r}, not {VERSION_LINE!r})"
                raise DataError(problem, "learn them with subword-nmt 0.2 or later")
            continue
        parts = text.split(" ")
        if len(parts) != 2 or not all(parts):
            raise DataError(f"{where}: {text[:60]!r} is not two pieces with a blank between")
        for part in parts:
            if len(part.removesuffix(END)) == 1:
                letters[part.removesuffix(END)] = None
            elif part not in made:
                raise DataError(f"{where}: joins {part[:40]!r}, which no line above makes")
        made[parts[0] + parts[1]] = None
        merges.append((parts[0], parts[1]))
    if not merges:
        raise DataError(f"{file}: no merges", "put subword-nmt's codes there")
    pieces = [UNKNOWN, *itertools.chain.from_iterable((letter, letter + END) for letter in letters), *made]
    return {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}, merges


def _repeated(words: Mapping[str, int]) -> Iterator[str]:
    """Texts in which each word occurs as often as given."""
    for word, times in words.items():
        for start in range(0, times, AT_ONCE):
            yield f"{word} " * min(AT_ONCE, times - start)


def _tokenizer(pieces: Mapping[str, int], merges: list[tuple[str, str]]) -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.BPE(dict(pieces), merges, unk_token=UNKNOWN, end_of_word_suffix=END))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return tokenizer
