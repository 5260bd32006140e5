"""Tokenizers of language modelling: texts become ids, exactly those of the published vocabularies.

- `bytes`: the UTF-8 bytes, 256 ids, and the end token.
- `gpt2`: GPT-2's byte-level pairs, 50,257 ids; `<|endoftext|>` is the end token.
- `wordpiece`: BERT's word pieces, by default bert-base-cased's, 28,996 ids (LLP, D-25); `[SEP]` is the end token.

No part of a text becomes a special token: `<|endoftext|>` and `[SEP]` in it are read letter by letter. Word pieces of a
vocabulary without any upper-case letter are those of an uncased model, which reads lower case without accents.

A tokenizer is a small picklable object; what it needs of its files is read at the first text, once in a process.
"""

import functools
import hashlib
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from tasks import data_sources
from tasks.checks import DataError, Progress
from tasks.data_sources import ANY, Download, refusing
from tasks.examples import digest
from tasks.regular_files import open_regular

GPT2_URL = "https://openaipublic.blob.core.windows.net/gpt-2/encodings/main"
GPT2 = (  # as tiktoken checks them
    Download(f"{GPT2_URL}/encoder.json", 1_042_301, "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783"),
    Download(f"{GPT2_URL}/vocab.bpe", 456_318, "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5"),
)
GPT2_NAMES = (("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe"))  # Hugging Face's and OpenAI's, same bytes
GPT2_IDS, GPT2_END = 50_257, 50_256
BERT = Download(
    "https://huggingface.co/google-bert/bert-base-cased/resolve/cd5ef92a9fb2f889e972770a36d4ed042daf221e/vocab.txt",
    213_450,
    "eeaa9875b23b04b4c54ef759d03db9d1ba1554838f8fb26c5d96fa551df93d02",
)
BERT_IDS, BERT_END = 28_996, 102
UNKNOWN, SEPARATOR = "[UNK]", "[SEP]"
LONGEST_WORD = 100  # characters of a word that has pieces, BERT's

BYTE_IDS = 256
PASSAGE = 1 << 16  # characters, about, that are encoded at once
BATCH = 64  # passages


class Tokenizer(Protocol):
    """Ids from 0 to `vocab_size` - 1. `identity` (sha256, hexadecimal) is that of what they follow from."""

    name: str
    vocab_size: int
    end_id: int
    identity: str

    def prepare(self, texts: Callable[[], Iterable[str]], progress: Progress) -> None:
        """Fetch what is missing, or train on the training split's texts. Raises DataError."""

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        """The ids of each text, without `end_id`. Raises DataError for files that are not there."""

    def text(self, ids: Sequence[int]) -> str:
        """The text of ids. `end_id` is skipped; bytes that are not UTF-8 become U+FFFD."""


def dtype(vocab_size: int) -> type[np.integer]:
    """The smaller of two types that holds this number of ids."""
    return np.uint16 if vocab_size <= 1 << 16 else np.int32


@dataclass(frozen=True)
class Bytes:
    """The id of a byte is its value."""

    name = "bytes"
    vocab_size = BYTE_IDS + 1
    end_id = BYTE_IDS
    identity = hashlib.sha256(b"bytes").hexdigest()

    def prepare(self, texts: Callable[[], Iterable[str]], progress: Progress) -> None:
        """Nothing to prepare."""

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        return [np.frombuffer(text.encode(), np.uint8).astype(np.uint16) for text in texts]

    def text(self, ids: Sequence[int]) -> str:
        return bytes(i for i in ids if i != self.end_id).decode(errors="replace")


@dataclass(frozen=True)
class Pieces:
    """Parts of words. Subclasses have `name`, `vocab_size`, `end_id`, `identity`, and open their files."""

    def open(self) -> Any:
        """`tokenizers.Tokenizer` without special tokens. Raises DataError."""
        raise NotImplementedError

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        tokenizer, kind = opened(self), dtype(self.vocab_size)
        counts: list[int] = []

        def all_passages() -> Iterator[str]:
            for text in texts:
                parts = passages(text)
                counts.append(len(parts))
                yield from parts

        ids: list[np.ndarray] = []
        parts = all_passages()
        while batch := list(itertools.islice(parts, BATCH)):
            encoded = tokenizer.encode_batch_fast(batch, add_special_tokens=False)
            ids += [np.array(encoding.ids, kind) for encoding in encoded]
        edges = [0, *itertools.accumulate(counts)]
        return [
            np.concatenate(ids[start:stop]) if stop > start + 1 else ids[start]
            for start, stop in itertools.pairwise(edges)
        ]

    def text(self, ids: Sequence[int]) -> str:
        tokenizer = opened(self)
        return self.joined([tokenizer.id_to_token(i) for i in ids if i != self.end_id])

    @staticmethod
    def joined(pieces: list[str]) -> str:
        """The text of byte-level pieces."""
        from tokenizers import decoders

        return decoders.ByteLevel().decode(pieces)


