"""Digests of files and folders: what data follow from."""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

from tasks.checks import DataError
from tasks.regular_files import open_regular

MIB = 1 << 20
HASHED_WHOLE = 64 * MIB
SAMPLE = 1 << 12  # bytes at each end of a file


def identity(file: Path) -> str:
    """sha256 of a file, hexadecimal; for a large file that of its size, first and last MiB, which takes no time.

    Raises DataError.
    """
    try:
        with open_regular(file, follow=True) as stream:
            size = os.fstat(stream.fileno()).st_size
            if size <= HASHED_WHOLE:
                return hashlib.file_digest(stream, "sha256").hexdigest()
            digest = hashlib.sha256(str(size).encode() + stream.read(MIB))
            stream.seek(-MIB, os.SEEK_END)
            digest.update(stream.read())
            return digest.hexdigest()
    except OSError as error:
        raise DataError(f"{file}:1: {error.strerror}", "set task.path to its folder") from error


def identities(files: Mapping[str, Path]) -> dict[str, str]:
    """`identity` of each file. Raises DataError."""
    return {name: identity(file) for name, file in files.items()}


def path_identity(path: Path) -> str:
    """sha256, hexadecimal, of a file, or of the files in a folder and their places there. Raises DataError.

    Of large files, and of those in a large folder, size, beginning and end stand for the content, so as not to wait.
    """
    if not path.is_dir():
        return identity(path)
    try:
        files = sorted(file for file in path.rglob("*") if file.is_file() and not file.name.startswith("."))
        sizes = {str(file.relative_to(path)): file.stat().st_size for file in files}
        small = sum(sizes.values()) <= HASHED_WHOLE
        contents = [identity(file) if small else _ends(file) for file in files]
    except OSError as error:
        raise DataError(f"{error.filename}:1: {error.strerror}") from error
    return hashlib.sha256(json.dumps([sizes, contents], sort_keys=True).encode()).hexdigest()


def _ends(file: Path) -> str:
    with open_regular(file, follow=True) as stream:
        digest = hashlib.sha256(stream.read(SAMPLE))
        stream.seek(max(0, file.stat().st_size - SAMPLE))
        digest.update(stream.read(SAMPLE))
    return digest.hexdigest()
