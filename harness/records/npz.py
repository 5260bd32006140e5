"""Arrays in an npz file: written so that equal arrays give equal bytes, and read strictly.

numpy reads what a file claims: a header of a hundred bytes may ask for any amount of memory, and a megabyte may unpack
to gigabytes. So the caller says which arrays there are and how long each is, and `read` takes nothing else: arrays
(n,) of uint8 or little-endian float32, with headers as numpy writes them, or one array of their packed bytes. Their
sizes are checked before memory is taken.
"""

import contextlib
import io
import re
import struct
import zipfile
import zlib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from harness.records.packed import most_bytes, pack, unpack
from tasks.regular_files import read_bytes

if TYPE_CHECKING:
    import numpy as np

MAX_BYTES = 2**26  # of a file, and of the content of its arrays
MAX_ARRAYS = 2**12
MAX_DIRECTORY_BYTES = 2**20  # of the names of arrays
OVERHEAD_BYTES = 500  # of an array, beyond its content and name
SLACK = 1.01  # deflate makes noise longer
PACKED = "packed"  # the name of the only array where all are packed
MAGIC = b"\x93NUMPY\x01\x00"
MAX_HEADER_BYTES = 256
HEADER = re.compile(rb"\{'descr': '(\|u1|<f4)', 'fortran_order': False, 'shape': \(([1-9]\d{0,9}|0),\), \} *\n")
END = re.compile(rb"PK\x05\x06\0\0\0\0(..)\1(....)(....)\0\0", re.DOTALL)  # of a file, without a comment
END_BYTES = 22
CENTRAL, LOCAL = struct.Struct("<4s6H3L5H2L"), struct.Struct("<4s5H3L2H")  # headers of a file in an archive
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
UNREADABLE = (EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, ValueError)


class NpzError(ValueError):
    """The file is not the one that the caller describes, or it is damaged. One line without the file's name."""


def to_bytes(arrays: Mapping[str, Any]) -> bytes:
    """A compressed npz; equal arrays give equal bytes."""
    import numpy as np

    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


def to_packed_bytes(arrays: Mapping[str, Any]) -> bytes:
    """A compressed npz with a single array, the packed ones (`harness.records.packed`)."""
    import numpy as np

    return to_bytes({PACKED: np.frombuffer(pack(arrays), np.uint8)})


def read(path: Path, lengths: Mapping[str, int], names: Collection[str]) -> dict[str, "np.ndarray"]:
    """The arrays (n,) with these names. `lengths`: name -> n of every array in the file, each apart or all packed.

    Raises NpzError, or OSError for a file that cannot be opened.
    """
    content = 4 * sum(lengths.values())
    if content > MAX_BYTES or len(lengths) > MAX_ARRAYS:
        raise NpzError(f"{len(lengths):,} arrays of {content:,} bytes are more than are read")
    limit = content * SLACK + sum(OVERHEAD_BYTES + 8 * len(name) for name in lengths) + END_BYTES
    data = read_bytes(path, int(min(limit, MAX_BYTES)))
    end = END.fullmatch(data[-END_BYTES:])
    if end is None or int.from_bytes(end[2], "little") > MAX_DIRECTORY_BYTES:
        raise NpzError("no end of an archive as numpy writes it")
    with contextlib.suppress(_OtherForm, struct.error, zlib.error):
        members = _members(data, *(int.from_bytes(part, "little") for part in end.groups()))
        if members.keys() == {f"{name}.npy".encode() for name in lengths}:
            return {name: _numbers(members[f"{name}.npy".encode()], lengths[name]) for name in names}
        if members.keys() == {f"{PACKED}.npy".encode()}:
            packed = _numbers(members[f"{PACKED}.npy".encode()], None, most_bytes(lengths))
            return _unpacked(packed, lengths, names)
    # zipfile takes four times as long. It says what is wrong, and reads what other versions of numpy may write
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            infos = {info.filename: info for info in archive.infolist()}
            if list(infos) == [f"{PACKED}.npy"] and len(archive.infolist()) == 1:
                packed = _array(archive, infos[f"{PACKED}.npy"], None, most_bytes(lengths))
                return _unpacked(packed, lengths, names)
            if len(infos) != len(archive.infolist()) or set(infos) != {f"{name}.npy" for name in lengths}:
                raise NpzError("other arrays than its record names")
            return {name: _array(archive, infos[f"{name}.npy"], lengths[name]) for name in names}
    except UNREADABLE as error:
        raise NpzError(" ".join(str(error).split()) or type(error).__name__) from error


