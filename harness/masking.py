"""Secrets of a configuration, which no record, log, message or saved override shows: `***` stands in their place.

A secret is the value of a key whose name says so (`api_key`, `hf_token`, `password`), the value of an environment
variable that the configuration reads (`oc.env`) or whose name says so, and the user in an address (`//user:pw@host`).
Short values, folders and numbers of variables with ordinary names are none: they cannot be told from other text.

A secret below a key of a cell's identity is masked before the id is computed, so two cells that differ only there are
one, and the record follows from its configuration.
"""

import functools
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

MASK = "***"
SHORTEST = 8  # characters of a secret below a name that does not say so
SHORTEST_NAMED = 4
PASSWORD, TOKEN = "password", "token"  # kinds of names; the number below a token is a count
NAMES = {
    PASSWORD: re.compile(
        r"(^|[_.\-])(pass(word|wd|phrase|code)|pwd|secrets?|credentials?|(secret|password|token)[_.\-]?(value|text|string)"
        r"|(api|access|secret|private|auth|account)[_.\-]?keys?)$",
        re.IGNORECASE,
    ),
    TOKEN: re.compile(r"(^|[_.\-])token$", re.IGNORECASE),
}
# tokens that a text consists of, or that are counted: `pad_token`, `per_token`
TOKEN_OF_TEXT = re.compile(
    r"(^|[_.\-])(pad|bos|eos|sos|cls|sep|unk|mask|blank|start|end|first|last|stop|next|prefix|special|extra|separator"
    r"|global|memory|summary|class|word|byte|text|input|output|source|target|to|a|an|the|each|every|per|of|one|by)"
    r"[_.\-]?token$",
    re.IGNORECASE,
)
INNER_CAPITAL = re.compile(r"(?<=[a-z\d])(?=[A-Z])")
NUMBER = re.compile(r"[-+\d.eE_]+")
ADDRESS_USER = re.compile(r"//[^/\s@]+@")  # http://user:password@host
# not what `errors.did_you_mean` says of a name: `no task 'secret': did you mean ...`
ASSIGNMENT = re.compile(
    r"(?<![\w.\-/])([\w.\-]+)(['\"]?\s*[=:]\s*['\"]?)(?!(?:did you mean|there is)\b)([^\s,;'\"\]})]+)"
)
_noted: set[str] = set()  # the secrets that this process knows


@functools.lru_cache(maxsize=4096)
def kind_of(name: str) -> str | None:
    """PASSWORD or TOKEN for a key, variable or file that is named like a secret; None for `tokens` and `pad_token`."""
    words = INNER_CAPITAL.sub("_", name)
    if TOKEN_OF_TEXT.search(words):
        return None
    return next((kind for kind, pattern in NAMES.items() if pattern.search(words)), None)


def is_secret(key: Any, value: Any) -> bool:
    """Whether this entry of a configuration is a secret."""
    if not isinstance(key, str) or (kind := kind_of(key)) is None:
        return False
    if isinstance(value, str):
        return value not in ("", "null", "true", "false") and not (kind == TOKEN and NUMBER.fullmatch(value))
    return isinstance(value, (Mapping, list)) or (kind == PASSWORD and value is not None and value is not False)


def note(value: str, name: str = "") -> None:
    """Mask this value from now on. `name`: of its key or variable."""
    named = kind_of(name) is not None
    ordinary = value[:1] in ("/", "~", ".") or NUMBER.fullmatch(value)
    if len(value) >= (SHORTEST_NAMED if named else SHORTEST) and (named or not ordinary):
        _noted.add(value)


def noted() -> list[str]:
    """The longest first."""
    return sorted(_noted, key=lambda value: (-len(value), value))


def environment(name: str, *default: Any) -> Any:
    """The resolver `oc.env`, which notes what it reads. Raises KeyError for a variable that is not set."""
    if name in os.environ:
        note(os.environ[name], name)
        return os.environ[name]
    if not default:
        raise KeyError(f"Environment variable '{name}' not found")
    return default[0]


def note_environment() -> None:
    """Note the variables of this process that are named like secrets (HF_TOKEN), which messages of libraries quote."""
    for name, value in os.environ.items():
        if kind_of(name) and len(value) >= SHORTEST and value[0] not in "/~":
            note(value, name)


def note_overrides(overrides: Iterable[str]) -> None:
    """Note typed secrets."""
    for override in overrides:
        key, _, value = override.partition("=")
        name, value = key.rpartition(".")[2], value.strip("'\"")
        if is_secret(name, value) and not value.startswith("${"):
            note(value, name)


def masked(text: str) -> str:
    """A text without secrets: noted values, users in addresses, and `key=value` with the name of a secret."""
    for value in noted():
        text = occurrences(value).sub(MASK, text)
    if "@" in text:
        text = ADDRESS_USER.sub(f"//{MASK}@", text)
    return ASSIGNMENT.sub(_masked_assignment, text) if "=" in text or ":" in text else text


@functools.lru_cache(maxsize=256)
def occurrences(value: str) -> re.Pattern[str]:
    """A short value is masked only as a whole word."""
    pattern = re.escape(value)
    return re.compile(pattern if len(value) >= SHORTEST else rf"(?<!\w){pattern}(?!\w)")


def _masked_assignment(match: re.Match[str]) -> str:
    key, sign, value = match.groups()
    name = key.rpartition(".")[2]
    if not is_secret(name, value) or value.startswith("${"):
        return match[0]
    if kind_of(name) == TOKEN and sign.strip() == ":":  # of a message: `unexpected token: x`
        return match[0]
    return f"{key}{sign}{MASK}"


def masked_texts(node: Any) -> Any:
    """Nested mappings and lists without secrets in their texts."""
    if isinstance(node, str):
        return masked(node)
    if isinstance(node, Mapping):
        return {key: masked_texts(value) for key, value in node.items()}
    return [masked_texts(value) for value in node] if isinstance(node, (list, tuple)) else node


def masked_override(override: str) -> str:
    """`logger.x.api_key=***`. A value that reads the environment stays: it shows the variable's name alone."""
    key, sign, value = override.partition("=")
    if sign and not value.startswith("${") and is_secret(key.rpartition(".")[2], value):
        return f"{key}={MASK}"
    return masked(override)


def with_masked_keys(node: Any) -> Any:
    """Nested mappings and lists without the values of keys that are named like secrets, and users in addresses."""
    if isinstance(node, list):
        return [with_masked_keys(value) for value in node]
    if not isinstance(node, dict):
        return ADDRESS_USER.sub(f"//{MASK}@", node) if isinstance(node, str) and "@" in node else node
    return {key: MASK if is_secret(key, value) else with_masked_keys(value) for key, value in node.items()}


def first_noted(node: Any, path: str = "") -> str | None:
    """The key of the first text in nested mappings and lists that contains a noted value; None if no text does."""
    if not _noted:
        return None
    if isinstance(node, str):
        return path if any(occurrences(value).search(node) for value in _noted) else None
    items = node.items() if isinstance(node, Mapping) else enumerate(node) if isinstance(node, list) else ()
    paths = (first_noted(value, f"{path}.{key}" if path else str(key)) for key, value in items)
    return next(filter(None, paths), None)
