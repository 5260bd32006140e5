"""The tokenizer of a published model, from its tokenizer.json: `tokenizer=json`, `tokenizer_path` its folder.

`vocabulary` is how many rows the model's embeddings have, which may be more than the tokenizer has ids. The end token
is `end_token`; without one the first of `ENDS` that the vocabulary has, or else the `eos_token` of the
tokenizer_config.json beside it. No
part of a text is read as a special token. A text is read in passages (tasks/lm/tokenizers.py): where a piece spans a
line break, ids can differ from those of the whole at a passage's end.
"""

import contextlib
import difflib
import functools
import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tasks.checks import DataError, Progress
from tasks.data_sources import LARGEST_MEMBER, one_line, refusing
from tasks.examples import digest
from tasks.lm.tokenizers import Pieces, bytes_of
from tasks.regular_files import read_json

NAME, SETTINGS = "tokenizer.json", "tokenizer_config.json"
MOST_GROWTH = 100  # times; published tokenizers replace a letter by a letter
ENDS = ("<eos>", "</s>", "<|end_of_text|>", "<|endoftext|>")
CANDIDATES = 5  # special tokens that a message names


@dataclass(frozen=True)
class JsonPieces(Pieces):
    """The file is read at the first text."""

    file: Path
    vocab_size: int
    end_token: str | None = None

    name = "json"

    @functools.cached_property
    def identity(self) -> str:
        named = {"end": self.named_end} if self.named_end else {}
        return digest({"json": hashlib.sha256(bytes_of(self.file)).hexdigest(), "ids": self.vocab_size, **named})

    @functools.cached_property
    def named_end(self) -> str:
        """`end_token`, or the `eos_token` of its settings where the vocabulary has none of ENDS; empty without one."""
        file = self.file.with_name(SETTINGS)
        if self.end_token or not file.exists() or any(self.opened.token_to_id(token) is not None for token in ENDS):
            return self.end_token or ""
        with refusing(file, "", (OSError, ValueError, AttributeError)):
            token = read_json(file, LARGEST_MEMBER, follow=True).get("eos_token") or ""
            token = token.get("content", "") if isinstance(token, dict) else token
        return token if isinstance(token, str) else ""

    @functools.cached_property
    def opened(self) -> Any:
        return self.open()

    @functools.cached_property
    def end_id(self) -> int:
        names = [self.end_token] if self.end_token else [*ENDS, self.named_end]
        ids = [id for id in map(self.opened.token_to_id, names) if id is not None]
        if not ids:
            special = [token.content for token in self.opened.get_added_tokens_decoder().values()]
            close = difflib.get_close_matches(names[0], special) or special[:CANDIDATES]
            wanted = f"no token {self.end_token}" if self.end_token else f"no end token, one of {', '.join(ENDS)}"
            problem = f"{self.file}: {wanted}; it has {', '.join(close) or 'no special tokens'}"
            raise DataError(problem, "name the one that ends a text: \"task.end_token='...'\"")
        return ids[0]

    def prepare(self, texts: Callable[[], Iterable[str]], progress: Progress) -> None:
        """Refuse a file that cannot be used."""
        _ = self.end_id

    def open(self) -> Any:
        from tokenizers import Tokenizer

        data = bytes_of(self.file)
        with self._refused("no tokenizer"):
            text = data.decode()
            tokenizer = Tokenizer.from_str(text)
        if growth(json.loads(text).get("normalizer")) > MOST_GROWTH:
            raise DataError(f"{self.file}: its normalizer makes a text more than {MOST_GROWTH} times as long")
        highest = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=0)
        if highest >= self.vocab_size:
            raise DataError(f"{self.file}: ids up to {highest}; task.vocabulary={self.vocab_size} is not more")
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = True  # as text
        return tokenizer

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        with self._refused("it reads no text"):
            return super().encode(texts)

    def text(self, ids: Sequence[int]) -> str:
        return self.opened.decode([i for i in ids if i != self.end_id], skip_special_tokens=False)

    @contextlib.contextmanager
    def _refused(self, problem: str) -> Iterator[None]:
        """Turns what the library raises into a DataError. A panic of its Rust code is a BaseException."""
        try:
            yield
        except (DataError, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # the library has no error types of its own
            raise DataError(f"{self.file}: {problem} ({one_line(error)[:120]})") from error


def growth(normalizer: Any) -> int:
    """How many times as long a text becomes at most by the replacements of a normalizer, which follow each other."""
    if isinstance(normalizer, Mapping):
        written = [normalizer.get(key) for key in ("content", "prepend")]
        return math.prod(max(1, len(text)) for text in written if isinstance(text, str)) * growth(
            normalizer.get("normalizers")
        )
    return math.prod(map(growth, normalizer)) if isinstance(normalizer, list) else 1
