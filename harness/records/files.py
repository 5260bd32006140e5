"""Files that a kill or a full disk cannot spoil: atomic writes, and seals that show damage.

A reader of an atomic file sees the old content or the new content, never a part and never nothing. The new content is
written to a temporary file in the same folder, flushed to the disk, then renamed.

A seal is a last line with the id of the owner and a sha256 over everything before the digest.
"""

import contextlib
import errno
import hashlib
import json
import os
import re
import secrets
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from tasks.regular_files import open_regular

SUFFIX = ".tmp"  # of temporary files: a reader of the folder must not take one for a record or a checkpoint
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EFBIG, errno.ESTALE}
SEAL = re.compile(rb"\nlonghaul ([0-9a-f]{16}) ([0-9a-f]{64})\n")
SEAL_BYTES = len("\nlonghaul  \n") + 16 + 64
DIGEST_BYTES = 64 + 1  # at the end of the line
BLOCK_BYTES = 2**20


class DamagedError(UsageError):
    """A sealed file with other content than was written, or of another owner. One line: file, what is wrong."""


def write_atomic(path: str | os.PathLike[str], text: str, *, durable: bool = True) -> None:
    """Write a text file in UTF-8. `durable`: the new content survives a power cut once this returns."""
    write_bytes_atomic(path, text.encode(), durable=durable)


def write_json_atomic(path: str | os.PathLike[str], content: Mapping[str, Any]) -> None:
    """Write JSON, one entry per line, for people and for git; one space per level keeps records small."""
    text = json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False)
    write_atomic(path, text + "\n")


def write_bytes_atomic(path: str | os.PathLike[str], data: bytes, *, durable: bool = True) -> None:
    replace_atomic(path, lambda temporary: temporary.write_bytes(data), durable=durable)


def replace_atomic(
    path: str | os.PathLike[str], write: Callable[[Path], object], *, durable: bool = True, keep: Path | None = None
) -> None:
    """Replace `path` by the file that `write` makes at a temporary path. Folders are created.

    On any failure the old file stays and the temporary file is removed. With `keep` the old file is renamed to that
    path; for a moment it exists only there.
    """
    path = Path(path)
    require_replaceable(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}{SUFFIX}")
    try:
        write(temporary)
        if durable:
            _flush(temporary)
        if keep is not None and path.exists():
            os.replace(path, keep)
        os.replace(temporary, path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno is not None and error.filename is None:
            error.filename = str(path)  # a full disk names no file
        raise
    if durable:
        _flush(path.parent)  # the rename itself


def require_replaceable(path: Path) -> None:
    """Raises IsADirectoryError for the path of a folder, which no file replaces."""
    if _is_folder(path):
        raise IsADirectoryError(errno.EISDIR, "a folder is in the way; move it away", str(path))


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def seal(path: Path, owner: str) -> str:
    """Append the seal to a file; returns the digest. `owner`: 16 hexadecimal digits."""
    with path.open("r+b") as file:
        sha = hashlib.file_digest(file, "sha256")
        line = f"\nlonghaul {owner} ".encode()
        sha.update(line)
        file.write(line + f"{sha.hexdigest()}\n".encode())
    return sha.hexdigest()


def check_seal(path: Path, owner: str) -> str:
    """The digest of a sealed file, compared with its content. Raises DamagedError."""
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - SEAL_BYTES))
            match = SEAL.fullmatch(file.read(SEAL_BYTES))
            if match is None:
                raise DamagedError(f"{path} is damaged")
            if match[1].decode() != owner:
                raise DamagedError(f"{path} belongs to another cell ({match[1].decode()}, not {owner})")
            file.seek(0)
            sha, remaining = hashlib.sha256(), size - DIGEST_BYTES
            while remaining and (block := file.read(min(BLOCK_BYTES, remaining))):
                sha.update(block)
                remaining -= len(block)
    except OSError as error:
        raise DamagedError(f"{path} cannot be read ({error.strerror})") from error
    if sha.hexdigest() != match[2].decode():
        raise DamagedError(f"{path} is damaged")
    return sha.hexdigest()


def require_writable(folder: Path, *files: Path) -> None:
    """Create a folder and, for a moment, a file in it. `files` in it will be written.

    Raises UsageError, before a run is begun in vain.
    """
    try:
        for file in files:
            require_replaceable(file)
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except IsADirectoryError as error:
        raise UsageError(f"{storage_message(error)}, and the same command goes on") from error
    except OSError as error:
        raise UsageError(f"{folder}: cannot be written ({error.strerror}); paths.<name>= moves a folder") from error


def is_storage_failure(error: BaseException) -> bool:
    """Whether the file system no longer takes writes: it is full, read-only or broken."""
    return isinstance(error, OSError) and error.errno in FULL


def storage_message(error: BaseException) -> str:
    """`path: the system's message`, on one line."""
    path = getattr(error, "filename", None)
    message = (getattr(error, "strerror", None) or str(error)).lower()
    return f"{path}: {message}" if path else message


def remove_temporaries(folder: Path, name: str = "*") -> None:
    """Delete the temporary files that killed processes left of files with this name, which nobody else writes now.

    A folder with such a name is not ours: it stays unless it is empty.
    """
    for path in folder.glob(f".{name}.*{SUFFIX}"):
        if _is_folder(path):
            with contextlib.suppress(OSError):
                path.rmdir()
        else:
            path.unlink(missing_ok=True)


def has_temporaries(folder: Path) -> bool:
    return any(not _is_folder(path) for path in folder.glob(f".*{SUFFIX}"))


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()
