"""Reading files that others wrote: only regular files are opened, nothing waits, and sizes are bounded.

A FIFO, device, socket or folder in the place of a file is refused, and so is a file that is larger than its kind ever
is. A link is followed within its folder; `follow` allows links to anywhere, for data on another disk. Nothing here
imports torch.
"""

import errno
import io
import itertools
import json
import os
import stat
from collections.abc import Iterable, Sequence
from typing import IO, Any

BLOCK_BYTES = 1 << 14  # at a time, of what is longer than its size says
END_BYTES = 1 << 16
DEEPEST = 64  # levels of lists and objects in JSON
LONGEST_INTEGER = 25  # characters; a larger number is a float
LARGEST_INTEGER = 10**LONGEST_INTEGER
KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFDIR: "a directory",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC


class RefusedFileError(OSError):
    """What has a file's path is not opened. `strerror` says why, on one line, and `filename` is the path."""

    def __init__(self, reason: str, path: str | os.PathLike[str]):
        super().__init__(errno.EINVAL, reason, os.fspath(path))

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        return type(self), (self.strerror, self.filename)  # it also comes from the processes that make data


def open_regular(path: str | os.PathLike[str], limit: int | None = None, *, follow: bool = False) -> IO[bytes]:
    """A stream of a regular file of at most `limit` bytes. Raises OSError, RefusedFileError for any other file."""
    descriptor, size = _opened(path, limit, follow)
    if not size:
        _require_empty(descriptor, path)
    return os.fdopen(descriptor, "rb")


def require_regular(path: str | os.PathLike[str], limit: int | None = None, *, follow: bool = False) -> None:
    """For a library that takes a path: raises what `open_regular` raises."""
    open_regular(path, limit, follow=follow).close()


def is_regular(path: str | os.PathLike[str]) -> bool:
    """Whether `open_regular` opens it; False as well for a name that no file can have."""
    try:
        require_regular(path)
        return True
    except (OSError, ValueError):
        return False


def read_bytes(path: str | os.PathLike[str], limit: int, *, follow: bool = False) -> bytes:
    """The content of a regular file. Raises as `open_regular`; also for a file of the kernel that has no end."""
    descriptor, size = _opened(path, limit, follow)
    blocks: list[bytes] = []
    left = limit
    try:
        while block := os.read(descriptor, max(size + 1, BLOCK_BYTES) if not blocks else BLOCK_BYTES):
            blocks.append(block)
            left -= len(block)
            if left < 0:
                raise _too_large(path, limit)
    except BlockingIOError as error:
        raise RefusedFileError("no file that ends", path) from error
    except OSError as error:
        raise RefusedFileError(error.strerror or "cannot be read", path) from error
    finally:
        os.close(descriptor)
    return b"".join(blocks)


def read_text(path: str | os.PathLike[str], limit: int, *, errors: str = "strict", follow: bool = False) -> str:
    """A text in UTF-8 with the line ends of Python. Raises OSError as `read_bytes`, or UnicodeDecodeError."""
    data = io.BytesIO(read_bytes(path, limit, follow=follow))
    return io.TextIOWrapper(data, encoding="utf-8", errors=errors).read()


def last_lines(path: str | os.PathLike[str], count: int) -> list[str]:
    """The last lines of a text such as a log, of which END_BYTES are read. Raises as `open_regular`."""
    with open_regular(path) as stream:
        stream.seek(max(0, os.fstat(stream.fileno()).st_size - END_BYTES))
        return stream.read(END_BYTES).decode(errors="replace").splitlines()[-count:]


def read_json(path: str | os.PathLike[str], limit: int, *, follow: bool = False) -> Any:
    """The content of a JSON file. Raises as `read_text`, or as `parse_json`."""
    return parse_json(read_text(path, limit, follow=follow))


