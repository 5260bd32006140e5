"""Errors that a user can cause. Each is one line: what is wrong, where, and the next command."""

import difflib
import functools
import inspect
import re
from collections.abc import Callable, Iterable
from typing import Any

from harness.masking import masked

LONGEST_NAME = 200  # letters that a message compares
LONGEST_MESSAGE, LONGEST_START = 4_000, 3_000  # letters of a message, and of its start
CLOSEST = 3  # options that a message suggests
# control characters, line separators, and what turns the direction of a text round: never printed
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


class UsageError(Exception):
    """Raised when a command cannot run as given. One-line message, exit code 2, no file is changed.

    Characters that cannot be printed are escaped, and secrets are masked. Long messages are truncated in the middle, so
    that the suggested command at the end survives.
    """

    def __init__(self, message: object = "", *more: object):
        text = masked(shown(message))
        if len(text) > LONGEST_MESSAGE:
            text = f"{text[:LONGEST_START]} ... {text[LONGEST_START - LONGEST_MESSAGE :]}"
        super().__init__(text, *more)


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


def in_markdown(text: str) -> str:
    """Third-party text for Markdown, with everything escaped that Markdown would interpret.

    `|` would end an entry, `<` start a tag, `*` or `_` emphasis, `$` a formula, `#` a heading, `-` a list; a control
    character would end a line.
    """
    text = CONTROL.sub(" ", text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = re.sub(r"([\\|*_`\[\]$]|~(?=\S))", r"\\\1", text)
    return re.sub(r"^(#+|[-+=]+)(?=\s)", r"\\\1", text)


def agreeing(count: int, one: str, many: str) -> str:
    """The form of a word that agrees with a count: `1 row holds`, `2 rows hold`."""
    return one if count == 1 else many


def did_you_mean(word: str, options: Iterable[str], listed: Iterable[str] | None = None) -> str:
    """`did you mean 'lavo'?`, or else `there is: ...` with all options, or only with those `listed`."""
    options = sorted({option[:LONGEST_NAME] for option in options})
    word = str(word)[:LONGEST_NAME]  # a comparison takes the product of the lengths
    if matches := same_name(word, options) or difflib.get_close_matches(word, options, n=CLOSEST, cutoff=0.6):
        return "did you mean " + " or ".join(f"'{option}'" for option in matches) + "?"
    options = options if listed is None else sorted(listed)
    return f"there is: {', '.join(options)}" if options else "there is none yet"


def same_name(word: str, options: Iterable[str]) -> list[str]:
    """The options that differ from `word` only in capitals, or else in a folder or node before it; a few at most.

    `LAVO` is `lavo`, `t11` is `lavo/t11`, `lr` is `train.optimizer.lr`.
    """
    options, lower = list(options), word.lower()
    same = [option for option in options if option.lower() == lower]
    return same or [option for option in options if re.split("[/.]", option.lower())[-1] == lower][:CLOSEST]


def with_known_arguments(prefix: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: arguments that the function does not take are a UsageError, which names it after `prefix`."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(function)
        kept = [entry.replace(annotation=inspect.Parameter.empty) for entry in signature.parameters.values()]
        parameters = inspect.Signature([entry for entry in kept if entry.name != "self"])

        @functools.wraps(function)
        def checked(*arguments: Any, **settings: Any) -> Any:
            try:
                signature.bind(*arguments, **settings)
            except TypeError as error:  # `load(model="lavo")` names no cell
                raise UsageError(f"{prefix}{function.__name__}: {one_line(error)}; it takes {parameters}") from error
            return function(*arguments, **settings)

        return checked

    return decorate
