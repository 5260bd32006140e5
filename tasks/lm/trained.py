"""Vocabularies that follow from the training split: `bpe`, byte-level pairs, and `words`.

Words are separated by white space, and the `vocabulary` - 2 most frequent ones have ids. The last two are that of every
other word, `<unk>`, and the end token. WikiText-103's text is already split at punctuation: the 267,735 ids of its
published version are the words that occur three times or more, and these two.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks import data_sources
from tasks.checks import DataError, Progress
from tasks.data_sources import MIB, refusing
from tasks.examples import digest
from tasks.lm.tokenizers import Pieces, byte_level, bytes_of, opened, passages

UNKNOWN = "<unk>"
LEAST_COUNT = 2  # occurrences of a pair that training joins
TRAINED_ON = 1024 * MIB  # bytes of text, the first ones, that a vocabulary is trained on: bounds its time and memory
FORMAT = 1  # of the file of a trained vocabulary


@dataclass(frozen=True)
class Trained(Pieces):
    """The file has the vocabulary and the sha256 of it, so that a damaged one is known."""

    vocab_size: int
    identity: str
    file: Path

    name = "bpe"

    @property
    def end_id(self) -> int:
        return self.vocab_size - 1

    def prepare(self, texts: Callable[[], Iterable[str]], progress: Progress) -> None:
        if not self.file.exists():
            self._write(self._train(texts, progress))
        opened(self)

    def open(self) -> Any:
        from tokenizers import Tokenizer

        errors = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
        with refusing(f"{self.file}: damaged", "remove it", errors):
            content = json.loads(bytes_of(self.file).decode())
            stored = content["tokenizer"]
            if (content["format"], content["identity"]) != (FORMAT, self.identity):
                raise ValueError("it is another vocabulary")
            if content["sha256"] != hashlib.sha256(stored.encode()).hexdigest():
                raise ValueError("its content is not what was written")
            return Tokenizer.from_str(stored)

    def _train(self, texts: Callable[[], Iterable[str]], progress: Progress) -> str:
        from tokenizers import models, pre_tokenizers, trainers

        tokenizer, wanted = byte_level(models.BPE()), self.vocab_size - 1
        trainer = trainers.BpeTrainer(
            vocab_size=wanted,
            min_frequency=LEAST_COUNT,
            show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        )
        tokenizer.train_from_iterator(first_passages(texts(), progress), trainer)
        if (count := tokenizer.get_vocab_size()) != wanted:
            problem = f"tokenizer=bpe: the training split gives {count + 1:,} ids, not {self.vocab_size:,}"
            raise DataError(problem, arguments=f"task.vocabulary={count + 1}")
        return tokenizer.to_str()

    def _write(self, stored: str) -> None:
        content = {
            "format": FORMAT,
            "identity": self.identity,
            "sha256": hashlib.sha256(stored.encode()).hexdigest(),
            "tokenizer": stored,
        }
        data_sources.write_whole(self.file, [json.dumps(content).encode()])


class Words(Trained):
    """Of words that occur equally often, those that sort first have an id. A `<unk>` of the text is an unknown word."""

    name = "words"

    def _train(self, texts: Callable[[], Iterable[str]], progress: Progress) -> str:
        from tokenizers import Tokenizer, models, pre_tokenizers

        counts: Counter[str] = Counter()
        for passage in first_passages(texts(), progress):
            counts.update(passage.split())
        counts.pop(UNKNOWN, None)
        wanted = self.vocab_size - 2
        if len(counts) < wanted:
            problem = f"tokenizer=words: the training split gives {len(counts) + 2:,} ids, not {self.vocab_size:,}"
            raise DataError(problem, arguments=f"task.vocabulary={len(counts) + 2}")
        chosen = sorted(counts, key=lambda word: (-counts[word], word))[:wanted]
        ids = {word: number for number, word in enumerate([*chosen, UNKNOWN])}
        tokenizer = Tokenizer(models.WordLevel(ids, unk_token=UNKNOWN))
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        return tokenizer.to_str()

    @staticmethod
    def joined(pieces: list[str]) -> str:
        return " ".join(pieces)


def first_passages(texts: Iterable[str], progress: Progress) -> Iterator[str]:
    """The passages of the first TRAINED_ON bytes of text."""
    done = 0
    for text in texts:
        for passage in passages(text):
            if done >= TRAINED_ON:
                return
            yield passage
            done += len(passage.encode())
        progress("training the vocabulary (bytes read)", min(done, TRAINED_ON), TRAINED_ON)


def make(name: str, vocabulary: int, folder: Path, follows_from: Mapping[str, Any]) -> Trained:
    """A `bpe` or `words` of so many ids, which follows from `follows_from`, kept in `folder`."""
    settings = {"bpe": FORMAT, "ids": vocabulary, "least": LEAST_COUNT, "bytes": TRAINED_ON, "from": follows_from}
    if name == "words":
        settings = {"words": vocabulary, "bytes": TRAINED_ON, "from": follows_from}
    identity = digest(settings)
    return (Words if name == "words" else Trained)(
        vocabulary, identity, folder / f"{name}-{vocabulary}-{identity[:12]}.json"
    )
