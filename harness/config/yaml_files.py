"""The reader of yaml files, with bounds: a file from elsewhere must not stop a command or fill the memory.

A few lines of anchors can stand for billions of values, and parsers recurse once per level. A file is therefore counted
by the events of the C parser before anything is built from it. Tags (`!!timestamp`), keys that are no text and numbers
of many digits are refused there as well: no configuration needs them, and libraries fail on them in many ways.
"""

import contextlib
import functools
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import omegaconf
import yaml
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from harness.errors import UsageError, one_line, shown
from tasks.regular_files import RefusedFileError, read_text

MOST_BYTES = 2**20
MOST_VALUES = 100_000  # values, with those that an alias repeats
MOST_CONFIGURED = 3_000  # values of a file that OmegaConf reads: it takes a millisecond for each
MOST_LETTERS = 5_000_000  # of text, with that which an alias repeats
MOST_INTERPOLATIONS = 5_000  # `${` in a file, with those that an alias repeats
LONGEST_INTERPOLATED = 5_000  # letters of a text with interpolations: OmegaConf parses one in milliseconds per letter
MOST_INTERPOLATED = 200_000  # letters of all such texts
DEEPEST = 40  # levels, also of brackets within an interpolation
LONGEST_INTEGER = 25  # digits
INTEGER = re.compile(r"[-+]?(0[xX][\da-fA-F_]+|0b[01_]+|\d[\d_]*(:[\d_]+)*)")
LONGEST_REASON = 300  # letters of a library's message
TEXT_TAGS = ("tag:yaml.org,2002:str", "tag:yaml.org,2002:merge")  # of keys
# what PyYAML, OmegaConf and Hydra raise for content that they cannot read
UNREADABLE = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError, RecursionError)
RESOLVER = yaml.resolver.Resolver()
# what parsers take for a number and is none: `0x_`
NO_NUMBER = re.compile(r"[-+]?(?:0[bx]|\.)_+(?:[eE][-+]?\d+)?")
# ten times as fast, if PyYAML has them
Dumper, SafeLoader = getattr(yaml, "CSafeDumper", yaml.SafeDumper), getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Loader(SafeLoader):
    """Dates are text, as OmegaConf reads them; 2001-13-45 is none."""

    yaml_implicit_resolvers: ClassVar[dict[str, list[tuple[str, re.Pattern[str]]]]] = {
        letter: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for letter, resolvers in SafeLoader.yaml_implicit_resolvers.items()
    }


def read(path: str | Path, *, follow: bool = True, most_values: int = MOST_VALUES) -> Any:
    """The content as plain values. `follow`: it may be a link out of its folder.

    Raises UsageError for a file beyond the bounds, YAMLError and OSError.
    """
    return _content(path, lambda stream: yaml.load(stream, Loader=Loader), follow, most_values)


def load_config(path: str | Path) -> DictConfig | ListConfig:
    """The content as OmegaConf reads it, with its interpolations. Raises as `read` does."""
    use_c_parser()
    return _content(path, OmegaConf.load, most_values=MOST_CONFIGURED)


def read_config(path: str | Path) -> Any:
    """The content as plain values, by OmegaConf's rules (1e-3 is a number), with its interpolations as text."""
    use_c_parser()
    return _content(path, lambda stream: yaml.load(stream, Loader=omegaconf._utils.get_yaml_loader()))


@functools.cache
def use_c_parser() -> None:
    """Let OmegaConf read yaml with PyYAML's C parser, if it is there: a tenth of the time, the same values."""
    if hasattr(yaml, "CSafeLoader"):
        loader = _with_c_parser(omegaconf._utils.get_yaml_loader())
        omegaconf._utils.get_yaml_loader = lambda: loader


def _with_c_parser(loader: Any) -> Any:
    """A loader with the values, tags and errors of another one."""

    class ConfigLoader(yaml.cyaml.CParser, loader):
        def __init__(self, stream: Any):
            yaml.cyaml.CParser.__init__(self, stream)
            yaml.constructor.SafeConstructor.__init__(self)
            yaml.resolver.Resolver.__init__(self)

    return ConfigLoader


def text_of(values: Any) -> str:
    """Plain values as yaml, in which no text is an interpolation or a number to `read`."""
    return yaml.dump(values, Dumper=Dumper, sort_keys=False, allow_unicode=True)


def checked(path: str | Path) -> None:
    """Raises UsageError for a file that OmegaConf is not to read, YAMLError and OSError."""
    status = Path(path).stat()
    _checked(str(path), status.st_mtime_ns, status.st_size)


@functools.lru_cache(maxsize=1024)
def _checked(path: str, changed_ns: int, size: int) -> None:
    """Read once per version of the file."""
    check(_text(path, follow=True), path, MOST_CONFIGURED)


def _content(path: str | Path, load: Any, follow: bool = True, most_values: int = MOST_VALUES) -> Any:
    text = _text(path, follow)
    check(text, path, most_values)
    with content_of(path):
        return load(_stream(text, path))


@contextlib.contextmanager
def content_of(path: str | Path) -> Iterator[None]:
    """Raises UsageError, with the file, for the errors of libraries that read its content."""
    try:
        yield
    except yaml.YAMLError as error:  # such as a key that stands there twice, which the parser does not see
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        raise UsageError(f"{path}{line}: {fault_of(error)}") from error
    except OmegaConfBaseException as error:
        key = f"{error.full_key}: " if error.full_key else ""
        raise UsageError(f"{path}: {key}{reason(error)}") from error
    except UNREADABLE as error:
        raise UsageError(f"{path}: no configuration: {reason(error)}") from error
    except OSError as error:  # OmegaConf raises it for a yaml that is a number
        if error.filename is not None or error.errno is not None:
            raise
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


