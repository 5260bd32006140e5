"""Texts as the tokens of Moses and back, by `sacremoses`.

A text is normalised (its punctuation, and no control characters), cut into tokens (hyphens between letters or digits
become `@-@`), and escaped (`&apos;`): `normalize-punctuation`, `remove-non-printing-char` and `tokenizer -a`
of Luna's script. White space separates the tokens. Detokenising does not undo normalising.
"""

from functools import lru_cache
from typing import Any

from tasks.checks import DataError


@lru_cache(maxsize=4)
def _of(language: str) -> tuple[Any, Any, Any]:
    """Normaliser, tokenizer and detokenizer. Raises DataError where `sacremoses` is not installed."""
    try:
        from sacremoses import MosesDetokenizer, MosesPunctNormalizer, MosesTokenizer
    except ImportError as error:
        raise DataError(f"Moses' tokens: {error}", "pip install -e .[mt]") from error
    normaliser = MosesPunctNormalizer(lang=language, post_remove_control_chars=True)
    return normaliser, MosesTokenizer(lang=language), MosesDetokenizer(lang=language)


def check() -> None:
    """Raises DataError where `sacremoses` is not installed."""
    _of("en")


def tokenise(text: str, language: str) -> str:
    """Tokens, separated by single blanks."""
    normaliser, tokenizer, _ = _of(language)
    return tokenizer.tokenize(normaliser.normalize(text), aggressive_dash_splits=True, return_str=True, escape=True)


def detokenise(tokens: str, language: str) -> str:
    """The text of tokens that white space separates; escaped or not, hyphens split or not."""
    return _of(language)[2].detokenize(tokens.split())
