"""Errors that a user can cause. Each is one line: what is wrong, where, and the next command."""

import difflib
from collections.abc import Iterable

from harness.config.masking import masked

LONGEST_NAME = 200  # letters that a message compares


class UsageError(Exception):
    """The command cannot be carried out as typed: a message of one line, exit code 2, no file changed."""


def one_line(text: object) -> str:
    """Third-party text, such as a library's message, on one line, without control characters and secrets."""
    words = masked(" ".join(str(text).split()))
    return words if words.isprintable() else "".join(letter if letter.isprintable() else "?" for letter in words)


def shown(name: object) -> str:
    """The name of a file, which may hold anything, for a terminal: other letters are escaped as in Python's source."""
    text = str(name)
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def did_you_mean(word: str, options: Iterable[str], listed: Iterable[str] | None = None) -> str:
    """`did you mean 'lavo'?`, or else `there is: ...` with all options, or only with those `listed`."""
    options = sorted(option[:LONGEST_NAME] for option in options)
    word = word[:LONGEST_NAME]  # a comparison takes the product of the lengths
    matches = difflib.get_close_matches(word, options, n=3, cutoff=0.6)
    if matches:
        return "did you mean " + " or ".join(f"'{option}'" for option in matches) + "?"
    options = options if listed is None else sorted(listed)
    return f"there is: {', '.join(options)}" if options else "there is none yet"
