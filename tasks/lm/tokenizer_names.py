"""The tokenizers by name, and the settings that each takes.

`bytes`, `gpt2` and `wordpiece`: tasks/lm/tokenizers.py. `bpe` and `words`, trained on the training split, `vocabulary`
ids with the end token: tasks/lm/trained.py. `json`, of a published model: tasks/lm/json_tokenizer.py.
"""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from tasks.checks import at_least, one_of
from tasks.lm import json_tokenizer, tokenizers, trained
from tasks.lm.tokenizers import Tokenizer

NAMES = ("bytes", "gpt2", "wordpiece", "bpe", "words", "json")
# setting -> the tokenizers that require it, and those that take it
TAKE = {
    "vocabulary": (("bpe", "words", "json"), ()),
    "tokenizer_path": (("json",), ("gpt2", "wordpiece")),
    "end_token": ((), ("json",)),
    "vocabulary_text": (("bpe",), ()),
}
LEAST_IDS = {"bpe": 257, "words": 3}  # bytes and the end token; a word, <unk>, the end token


def check(name: str, names: Collection[str], **settings: Any) -> None:
    """Raises ValueError for a name that is none of `names`, and for a setting that it lacks or does not take."""
    one_of(names, tokenizer=name)
    for setting, value in settings.items():
        required, optional = TAKE[setting]
        if name in required if value is None else name not in (*required, *optional):
            takers = ", ".join(taker for taker in (*required, *optional) if taker in names)
            raise ValueError(f"{setting}={value} with tokenizer={name}: it belongs to {takers}")
    at_least(LEAST_IDS.get(name, 1), vocabulary=settings.get("vocabulary"))


def make(
    name: str,
    *,
    path: str | Path | None = None,
    vocabulary: int | None = None,
    end_token: str | None = None,
    folder: Path,
    follows_from: Mapping[str, Any],
) -> Tokenizer:
    """A tokenizer by name. `path` is a folder with the files of one; without it they are kept in `folder`.

    A `bpe` or `words` follows from `follows_from`, which says what the training split is. Raises ValueError for
    settings that do not fit, DataError for files in `path` that are not a vocabulary.
    """
    check(name, NAMES, tokenizer_path=path, vocabulary=vocabulary, end_token=end_token)
    path = None if path is None else Path(path).expanduser()
    if name == "bytes":
        return tokenizers.Bytes()
    if name == "gpt2":
        return tokenizers.gpt2(path, folder / "gpt2")
    if name == "wordpiece":
        return tokenizers.wordpiece(path, folder / "bert-base-cased")
    if name == "json":
        return json_tokenizer.JsonPieces(path / json_tokenizer.NAME, vocabulary, end_token)
    return trained.make(name, vocabulary, folder, follows_from)
