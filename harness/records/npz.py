"""Arrays in an npz file: written so that equal arrays give equal bytes, and read under a bound.

numpy allocates what a header claims: a hundred bytes may ask for any amount of memory, and a megabyte may unpack to
gigabytes. So the caller says which arrays there are and how long each is, and `read` accepts only these. Sizes are
checked before memory is taken.

An array (n,) of uint8 is kept as it is; float32 as uint8 (4, n), all lowest bytes first: the high ones are alike, so
that deflate packs them, which saves a third.
"""

import functools
import io
import math
import zipfile
import zlib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tasks.regular_files import read_bytes

if TYPE_CHECKING:
    import numpy as np

MAX_BYTES = 2**26  # of a file, and of the content of its arrays
MAX_ARRAYS = 2**12
OVERHEAD_BYTES = 500  # of an array, beyond its content and name
SLACK = 1.01  # deflate makes noise longer
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
UNREADABLE = (EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, ValueError)


class NpzError(ValueError):
    """The file is not the one that the caller describes, or it is damaged. One line without the file's name."""


def scores_to_bytes(scores: Mapping[str, "np.ndarray"]) -> bytes:
    """A compressed npz of arrays (n,) of uint8 or float32, which `read` gives back; equal arrays give equal bytes."""
    import numpy as np

    def planes(values: "np.ndarray") -> "np.ndarray":
        if values.dtype == np.uint8:
            return values
        return np.ascontiguousarray(values.astype("<f4").view(np.uint8).reshape(-1, 4).T)

    buffer = io.BytesIO()
    np.savez_compressed(buffer, **{name: planes(values) for name, values in scores.items()})
    return buffer.getvalue()


def read(path: Path, lengths: Mapping[str, int], names: Collection[str]) -> dict[str, "np.ndarray"]:
    """The scores (n,) with these names. `lengths`: name -> n of every array in the file.

    Raises NpzError, or OSError for a file that cannot be opened.
    """
    content = 4 * sum(lengths.values())
    if content > MAX_BYTES or len(lengths) > MAX_ARRAYS:
        raise NpzError(f"{len(lengths):,} arrays of {content:,} bytes are more than are read")
    limit = content * SLACK + sum(OVERHEAD_BYTES + 8 * len(name) for name in lengths) + OVERHEAD_BYTES
    data = read_bytes(path, int(min(limit, MAX_BYTES)))  # a bound on the archive's directory, too
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if sorted(archive.namelist()) != sorted(f"{name}.npy" for name in lengths):
                raise NpzError("other arrays than its record names")
            return {name: _array(archive, archive.getinfo(f"{name}.npy"), lengths[name]) for name in names}
    except UNREADABLE as error:
        raise NpzError(" ".join(str(error).split()) or type(error).__name__) from error


def _array(archive: zipfile.ZipFile, info: zipfile.ZipInfo, length: int) -> "np.ndarray":
    import numpy as np

    for shape in ((length,), (4, length)):
        header = _header(shape)
        if info.compress_type in METHODS and info.file_size == len(header) + math.prod(shape):
            with archive.open(info) as member:
                content = member.read(info.file_size)  # of the bytes that are there, at most so many
            if content.startswith(header):
                values = np.frombuffer(bytearray(content[len(header) :]), np.uint8)
                return values if len(shape) == 1 else np.ascontiguousarray(values.reshape(shape).T).view("<f4")[:, 0]
    raise NpzError(f"not an array of {length:,} scores")


@functools.cache
def _header(shape: tuple[int, ...]) -> bytes:
    """What numpy writes before the content of an array of uint8."""
    import numpy as np

    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": "|u1", "fortran_order": False, "shape": shape})
    return buffer.getvalue()