def parse_json(text: str) -> Any:
    """The content of a JSON text.

    Raises JSONDecodeError for another text. Raises ValueError for NaN and Infinity, for an integer of more than
    LONGEST_INTEGER characters, for an object with a name twice, and for more than DEEPEST levels.
    """
    try:
        content = json.loads(text, parse_constant=_refuse_constant, parse_int=_integer, object_pairs_hook=_object)
    except RecursionError:
        raise ValueError(f"more than {DEEPEST} levels") from None
    largest_number(content)
    return content


def largest_number(content: Any) -> float:
    """The largest absolute value in JSON, 0 without numbers.

    Raises ValueError for more than DEEPEST levels, and for an integer of more than LONGEST_INTEGER digits.
    """
    level: Iterable[Any] = [content]
    largest = 0.0
    for _ in range(DEEPEST + 1):
        parts, numbers = [], []
        for part in level:
            kind = type(part)
            if kind is str:  # most values are
                continue
            if kind is int or kind is float:
                numbers.append(part)
            elif kind is dict:
                parts.append(part.values())
            elif kind is list:
                parts.append(part)
        largest = max(largest, max(numbers, default=0), -min(numbers, default=0))
        integers = (number for number in numbers if type(number) is int)
        if largest >= LARGEST_INTEGER and any(abs(number) >= LARGEST_INTEGER for number in integers):
            raise ValueError(f"an integer of more than {LONGEST_INTEGER} characters")
        if not parts:
            return largest
        level = itertools.chain.from_iterable(parts)
    raise ValueError(f"more than {DEEPEST} levels")


def _refuse_constant(constant: str) -> None:
    raise ValueError(f"{constant} is not a finite number")


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON. Raises ValueError for a name twice: who means which value?"""
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        raise ValueError(f"an object with two values of {max(names, key=names.count)[:40]!r}")
    return dict(pairs)


def _integer(digits: str) -> int:
    if len(digits) > LONGEST_INTEGER:
        raise ValueError(f"an integer of {len(digits):,} characters")
    return int(digits)


def _opened(path: str | os.PathLike[str], limit: int | None, follow: bool) -> tuple[int, int]:
    """(descriptor, size in bytes) of a regular file of at most `limit` bytes."""
    target = os.path.abspath(os.fspath(path))
    if "\0" in target:
        raise RefusedFileError("a name that no file has", path)
    status = os.lstat(target)
    if stat.S_ISLNK(status.st_mode):
        target = _target(target, path, follow=follow)
        status = os.lstat(target)
    _require(status, path, limit)  # opening a device may act on it
    descriptor = os.open(target, FLAGS)
    try:
        status = os.fstat(descriptor)
        _require(status, path, limit)
        return descriptor, status.st_size
    except BaseException:
        os.close(descriptor)
        raise


def _target(link: str, path: str | os.PathLike[str], *, follow: bool) -> str:
    """The file that a link leads to."""
    target, folder = os.path.realpath(link), os.path.realpath(os.path.dirname(link))
    if not follow and os.path.commonpath((target, folder)) != folder:
        raise RefusedFileError("a link that leads out of its folder", path)
    return target


def _require(status: os.stat_result, path: str | os.PathLike[str], limit: int | None) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = KINDS.get(stat.S_IFMT(status.st_mode), "a broken link")
        raise RefusedFileError(f"{kind}, not a regular file", path)
    if limit is not None and status.st_size > limit:
        raise _too_large(path, limit)


def _require_empty(descriptor: int, path: str | os.PathLike[str]) -> None:
    """The kernel's files, as in /proc, say that they are empty and regular. They hold secrets, wait, or never end."""
    try:
        if os.read(descriptor, 1) and not os.fstat(descriptor).st_size:  # else it was written to just now
            raise RefusedFileError("a file of the kernel, not a regular file", path)
        os.lseek(descriptor, 0, os.SEEK_SET)
    except OSError as error:
        os.close(descriptor)
        if isinstance(error, RefusedFileError):
            raise
        raise RefusedFileError(error.strerror or "cannot be read", path) from error


def _too_large(path: str | os.PathLike[str], limit: int) -> RefusedFileError:
    return RefusedFileError(f"more than {limit:,} bytes", path)
