"""Files of point clouds: PCD 0.7 (the Point Cloud Library's), and NumPy's .npy and .npz.

A PCD has a header of lines, `KEY value ...`, and then points as lines of numbers (`DATA ascii`), as records (`binary`)
or field after field, compressed by LZF (`binary_compressed`). Of its fields x, y and z are read, of 4 or 8 bytes.

Files are treated as hostile: every defect becomes a DataError of one line that names the file and the line or record
(both from 1). Memory is allocated only for bytes that were read, never for what a header claims, and no pickle is
opened.

    n points
"""

import io
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tasks import data_sources
from tasks.checks import DataError
from tasks.regular_files import open_regular

MOST_POINTS = 1 << 20
MOST_COLUMNS = 1 << 10
HEADER_LINES = 64
LONGEST_LINE = 1 << 12
LONGEST_NUMBER = 40  # characters, with a space
SIZES = {"F": (4, 8), "I": (1, 2, 4, 8), "U": (1, 2, 4, 8)}
MEMBER_LIMIT = data_sources.LARGEST_MEMBER


class FormatError(Exception):
    """A defect in a file, with its line or record."""

    def __init__(self, problem: str, line: int = 1, record: int | None = None):
        super().__init__(f"record {record}: {problem}" if record else problem)
        self.line = line


@dataclass(frozen=True)
class Header:
    """The header of a PCD: the fields of a point and the number of points. Offsets and sizes in bytes."""

    names: list[str]
    sizes: list[int]
    counts: list[int]
    points: int
    data: str
    lines: int  # of the header

    @property
    def stride(self) -> int:
        return sum(size * count for size, count in zip(self.sizes, self.counts, strict=True))

    def before(self, name: str) -> int:
        """Bytes of a record before a field."""
        at = self.names.index(name)
        return sum(size * count for size, count in zip(self.sizes[:at], self.counts[:at], strict=True))

    def column(self, name: str) -> int:
        return sum(self.counts[: self.names.index(name)])

    def number(self, name: str) -> str:
        return f"<f{self.sizes[self.names.index(name)]}"


def read_cloud(file: Path) -> np.ndarray:
    """Points (n, 3) float32 of a .pcd, .npy or .npz file, n > 0. Raises DataError."""
    reader = READERS.get(file.suffix)
    if reader is None:
        raise DataError(f"{file}:1: no cloud of points is read from a {file.suffix or 'nameless'} file")
    try:
        with open_regular(file, follow=True) as stream:
            data = data_sources.content(stream, str(file))
    except OSError as error:
        raise DataError(f"{file}:1: {error.strerror}", "put the file there") from error
    try:
        points, first_line = reader(data)
        return _checked(points, first_line)
    except FormatError as error:
        raise DataError(f"{file}:{error.line}: {error}", "put the whole file there") from error


def lzf(data: bytes, size: int) -> bytes:
    """Decompresses LZF data to `size` bytes. Raises ValueError if that is not their size, without exceeding it."""
    out, at = bytearray(), 0
    try:
        while at < len(data):
            control = data[at]
            at += 1
            if control < 32:
                run = data[at : at + control + 1]
                at += control + 1
                short = len(run) <= control
            else:
                length = control >> 5
                if length == 7:
                    length += data[at]
                    at += 1
                back = ((control & 31) << 8) + data[at] + 1
                at += 1
                period = out[len(out) - back : len(out) - back + length + 2] if back <= len(out) else b""
                short = not period
                run = (period * (length + 2))[: length + 2] if short or len(period) < length + 2 else period
            if short or len(out) + len(run) > size:
                break
            out += run
    except IndexError:
        pass
    if len(out) != size or at != len(data):
        raise ValueError(f"no LZF data of {size:,} bytes")
    return bytes(out)


def read_pcd(data: bytes) -> tuple[np.ndarray, int | None]:
    """Points (n, 3), and the line of the first, if they are lines. Raises FormatError."""
    header, body = read_header(data)
    return BODIES[header.data](header, body)


def read_header(data: bytes) -> tuple[Header, bytes]:
    """The header, and what comes after. Raises FormatError."""
    entries: dict[str, tuple[int, list[str]]] = {}
    for number, line, rest in _header_lines(data):
        key, *values = line.split() or ["#"]
        if key.startswith("#"):
            continue
        if key in entries:
            raise FormatError(f"a second {key}", number)
        entries[key] = number, values
        if key == "DATA":
            return _header(entries, number), data[rest:]
    raise FormatError(f"no DATA in the first {HEADER_LINES} lines; it is no PCD file, or a part of one")


