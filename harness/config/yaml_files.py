"""The reader of yaml files, with bounds: a file from elsewhere must not stop a command or fill the memory.

A few lines of anchors can stand for billions of values, and parsers recurse once per level. A file is therefore counted
by the events of the C parser before anything is built from it.
"""

import functools
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import omegaconf
import yaml
from omegaconf import DictConfig, ListConfig, OmegaConf

from harness.errors import UsageError, one_line, shown
from tasks.regular_files import RefusedFileError, read_text

MOST_BYTES = 2**20
MOST_VALUES = 100_000  # values, with those that an alias repeats
MOST_LETTERS = 5_000_000  # of text, with that which an alias repeats
MOST_INTERPOLATIONS = 5_000  # `${` in a file, with those that an alias repeats
LONGEST_INTERPOLATED = 5_000  # letters of a text with interpolations: OmegaConf parses one in milliseconds per letter
DEEPEST = 40  # levels, also of brackets within an interpolation
# ten times as fast, if PyYAML has them
Dumper, Loader = getattr(yaml, "CSafeDumper", yaml.SafeDumper), getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read(path: str | Path, *, follow: bool = True) -> Any:
    """The content as plain values. `follow`: it may be a link out of its folder.

    Raises UsageError for a file beyond the bounds, YAMLError and OSError.
    """
    return _content(path, lambda stream: yaml.load(stream, Loader=Loader), follow)


def load_config(path: str | Path) -> DictConfig | ListConfig:
    """The content as OmegaConf reads it, with its interpolations. Raises as `read` does."""
    use_c_parser()
    return _content(path, OmegaConf.load)


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
    """Raises UsageError for a file beyond the bounds, YAMLError and OSError."""
    status = Path(path).stat()
    _checked(str(path), status.st_mtime_ns, status.st_size)


@functools.lru_cache(maxsize=1024)
def _checked(path: str, changed_ns: int, size: int) -> None:
    """Read once per version of the file."""
    check(_text(path, follow=True), path)


def _content(path: str | Path, load: Any, follow: bool = True) -> Any:
    text = _text(path, follow)
    check(text, path)
    try:
        return load(_stream(text, path))
    except ValueError as error:  # a number of thousands of digits
        raise UsageError(f"{path}: no yaml: {one_line(error)}") from error


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

    def plus(self, other: "Size", sign: int = 1) -> "Size":
        return Size(
            self.values + sign * other.values,
            self.letters + sign * other.letters,
            self.interpolations + sign * other.interpolations,
        )


def check(text: str, where: object) -> None:
    """Raises UsageError for more values, text or levels than the bounds, and for an anchor that contains itself."""
    anchors: dict[str, Size] = {}
    collections: list[tuple[str | None, Size]] = []  # (anchor, size before it) of each open mapping or list
    size = Size()
    for event in yaml.parse(_stream(text, where), Loader=Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            collections.append((event.anchor, size))
            size = size.plus(Size(1))
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = collections.pop()
            if anchor is not None:
                anchors[anchor] = size.plus(before, -1)
        elif isinstance(event, yaml.ScalarEvent):
            scalar = Size(1, len(event.value), event.value.count("${"))
            if scalar.interpolations:
                check_interpolation(event.value, where)
            size = size.plus(scalar)
            if event.anchor is not None:
                anchors[event.anchor] = scalar
        elif isinstance(event, yaml.AliasEvent):
            if any(event.anchor == anchor for anchor, _ in collections):
                raise UsageError(f"{where}: the anchor '{event.anchor}' contains itself")
            size = size.plus(anchors.get(event.anchor, Size(1)))
        if len(collections) > DEEPEST:
            raise UsageError(f"{where}: more than {DEEPEST} levels of yaml")
        if size.values > MOST_VALUES or size.letters > MOST_LETTERS or size.interpolations > MOST_INTERPOLATIONS:
            most = f"{MOST_VALUES:,} values, {MOST_LETTERS:,} letters or {MOST_INTERPOLATIONS:,} interpolations"
            raise UsageError(f"{where}: more than {most} of yaml")


def check_interpolation(text: str, where: object) -> None:
    """Raises UsageError for a text that OmegaConf would parse for seconds, or deeper than Python's stack."""
    depth = deepest = 0
    for letter in text if len(text) <= LONGEST_INTERPOLATED else "":
        depth += (letter in "{[") - (letter in "}]")
        deepest = max(deepest, depth)
    if len(text) > LONGEST_INTERPOLATED or deepest > DEEPEST:
        most = f"{LONGEST_INTERPOLATED:,} letters or {DEEPEST} levels of brackets"
        raise UsageError(f"{where}: more than {most} in a text with interpolations")