@dataclass(frozen=True)
class GPT2Pieces(Pieces):
    vocabulary: Path
    merges: Path
    identity: str
    downloads: Path | None  # the folder that the files are fetched to

    name = "gpt2"
    vocab_size = GPT2_IDS
    end_id = GPT2_END

    def prepare(self, texts: Callable[[], Iterable[str]], progress: Progress) -> None:
        for file in GPT2 if self.downloads is not None else ():
            file.fetch(self.downloads, progress)
        opened(self)

    def open(self) -> Any:
        from tokenizers import models

        for file in (self.vocabulary, self.merges):
            bytes_of(file)
        with refusing(f"{self.vocabulary} and {self.merges.name}", "put GPT-2's files there", ANY):
            tokenizer = byte_level(models.BPE.from_file(str(self.vocabulary), str(self.merges)))
        if sorted(tokenizer.get_vocab().values()) != list(range(GPT2_IDS)):
            problem = f"not GPT-2's {GPT2_IDS:,} pieces with ids from 0 to {GPT2_IDS - 1}"
            raise DataError(f"{self.vocabulary}: {problem}", "put GPT-2's there")
        return tokenizer


@dataclass(frozen=True)
class WordPieces(Pieces):
    vocabulary: Path
    vocab_size: int
    end_id: int
    identity: str
    downloads: Path | None

    name = "wordpiece"

    def prepare(self, texts: Callable[[], Iterable[str]], progress: Progress) -> None:
        if self.downloads is not None:
            BERT.fetch(self.downloads, progress)

    def open(self) -> Any:
        from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

        pieces = _pieces(self.vocabulary)
        model = models.WordPiece(pieces, unk_token=UNKNOWN, max_input_chars_per_word=LONGEST_WORD)
        tokenizer = Tokenizer(model)
        lower = is_uncased(pieces)
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lower, strip_accents=lower)
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        return tokenizer

    @staticmethod
    def joined(pieces: list[str]) -> str:
        from tokenizers import decoders

        return decoders.WordPiece(cleanup=False).decode(pieces)


def passages(text: str) -> list[str]:
    """The text in parts of about PASSAGE characters, whose ids, one after another, are those of the whole.

    A line break after a character that is no white space never belongs to a piece with what is before it.
    """
    parts, start = [], 0
    while len(text) - start > PASSAGE:
        cut = text.find("\n", start + PASSAGE)
        while cut > 0 and text[cut - 1].isspace():
            cut = text.find("\n", cut + 1)
        if cut < 0:
            break
        parts.append(text[start:cut])
        start = cut
    return [*parts, text[start:]]


def is_uncased(pieces: Iterable[str]) -> bool:
    """Whether no piece but the special ones in brackets has an upper-case letter."""
    return all(piece == piece.lower() or piece[0] + piece[-1] == "[]" for piece in pieces)


@functools.lru_cache(maxsize=8)
def opened(tokenizer: Pieces) -> Any:
    # processes encode in parallel; threads inside them would only compete, and a fork would break them
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    return tokenizer.open()


def byte_level(model: Any) -> Any:
    from tokenizers import Tokenizer, pre_tokenizers

    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return tokenizer


def gpt2(path: Path | None, folder: Path) -> GPT2Pieces:
    if path is None:
        identity = digest({"gpt2": [file.sha256 for file in GPT2]})
        return GPT2Pieces(folder / GPT2[0].name, folder / GPT2[1].name, identity, folder)
    there = [names for names in GPT2_NAMES if all((path / name).is_file() for name in names)]
    if not there:
        names = " or ".join(" and ".join(pair) for pair in GPT2_NAMES)
        raise DataError(f"{path}: no {names} there", "set task.tokenizer_path to GPT-2's folder, or null")
    vocabulary, merges = (path / name for name in there[0])
    identity = digest({"gpt2": [hashlib.sha256(bytes_of(file)).hexdigest() for file in (vocabulary, merges)]})
    return GPT2Pieces(vocabulary, merges, identity, None)


def wordpiece(path: Path | None, folder: Path) -> WordPieces:
    if path is None:
        identity = digest({"wordpiece": BERT.sha256})
        return WordPieces(folder / BERT.name, BERT_IDS, BERT_END, identity, folder)
    file = path / BERT.name
    pieces = _pieces(file)
    identity = digest({"wordpiece": hashlib.sha256(bytes_of(file)).hexdigest()})
    return WordPieces(file, len(pieces), pieces[SEPARATOR], identity, None)


def _pieces(file: Path) -> dict[str, int]:
    """Ids of the pieces in a vocab.txt, one per line. Raises DataError."""
    text = data_sources.decoded(bytes_of(file), file)
    lines = [line.rstrip("\r") for line in text.removesuffix("\n").split("\n")]
    pieces = {piece: number for number, piece in enumerate(lines)}
    missing = [name for name in (UNKNOWN, SEPARATOR) if name not in pieces]
    if missing or "" in pieces or len(pieces) < len(lines):
        problem = f"no {missing[0]}" if missing else "an empty piece or one that is there twice"
        raise DataError(f"{file}: {problem} in its {len(lines):,} lines", "put BERT's vocab.txt there")
    return pieces


def bytes_of(file: Path) -> bytes:
    with refusing(file, "set task.tokenizer_path, or fetch it"), open_regular(file, follow=True) as stream:
        return data_sources.content(stream, str(file))