def _header_lines(data: bytes) -> Iterator[tuple[int, str, int]]:
    """(number from 1, line, where the next one begins)."""
    start = 0
    for number in range(1, HEADER_LINES + 1):
        end = data.find(b"\n", start, start + LONGEST_LINE)
        if end < 0:
            return
        try:
            yield number, data[start:end].decode("utf-8"), end + 1
        except UnicodeDecodeError as error:
            raise FormatError("the header is no UTF-8 text", number) from error
        start = end + 1


def _header(entries: dict[str, tuple[int, list[str]]], last: int) -> Header:
    def line(key: str) -> int:
        return entries[key][0] if key in entries else last

    def values(key: str, default: list[str] | None = None) -> list[str]:
        given = entries[key][1] if key in entries else default
        if not given:
            raise FormatError(f"no {key} in the header", line(key))
        return given

    def numbers(key: str, most: int, default: list[str] | None = None) -> list[int]:
        tokens = values(key, default)
        for word in tokens:
            if not (word.isascii() and word.isdigit() and len(word) < 10 and int(word) <= most):
                raise FormatError(f"{key} {word[:20]!r} is no number from 0 to {most:,}", line(key))
        return [int(word) for word in tokens]

    names, types = values("FIELDS"), values("TYPE")
    sizes, counts = numbers("SIZE", 8), numbers("COUNT", MOST_COLUMNS, ["1"] * len(names))
    for key, given in (("SIZE", sizes), ("TYPE", types), ("COUNT", counts)):
        if len(given) != len(names):
            raise FormatError(f"{len(given)} of {key} for {len(names)} FIELDS", line(key))
    if sum(counts) > MOST_COLUMNS:
        raise FormatError(f"{sum(counts):,} columns are more than {MOST_COLUMNS:,}", line("COUNT"))
    for name, size, kind, count in zip(names, sizes, types, counts, strict=True):
        if size not in SIZES.get(kind, ()):
            raise FormatError(f"field {name[:20]!r} of TYPE {kind[:20]!r} and SIZE {size}", line("TYPE"))
        if name in ("x", "y", "z") and (kind != "F" or count != 1):
            raise FormatError(f"field {name} is {count} of TYPE {kind}, not one of TYPE F", line("TYPE"))
    for name in ("x", "y", "z"):
        if names.count(name) != 1:
            raise FormatError(f"{names.count(name)} fields {name}, not one", line("FIELDS"))
    width, height = (numbers(key, MOST_POINTS, ["1"])[0] for key in ("WIDTH", "HEIGHT"))
    points = numbers("POINTS", MOST_POINTS, [str(width * height)])[0]
    if "WIDTH" in entries and points != width * height:
        raise FormatError(f"POINTS {points} are not WIDTH {width} x HEIGHT {height}", line("POINTS"))
    if not points:
        raise FormatError("zero points", line("POINTS"))
    kind = values("DATA")[0]
    if kind not in BODIES:
        raise FormatError(f"DATA {kind[:20]!r} is none of {', '.join(BODIES)}", line("DATA"))
    return Header(names, sizes, counts, points, kind, last)


def _ascii(header: Header, body: bytes) -> tuple[np.ndarray, int]:
    first, columns = header.lines + 1, sum(header.counts)
    body = body.rstrip()
    lines = body.count(b"\n") + 1 if body else 0
    if lines != header.points:
        raise FormatError(f"{lines} lines of points instead of POINTS {header.points}", header.lines + lines)
    if len(body) > header.points * (columns * LONGEST_NUMBER + 2):
        raise FormatError(f"more than {LONGEST_NUMBER} characters a number", first)
    rows = [line.split() for line in body.split(b"\n")]
    for number, row in enumerate(rows):
        if len(row) != columns:
            raise FormatError(f"{len(row)} numbers instead of {columns}", first + number)
    wanted = [header.column(name) for name in "xyz"]
    tokens = [[row[column] for column in wanted] for row in rows]
    for number, row in enumerate(tokens):
        if max(map(len, row)) > LONGEST_NUMBER:
            raise FormatError(f"a number of more than {LONGEST_NUMBER} characters", first + number)
    try:
        return np.array(tokens, dtype=f"S{LONGEST_NUMBER}").astype(np.float64), first
    except ValueError as error:
        for number, row in enumerate(tokens):
            for word in row:
                if not _is_number(word):
                    text = word[:20].decode(errors="replace")
                    raise FormatError(f"{text!r} is no number", first + number) from error
        raise FormatError(data_sources.one_line(error)[:80], first) from error


