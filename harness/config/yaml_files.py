"""The reader of yaml files, with bounds: a file from elsewhere must not stop a command or fill the memory.

A few lines of anchors can stand for billions of values, and parsers recurse once per level. A file is therefore counted
by the events of the C parser before anything is built from it. Tags (`!!timestamp`), keys that are not text and numbers
of many digits are refused there as well: no configuration needs them, and libraries fail on them in many ways.
"""

import contextlib
import functools
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import yaml
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf._utils import get_yaml_loader
from omegaconf.errors import OmegaConfBaseException

from harness.errors import UsageError, one_line, shown
from tasks.regular_files import RefusedFileError, read_text

MOST_BYTES = 2**20
MOST_VALUES = 100_000  # values, with those that an alias repeats; long texts count as several
MOST_CONFIGURED = 3_000  # values of a file that OmegaConf reads: it takes a millisecond for each
LONG_TEXT = 100  # characters that count as a value
DEEPEST = 40  # levels
LONGEST_INTEGER = 25  # digits
INTEGER = re.compile(r"[-+]?(0[xX][\da-fA-F_]+|0b[01_]+|\d[\d_]*(:[\d_]+)*)")
LONGEST_REASON = 300  # characters of a library's message
TEXT_TAGS = ("tag:yaml.org,2002:str", "tag:yaml.org,2002:merge")  # of keys
# what PyYAML, OmegaConf and Hydra raise for content that they cannot read
UNREADABLE = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError, RecursionError)
RESOLVER = yaml.resolver.Resolver()
# what parsers take for a number and is not one: `0x_`
NO_NUMBER = re.compile(r"[-+]?(?:0[bx]|\.)_+(?:[eE][-+]?\d+)?")
# ten times as fast, if PyYAML has them
Dumper, SafeLoader = getattr(yaml, "CSafeDumper", yaml.SafeDumper), getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Loader(SafeLoader):
    """Dates are text, as OmegaConf reads them: 2001-13-45 is not a date."""

    yaml_implicit_resolvers: ClassVar[dict[str, list[tuple[str, re.Pattern[str]]]]] = {
        letter: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for letter, resolvers in SafeLoader.yaml_implicit_resolvers.items()
    }


@functools.cache
def config_loader() -> type:
    """OmegaConf's loader with PyYAML's C parser, if it is installed: a tenth of the time, the same values."""
    loader = get_yaml_loader()
    if not hasattr(yaml, "CSafeLoader"):
        return loader

    class ConfigLoader(yaml.cyaml.CParser, loader):
        def __init__(self, stream: Any):
            yaml.cyaml.CParser.__init__(self, stream)
            yaml.constructor.SafeConstructor.__init__(self)
            yaml.resolver.Resolver.__init__(self)

    return ConfigLoader


def read(path: str | Path, *, follow: bool = True, most_values: int = MOST_VALUES) -> Any:
    """The content as plain values. `follow`: it may be a link out of its folder.

    Raises UsageError for a file beyond the bounds, YAMLError and OSError.
    """
    return parsed(text_in(path, follow), path, Loader, most_values)


def load_config(path: str | Path) -> DictConfig | ListConfig:
    """The content as a configuration, by OmegaConf's rules (1e-3 is a number). Raises as `read` does."""
    return as_written(parsed(text_in(path), path, config_loader(), MOST_CONFIGURED), path)


def as_written(content: Any, path: str | Path) -> DictConfig | ListConfig:
    """A configuration of the values in a yaml; an empty file has none."""
    if not isinstance(content, (dict, list, type(None))):
        raise UsageError(f"{path}: a mapping is expected, not {shown(str(content)[:60])}")
    with content_of(path):
        return OmegaConf.create({} if content is None else content)


def parsed(text: str, path: str | Path, loader: Any, most_values: int) -> Any:
    """The values in the text of a yaml. `path`: for messages."""
    check(text, path, most_values)
    with content_of(path):
        return yaml.load(_stream(text, path), Loader=loader)


def text_of(values: Any) -> str:
    """Plain values as yaml, in which no text is an interpolation or a number to `read`."""
    return yaml.dump(values, Dumper=Dumper, sort_keys=False, allow_unicode=True)


def text_in(path: str | Path, follow: bool = True) -> str:
    """The text of a regular file within the bounds. Raises UsageError, and OSError for a missing file."""
    try:
        return read_text(path, MOST_BYTES, follow=follow)
    except RefusedFileError as error:
        raise UsageError(f"{shown(path)}: {error.strerror}, so it is not read as yaml") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{shown(path)}: no yaml: {one_line(error)}") from error


