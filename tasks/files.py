"""Files that appear only when complete, and locks that processes wait for. Nothing here imports torch."""

import contextlib
import errno
import fcntl
import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from tasks.regular_files import RefusedFileError

NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)  # of a file system without locks


@contextlib.contextmanager
def written_whole(file: Path) -> Iterator[IO[bytes]]:
    """A stream whose content becomes the file once it is on disk; an error or a kill leaves the file as it was."""
    unfinished = file.with_name(f".{file.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        with open(unfinished, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(unfinished, file)
    finally:
        unfinished.unlink(missing_ok=True)


def open_to_write(file: Path) -> IO[bytes]:
    """A regular file to lock or to write at its own path, created where it is missing and not truncated.

    Raises OSError: for a link, and at once for a FIFO or a device.
    """
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise RefusedFileError("not a regular file", file)
    return os.fdopen(descriptor, "wb")


@contextlib.contextmanager
def exclusive(file: Path) -> Iterator[None]:
    """Hold a lock file, which is removed at the end; waits for the process that holds it, with which its lock ends."""
    while True:
        with open_to_write(file) as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX)
            except OSError as error:
                if error.errno not in NO_LOCKS:
                    raise
            if _is_at(stream.fileno(), file):  # else its holder has just removed it
                try:
                    yield
                finally:
                    file.unlink(missing_ok=True)
                return


def _is_at(descriptor: int, file: Path) -> bool:
    """Whether an open file still has this path."""
    try:
        return os.path.samestat(os.fstat(descriptor), file.stat())
    except FileNotFoundError:
        return False
