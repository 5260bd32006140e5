"""Atomic file writes: a reader sees the old file or the new one, never a part, and never neither.

The new content is written to a temporary file in the same folder, flushed to the disk, then renamed.
"""

import contextlib
import errno
import os
import secrets
import tempfile
from collections.abc import Callable
from pathlib import Path

from harness.errors import UsageError

SUFFIX = ".tmp"  # of temporary files: a reader of the folder must not take one for a record or a checkpoint


def write_atomic(path: str | os.PathLike[str], text: str, *, durable: bool = True) -> None:
    """Write a text file in UTF-8. `durable`: the new content survives a power cut once this returns."""
    write_bytes_atomic(path, text.encode(), durable=durable)


def write_bytes_atomic(path: str | os.PathLike[str], data: bytes, *, durable: bool = True) -> None:
    replace_atomic(path, lambda temporary: temporary.write_bytes(data), durable=durable)


def replace_atomic(
    path: str | os.PathLike[str], write: Callable[[Path], object], *, durable: bool = True, keep: Path | None = None
) -> None:
    """Put the file that `write` makes at a temporary path in the place of `path`. Folders are created.

    If anything fails, the old file stays and the temporary one is removed. With `keep` the old file goes there; for a
    moment it is only there.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}{SUFFIX}")
    try:
        write(temporary)
        if durable:
            _flush(temporary)
        if keep is not None and path.exists():
            os.replace(path, keep)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if durable:
        _flush(path.parent)  # the rename itself


def require_writable(folder: Path) -> None:
    """Make a folder and a file in it, which is removed. Raises UsageError, so that a run is not begun in vain."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise UsageError(f"{folder}: cannot be written ({error.strerror}); paths.<name>= moves a folder") from error


FULL = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EFBIG, errno.ESTALE}


def is_storage_failure(error: BaseException) -> bool:
    """Whether a place cannot be written any more: full, read-only, or broken."""
    return isinstance(error, OSError) and error.errno in FULL


def storage_message(error: BaseException) -> str:
    """`place: what the system says`, in one line."""
    place = getattr(error, "filename", None)
    what = getattr(error, "strerror", None) or str(error)
    return f"{place}: {what.lower()}" if place else what.lower()


def remove_temporaries(folder: Path, name: str = "*") -> None:
    """Delete what a killed process left half written of files with this name, which no other process writes.

    A folder of such a name was not written here: it stays if anything is in it.
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


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