def _is_number(word: bytes) -> bool:
    try:
        np.array([word]).astype(np.float64)
    except ValueError:
        return False
    return True


def _binary(header: Header, body: bytes) -> tuple[np.ndarray, None]:
    needed = header.points * header.stride
    if not needed <= len(body) < needed + header.stride:
        complete = len(body) // header.stride
        problem = f"{len(body):,} bytes of points instead of {needed:,} for POINTS {header.points}"
        raise FormatError(problem, header.lines, min(complete, header.points) + 1)
    layout = {
        "names": ["x", "y", "z"],
        "formats": [header.number(name) for name in "xyz"],
        "offsets": [header.before(name) for name in "xyz"],
        "itemsize": header.stride,
    }
    records = np.frombuffer(body, np.dtype(layout), header.points)
    return np.stack([records[name] for name in "xyz"], -1), None


def _compressed(header: Header, body: bytes) -> tuple[np.ndarray, None]:
    packed, size = (int(value) for value in np.frombuffer(body[:8].ljust(8, b"\0"), "<u4"))
    needed = header.points * header.stride
    if size != needed:
        raise FormatError(f"{size:,} bytes of points instead of {needed:,} for POINTS {header.points}", header.lines)
    if packed > len(body) - 8:
        raise FormatError(f"{max(0, len(body) - 8):,} compressed bytes instead of {packed:,}", header.lines)
    try:
        unpacked = lzf(body[8 : 8 + packed], size)
    except ValueError as error:
        raise FormatError(str(error), header.lines) from error
    columns = []
    for name in "xyz":
        columns.append(np.frombuffer(unpacked, header.number(name), header.points, header.before(name) * header.points))
    return np.stack(columns, -1), None


BODIES = {"ascii": _ascii, "binary": _binary, "binary_compressed": _compressed}


def read_npy(data: bytes) -> tuple[np.ndarray, None]:
    """Points (n, 3), the first columns of an array (n, 3 or more) of floats. Raises FormatError."""
    stream = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(stream)
        read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
        shape, transposed, dtype = read(stream)
    except Exception as error:  # numpy parses the header as Python, and raises what that does
        raise FormatError(f"no .npy file ({data_sources.one_line(error)[:80]})") from error
    if dtype.kind != "f":
        raise FormatError(f"an array of {dtype.name[:20]}, not of floats")
    if len(shape) != 2 or not 3 <= shape[1] <= MOST_COLUMNS or shape[0] > MOST_POINTS:
        raise FormatError(f"an array of shape {str(shape)[:60]}, not (n, 3) with n up to {MOST_POINTS:,}")
    body, count = data[stream.tell() :], shape[0] * shape[1]
    if len(body) != count * dtype.itemsize:
        row = min(len(body) // (shape[1] * dtype.itemsize), shape[0]) + 1
        raise FormatError(f"{len(body):,} bytes instead of {count * dtype.itemsize:,}", record=row)
    array = np.frombuffer(body, dtype).reshape(shape, order="F" if transposed else "C")
    return array[:, :3], None


def read_npz(data: bytes) -> tuple[np.ndarray, None]:
    """As `read_npy`, for an archive of a single array. Raises FormatError."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            if len(members) != 1:
                raise FormatError(f"{len(members)} arrays, not one")
            with archive.open(members[0]) as stream:
                inner = stream.read(MEMBER_LIMIT + 1)
    except FormatError:
        raise
    except Exception as error:  # zipfile has no end of them
        raise FormatError(f"no .npz file ({data_sources.one_line(error)[:80]})") from error
    if len(inner) > MEMBER_LIMIT:
        raise FormatError(f"more than {MEMBER_LIMIT >> 20} MiB")
    return read_npy(inner)


READERS = {".pcd": read_pcd, ".npy": read_npy, ".npz": read_npz}


def _checked(points: np.ndarray, first_line: int | None) -> np.ndarray:
    if not len(points):
        raise FormatError("zero points")
    with np.errstate(over="ignore", invalid="ignore"):
        narrow = np.ascontiguousarray(points, np.float32)
    for row in np.flatnonzero(~np.isfinite(narrow).all(1))[:1].tolist():
        problem = f"a coordinate is {points[row][~np.isfinite(narrow[row])][0]:.4g}, no finite number"
        if first_line is None:
            raise FormatError(problem, record=row + 1)
        raise FormatError(problem, first_line + row)
    return narrow
