"""What a user sees when something is wrong: one line that says what, where and the next command."""

import difflib
from collections.abc import Iterable


class UsageError(Exception):
    """The command cannot be carried out as typed. One line; exit code 2; nothing was touched."""


def one_line(text: object) -> str:
    return " ".join(str(text).split())


def did_you_mean(word: str, options: Iterable[str]) -> str:
    """`: did you mean 'lavo'?`, or the options themselves where none is near."""
    options = sorted(options)
    near = difflib.get_close_matches(word, options, n=3, cutoff=0.6)
    if near:
        return "did you mean " + " or ".join(f"'{option}'" for option in near) + "?"
    return f"there is: {', '.join(options)}" if options else "there is none yet"