@contextlib.contextmanager
def content_of(path: str | Path) -> Iterator[None]:
    """Raises UsageError, with the file, for the errors of libraries that read its content."""
    try:
        yield
    except yaml.YAMLError as error:  # such as a key that is listed twice, which the parser does not see
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        raise UsageError(f"{path}{line}: {fault_of(error)}") from error
    except OmegaConfBaseException as error:
        key = f"{error.full_key}: " if error.full_key else ""
        raise UsageError(f"{path}: {key}{reason(error)}") from error
    except UNREADABLE as error:
        raise UsageError(f"{path}: no configuration: {reason(error)}") from error


def fault_of(error: BaseException) -> str:
    """The fault that a yaml parser names."""
    fault = one_line(getattr(error, "problem", None) or error)
    return f"{fault}; a line is indented by spaces, not by a tab" if "cannot start any token" in fault else fault


def reason(error: BaseException) -> str:
    """The first line of an error that says something, also of its causes; else the error's name."""
    cause: BaseException | None = error
    while cause is not None:
        if lines := [line for line in str(cause).splitlines() if line.strip()]:
            return one_line(lines[0])[:LONGEST_REASON]
        cause = cause.__cause__
    return type(error).__name__


def _stream(text: str, path: str | Path) -> io.StringIO:
    stream = io.StringIO(text)
    stream.name = str(path)  # for the messages of the parser
    return stream


def check(text: str, where: object, most_values: int = MOST_VALUES) -> None:
    """Raises UsageError for more values or levels than the bounds, and for content that no configuration needs.

    That is an anchor that contains itself, a tag, a key that is not text, or a number of many digits.
    """
    values_of: dict[str, int] = {}  # anchor -> the values that an alias repeats
    nested: list[list[Any]] = []  # of each open collection: its anchor, the values before it, and whether a key is next
    values = 0
    for event in yaml.parse(_stream(text, where), Loader=Loader):
        if isinstance(event, yaml.CollectionEndEvent):
            anchor, before, _ = nested.pop()
            values_of |= {} if anchor is None else {anchor: values - before}
        if not isinstance(event, yaml.NodeEvent):
            continue
        line = f"{where}: line {event.start_mark.line + 1}"
        if getattr(event, "tag", None) not in (None, "!"):
            raise UsageError(f"{line}: {shown(event.tag[:60])}: tags are not read")
        if nested and (is_key := nested[-1][2]) is not None:
            if is_key:
                check_key(event, line)
            nested[-1][2] = not is_key
        if isinstance(event, yaml.AliasEvent):
            if any(event.anchor == collection[0] for collection in nested):
                raise UsageError(f"{where}: the anchor '{event.anchor}' contains itself")
            values += values_of.get(event.anchor, 1)
        elif isinstance(event, yaml.ScalarEvent):
            check_scalar(event, line)
            size = 1 + len(event.value) // LONG_TEXT
            values += size
            values_of |= {} if event.anchor is None else {event.anchor: size}
        else:
            nested.append([event.anchor, values, True if isinstance(event, yaml.MappingStartEvent) else None])
            values += 1
        if len(nested) > DEEPEST:
            raise UsageError(f"{where}: more than {DEEPEST} levels of yaml")
        if values > most_values:
            raise UsageError(f"{where}: more than {most_values:,} values of yaml")


def check_scalar(scalar: yaml.ScalarEvent, line: str) -> None:
    """Raises UsageError for a number beyond the bounds, and for text that no file name can hold."""
    text = scalar.value
    if not scalar.style and NO_NUMBER.fullmatch(text):
        raise UsageError(f"{line}: {text[:40]} is not a number")
    if "\0" in text or (not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text)):
        raise UsageError(f"{line}: text with a zero byte or half a character")
    if len(text) > LONGEST_INTEGER and scalar.implicit[0] and INTEGER.fullmatch(text):
        raise UsageError(f"{line}: a number of {len(text):,} digits")


def check_key(event: yaml.NodeEvent, line: str) -> None:
    """Raises UsageError for a key that is a number, null, a list or the like."""
    if isinstance(event, yaml.ScalarEvent):
        if not event.implicit[0] or RESOLVER.resolve(yaml.ScalarNode, event.value, (True, False)) in TEXT_TAGS:
            return
        raise UsageError(f"{line}: the key {shown(event.value[:60]) or 'null'} is no text: put it in quotes")
    raise UsageError(f"{line}: a key that is no text")