def _text(path: str | Path, follow: bool) -> str:
    try:
        return read_text(path, MOST_BYTES, follow=follow)
    except RefusedFileError as error:
        raise UsageError(f"{shown(path)}: {error.strerror}, so it is not read as yaml") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{shown(path)}: no yaml: {one_line(error)}") from error


def _stream(text: str, path: str | Path) -> io.StringIO:
    stream = io.StringIO(text)
    stream.name = str(path)  # for the messages of the parser
    return stream


@dataclass(frozen=True)
class Size:
    values: int = 0
    letters: int = 0
    interpolations: int = 0
    interpolated: int = 0  # letters of texts with interpolations

    def plus(self, other: "Size", sign: int = 1) -> "Size":
        return Size(
            self.values + sign * other.values,
            self.letters + sign * other.letters,
            self.interpolations + sign * other.interpolations,
            self.interpolated + sign * other.interpolated,
        )

    def check(self, where: object, most_values: int) -> None:
        """Raises UsageError for more than the bounds."""
        if self.values > most_values or self.letters > MOST_LETTERS:
            raise UsageError(f"{where}: more than {most_values:,} values or {MOST_LETTERS:,} letters of yaml")
        if self.interpolations > MOST_INTERPOLATIONS or self.interpolated > MOST_INTERPOLATED:
            most = f"{MOST_INTERPOLATIONS:,} interpolations, or {MOST_INTERPOLATED:,} letters of texts with them"
            raise UsageError(f"{where}: more than {most}")


@dataclass
class Collection:
    """An open mapping or list. `before`: the size of the file up to it."""

    anchor: str | None
    before: Size
    is_mapping: bool
    entries: int = 0  # keys and values

    @property
    def is_at_key(self) -> bool:
        return self.is_mapping and self.entries % 2 == 0


def check(text: str, where: object, most_values: int = MOST_VALUES) -> None:
    """Raises UsageError for more values, text or levels than the bounds, and for what no configuration needs.

    That is an anchor that contains itself, a tag, a key that is no text, or a number of many digits.
    """
    anchors: dict[str, Size] = {}
    collections: list[Collection] = []
    size = Size()
    for event in yaml.parse(_stream(text, where), Loader=Loader):
        if isinstance(event, yaml.CollectionEndEvent):
            ended = collections.pop()
            if ended.anchor is not None:
                anchors[ended.anchor] = size.plus(ended.before, -1)
        if not isinstance(event, yaml.NodeEvent):
            continue
        line = f"{where}: line {event.start_mark.line + 1}"
        if collections:
            if collections[-1].is_at_key:
                check_key(event, line)
            collections[-1].entries += 1
        if getattr(event, "tag", None) not in (None, "!"):
            raise UsageError(f"{line}: {shown(event.tag[:60])}: tags are not read")
        if isinstance(event, yaml.CollectionStartEvent):
            collections.append(Collection(event.anchor, size, isinstance(event, yaml.MappingStartEvent)))
            size = size.plus(Size(1))
        elif isinstance(event, yaml.ScalarEvent):
            if not event.style and NO_NUMBER.fullmatch(event.value):
                raise UsageError(f"{line}: {event.value[:40]} is no number")
            scalar = size_of(event, line)
            size = size.plus(scalar)
            if event.anchor is not None:
                anchors[event.anchor] = scalar
        else:
            if any(event.anchor == collection.anchor for collection in collections):
                raise UsageError(f"{where}: the anchor '{event.anchor}' contains itself")
            size = size.plus(anchors.get(event.anchor, Size(1)))
        if len(collections) > DEEPEST:
            raise UsageError(f"{where}: more than {DEEPEST} levels of yaml")
        size.check(where, most_values)


def size_of(scalar: yaml.ScalarEvent, line: str) -> Size:
    """Raises UsageError for an interpolation or number beyond the bounds, and for text that no file name can hold."""
    text = scalar.value
    if "\0" in text or (not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text)):
        raise UsageError(f"{line}: text with a zero byte or half a character")
    if len(text) > LONGEST_INTEGER and scalar.implicit[0] and INTEGER.fullmatch(text):
        raise UsageError(f"{line}: a number of {len(text):,} digits")
    interpolations = text.count("${")
    if interpolations:
        check_interpolation(text, line)
    return Size(1, len(text), interpolations, len(text) if interpolations else 0)


def check_key(event: yaml.NodeEvent, line: str) -> None:
    """Raises UsageError for a key that is a number, null, a list or the like."""
    if isinstance(event, yaml.ScalarEvent):
        if not event.implicit[0] or RESOLVER.resolve(yaml.ScalarNode, event.value, (True, False)) in TEXT_TAGS:
            return
        raise UsageError(f"{line}: the key {shown(event.value[:60]) or 'null'} is no text: put it in quotes")
    raise UsageError(f"{line}: a key that is no text")


def check_interpolation(text: str, where: object) -> None:
    """Raises UsageError for a text that OmegaConf would parse for seconds, or deeper than Python's stack."""
    if len(text) > LONGEST_INTERPOLATED or levels(text) > DEEPEST:
        most = f"{LONGEST_INTERPOLATED:,} letters or {DEEPEST} levels of brackets"
        raise UsageError(f"{where}: more than {most} in a text with interpolations")


def levels(text: str) -> int:
    """The levels of brackets in a text that a grammar of OmegaConf or Hydra reads."""
    depth = deepest = 0
    for letter in text:
        depth += (letter in "{[(") - (letter in "}])")
        deepest = max(deepest, depth)
    return deepest
