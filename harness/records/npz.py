"""Arrays in an npz file: written so that equal arrays give equal bytes, and read strictly.

numpy reads what a file claims: a header of a hundred bytes may ask for any amount of memory, and a megabyte may unpack
to gigabytes. So the caller says which arrays there are and how long each is, and `read` takes nothing else: arrays
(n,) of uint8 or little-endian float32, with headers as numpy writes them. Their sizes are checked before memory is
taken.
"""

import io
import re
import zipfile
import zlib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from tasks.regular_files import open_regular

if TYPE_CHECKING:
    import numpy as np

MAX_BYTES = 2**26  # of a file, and of the content of its arrays
MAX_ARRAYS = 2**12
MAX_DIRECTORY_BYTES = 2**20  # of the names of arrays
OVERHEAD_BYTES = 500  # of an array, beyond its content and name
SLACK = 1.01  # deflate makes noise longer
MAGIC = b"\x93NUMPY\x01\x00"
MAX_HEADER_BYTES = 256
HEADER = re.compile(rb"\{'descr': '(\|u1|<f4)', 'fortran_order': False, 'shape': \(([1-9]\d{0,9}|0),\), \} *\n")
END = re.compile(rb"PK\x05\x06\0\0\0\0(..)\1(....)(....)\0\0", re.DOTALL)  # of a file, without a comment
END_BYTES = 22
UNREADABLE = (EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError)


class NpzError(ValueError):
    """The file is not the one that the caller describes, or it is damaged. One line without the file's name."""


def to_bytes(arrays: Mapping[str, Any]) -> bytes:
    """A compressed npz; equal arrays give equal bytes."""
    import numpy as np

    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


def read(path: Path, lengths: Mapping[str, int], names: Collection[str]) -> dict[str, "np.ndarray"]:
    """The arrays (n,) with these names. `lengths`: name -> n of every array in the file.

    Raises NpzError, or OSError for a file that cannot be opened.
    """
    content = 4 * sum(lengths.values())
    if content > MAX_BYTES or len(lengths) > MAX_ARRAYS:
        raise NpzError(f"{len(lengths):,} arrays of {content:,} bytes are more than are read")
    limit = content * SLACK + sum(OVERHEAD_BYTES + 8 * len(name) for name in lengths) + END_BYTES
    with open_regular(path, int(min(limit, MAX_BYTES))) as stream:
        try:
            _check_end(stream)
            with zipfile.ZipFile(stream) as archive:
                members = {info.filename: info for info in archive.infolist()}
                if len(members) != len(archive.infolist()) or set(members) != {f"{name}.npy" for name in lengths}:
                    raise NpzError("other arrays than its record names")
                return {name: _array(archive, members[f"{name}.npy"], lengths[name]) for name in names}
        except UNREADABLE as error:
            raise NpzError(" ".join(str(error).split()) or type(error).__name__) from error


def _check_end(stream: IO[bytes]) -> None:
    """zipfile reads the whole directory of an archive; here it is a small one."""
    size = stream.seek(0, io.SEEK_END)
    stream.seek(max(0, size - END_BYTES))
    end = END.fullmatch(stream.read())
    if end is None or int.from_bytes(end[2], "little") > MAX_DIRECTORY_BYTES:
        raise NpzError("no end of an archive as numpy writes it")
    stream.seek(0)


def _array(archive: zipfile.ZipFile, info: zipfile.ZipInfo, length: int) -> "np.ndarray":
    import numpy as np

    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise NpzError("another compression than numpy's")
    with archive.open(info) as member:
        start = member.read(len(MAGIC) + 2)
        header_bytes = int.from_bytes(start[len(MAGIC) :], "little")
        if start[: len(MAGIC)] != MAGIC or header_bytes > MAX_HEADER_BYTES:
            raise NpzError("no header as numpy writes it")
        header = HEADER.fullmatch(member.read(header_bytes))
        if header is None:
            raise NpzError("arrays of another type or shape than scores have")
        if int(header[2]) != length:
            raise NpzError(f"{int(header[2]):,} scores, not {length:,}")
        kind = np.dtype(header[1].decode())
        values = member.read(length * kind.itemsize)
        if len(values) != length * kind.itemsize or member.read(1):
            raise NpzError("an array with more or fewer bytes than its header says")
    return np.frombuffer(bytearray(values), kind)
