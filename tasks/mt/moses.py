"""Texts as the tokens of Moses and back, by `sacremoses`.

A text is normalised (its punctuation, and no control characters), cut into tokens (hyphens between letters or digits
become `@-@`), and escaped (`&apos;`): `normalize-punctuation`, `remove-non-printing-char` and `tokenizer -a`
of Luna's script. White space separates the tokens. Detokenising does not undo normalising.
"""

import re
from functools import lru_cache
from typing import Any

from tasks.data_sources import library

HYPHEN = re.compile(r"(\S)-(\S)")


@lru_cache(maxsize=4)
def _of(language: str) -> tuple[Any, Any, Any]:
    """Normaliser, tokenizer and detokenizer. Raises DataError where `sacremoses` is not installed."""
    moses = library("sacremoses", "mt")
    normaliser = moses.MosesPunctNormalizer(lang=language, post_remove_control_chars=True)
    return normaliser, moses.MosesTokenizer(lang=language), moses.MosesDetokenizer(lang=language)


def tokenise(text: str, language: str) -> str:
    """Tokens, separated by single blanks."""
    normaliser, tokenizer, _ = _of(language)
    return tokenizer.tokenize(normaliser.normalize(text), aggressive_dash_splits=True, return_str=True, escape=True)


def compounds(text: str, language: str | None) -> str:
    """Tokens as `tokenizer.perl` makes them of normalised punctuation, the hyphens inside them tokens of their own.

    So papers from 2017 to 2020 scored German. `language` None: the text has tokens.
    """
    if language is not None:
        normaliser, tokenizer, _ = _of(language)
        text = tokenizer.tokenize(normaliser.normalize(text), return_str=True, escape=True)
    return HYPHEN.sub(r"\1 ##AT##-##AT## \2", text)


def detokenise(tokens: str, language: str) -> str:
    """The text of tokens that white space separates; escaped or not, hyphens split or not."""
    return _of(language)[2].detokenize(tokens.split())
