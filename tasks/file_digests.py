"""Digests of files and folders: what data follow from.

Everything is digested whole. A digest that took long is remembered in the user's cache folder, by the path, size, inode
and times of change of the file, or of all files of a folder, which no edit leaves as they are.
"""

import contextlib
import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tasks.data_sources import is_clutter, refusing
from tasks.examples import digest
from tasks.regular_files import open_regular, read_text

MIB = 1 << 20
CURE = "set task.path to its folder"
WORTH_REMEMBERING = 64 * MIB  # bytes; fewer are digested in a moment
MANY = 1000  # files, likewise
MOST_REMEMBERED = 4 * MIB  # bytes of the file of remembered digests
NO_DATA = (".log", ".ipynb", ".md", ".py", ".pyc", ".lock")  # ends of names of files that no reader reads
CACHE = re.compile(r"[0-9a-f]{12}")  # the name of a folder of prepared examples, which has a manifest

_known: dict[str, str] = {}


def identity(file: Path) -> str:
    """sha256 of a file, hexadecimal. Raises DataError."""
    return _remembered([(file.name, file)], lambda: _sha256(file))


def identities(files: Mapping[str, Path]) -> dict[str, str]:
    """`identity` of each file. Raises DataError."""
    return {name: identity(file) for name, file in files.items()}


def path_identity(path: Path, patterns: Iterable[str] = ("**/*",)) -> str:
    """sha256, hexadecimal, of a file, or of the files in a folder that match a pattern, and their places there.

    What desktops and notebooks leave there and prepared examples are no data. Raises DataError.
    """
    return folder_identity(path, files_below(path, patterns)) if path.is_dir() else identity(path)


def folder_identity(folder: Path, files: Iterable[Path]) -> str:
    """sha256, hexadecimal, of these files and of their places in a folder. Raises DataError."""
    named = sorted((str(file.relative_to(folder)), file) for file in files)
    return _remembered(named, lambda: digest([{name: _status(file).st_size for name, file in named},
                                               [_sha256(file) for _, file in named]]))  # fmt: skip


def files_below(folder: Path, patterns: Iterable[str]) -> list[Path]:
    """Raises DataError for a folder that cannot be read."""
    with refusing(f"{folder}:1", ""):
        found = {file for pattern in patterns for file in folder.glob(pattern) if file.is_file()}
    caches = {file.parent for file in found if file.name == "manifest.json" and CACHE.fullmatch(file.parent.name)}
    return sorted(
        file
        for file in found
        if not (is_clutter(file.relative_to(folder)) or file.suffix in NO_DATA or file.parent in caches)
    )


def _sha256(file: Path) -> str:
    with refusing(f"{file}:1", CURE), open_regular(file, follow=True) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _status(file: Path) -> os.stat_result:
    with refusing(f"{file}:1", CURE):
        return file.stat()


def _remembered(files: list[tuple[str, Path]], make: Any) -> str:
    """The digest of these files by their stamps, or else by `make`."""
    statuses = [(str(file.absolute()), _status(file)) for _, file in files]
    stamps = [(path, s.st_size, s.st_mtime_ns, s.st_ctime_ns, s.st_ino, s.st_dev) for path, s in statuses]
    stamp = digest([[name for name, _ in files], stamps])
    is_much = sum(s.st_size for _, s in statuses) > WORTH_REMEMBERING or len(files) > MANY
    if is_much and stamp not in _known:
        _recall()
    if stamp not in _known:
        _known[stamp] = make()
        if is_much:
            _note(stamp)
    return _known[stamp]


def _file() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "longhaul" / "digests.txt"


def _recall() -> None:
    with contextlib.suppress(OSError, ValueError, RuntimeError):
        _known.update(line.split() for line in read_text(_file(), MOST_REMEMBERED).splitlines())


def _note(stamp: str) -> None:
    """A line more; a file that is full begins anew. Nothing is lost where none can be written."""
    with contextlib.suppress(OSError, RuntimeError):
        file = _file()
        file.parent.mkdir(parents=True, exist_ok=True)
        full = file.exists() and file.stat().st_size > MOST_REMEMBERED // 2
        with open(file, "w" if full else "a", encoding="ascii") as stream:
            stream.write(f"{stamp} {_known[stamp]}\n")