def _unpacked(packed: "np.ndarray", lengths: Mapping[str, int], names: Collection[str]) -> dict[str, "np.ndarray"]:
    try:
        return unpack(packed.tobytes(), lengths, names)
    except ValueError as error:
        raise NpzError(str(error)) from error


class _OtherForm(ValueError):
    """An archive that is not exactly as numpy writes it here."""


class _Member(NamedTuple):
    """A file in an archive. `content`: as it stands there, `size` and `crc` those of the unpacked content."""

    content: bytes
    is_packed: bool
    size: int
    crc: int


def _members(data: bytes, count: int, directory_bytes: int, directory: int) -> dict[bytes, _Member]:
    """{name: file} of an archive whose files lie one behind the other. Raises _OtherForm or struct.error."""
    _require(directory + directory_bytes + END_BYTES == len(data))
    members, position, behind = {}, directory, 0
    for _ in range(count):
        signature, _, _, flags, method, _, _, crc, packed, size, name_bytes, *more, _, _, start = CENTRAL.unpack_from(
            data, position
        )
        name = data[position + CENTRAL.size : position + CENTRAL.size + name_bytes]
        _require(signature == b"PK\x01\x02" and not flags and not any(more) and method in METHODS and start == behind)
        position += CENTRAL.size + name_bytes
        signature, _, local_flags, local_method, *_, local_name_bytes, extra_bytes = LOCAL.unpack_from(data, start)
        begin = start + LOCAL.size + local_name_bytes
        _require(signature == b"PK\x03\x04" and (local_flags, local_method) == (flags, method))
        _require(data[start + LOCAL.size : begin] == name and name not in members)
        behind = begin + extra_bytes + packed
        _require(behind <= directory)
        members[name] = _Member(data[begin + extra_bytes : behind], method == zipfile.ZIP_DEFLATED, size, crc)
    _require(position == directory + directory_bytes and behind == directory)
    return members


def _numbers(member: _Member, length: int | None, most: int = 0) -> "np.ndarray":
    """The array (length,) of a file; without a length one of at most so many bytes. Raises _OtherForm or zlib.error."""
    import numpy as np

    _require(member.size <= len(MAGIC) + 2 + MAX_HEADER_BYTES + (most if length is None else 4 * length))
    content = member.content
    if member.is_packed:
        unpack = zlib.decompressobj(-zlib.MAX_WBITS)
        content = unpack.decompress(content, member.size + 1)
        _require(unpack.eof and not unpack.unused_data)
    _require(len(content) == member.size and zlib.crc32(content) == member.crc and content.startswith(MAGIC))
    begin = len(MAGIC) + 2
    behind = begin + int.from_bytes(content[len(MAGIC) : begin], "little")
    header = HEADER.fullmatch(content, begin, behind)
    _require(header is not None and behind - begin <= MAX_HEADER_BYTES and length in (None, int(header[2])))
    kind = np.dtype(header[1].decode())
    _require(len(content) == behind + int(header[2]) * kind.itemsize)
    return np.frombuffer(bytearray(content[behind:]), kind)


def _require(holds: bool) -> None:
    if not holds:
        raise _OtherForm


def _array(archive: zipfile.ZipFile, info: zipfile.ZipInfo, length: int | None, most: int = 0) -> "np.ndarray":
    import numpy as np

    if info.compress_type not in METHODS:
        raise NpzError("another compression than numpy's")
    with archive.open(info) as member:
        start = member.read(len(MAGIC) + 2)
        header_bytes = int.from_bytes(start[len(MAGIC) :], "little")
        if start[: len(MAGIC)] != MAGIC or header_bytes > MAX_HEADER_BYTES:
            raise NpzError("no header as numpy writes it")
        header = HEADER.fullmatch(member.read(header_bytes))
        if header is None:
            raise NpzError("arrays of another type or shape than scores have")
        kind = np.dtype(header[1].decode())
        if length is None and int(header[2]) * kind.itemsize <= most:
            length = int(header[2])
        if int(header[2]) != length:
            raise NpzError(f"{int(header[2]):,} scores, not {most if length is None else length:,}")
        values = member.read(length * kind.itemsize)
        if len(values) != length * kind.itemsize or member.read(1):
            raise NpzError("an array with more or fewer bytes than its header says")
    return np.frombuffer(bytearray(values), kind)
