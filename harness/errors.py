"""Errors that a user can cause. Each is one line that says what is wrong, where, and which command comes next."""

import difflib
from collections.abc import Iterable


class UsageError(Exception):
    """The command cannot be carried out as typed: a message of one line, exit code 2, no file changed."""


def one_line(text: object) -> str:
    """A text of others, such as a library's message: without line breaks, and no character of it acts on a terminal."""
    words = " ".join(str(text).split())
    return "".join(letter if letter.isprintable() else "?" for letter in words)


def did_you_mean(word: str, options: Iterable[str], listed: Iterable[str] | None = None) -> str:
    """`did you mean 'lavo'?`, or all options where none is close; or those of them that are to be listed."""
    options = sorted(options)
    matches = difflib.get_close_matches(word, options, n=3, cutoff=0.6)
    if matches:
        return "did you mean " + " or ".join(f"'{option}'" for option in matches) + "?"
    options = options if listed is None else sorted(listed)
    return f"there is: {', '.join(options)}" if options else "there is none yet"
