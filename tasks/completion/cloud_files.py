"""Files of point clouds: PCD 0.7 (the Point Cloud Library's).

A PCD has a header of lines, `KEY value ...`, and then points as lines of numbers (`DATA ascii`) or as records
(`binary`). Of its fields x, y and z are read, of 4 or 8 bytes. No published set has `binary_compressed` files.

Files are treated as hostile: every defect becomes a DataError of one line that names the file, and the point that is
wrong (from 1). Memory is allocated only for what a file has, never for what a header claims.

    n points
"""

import re
from pathlib import Path

import numpy as np

from tasks import data_sources
from tasks.regular_files import open_regular

MOST_POINTS = 1 << 20
AXES = ("x", "y", "z")
LONGEST_HEADER = 1 << 12  # bytes
LAST_OF_HEADER = re.compile(rb"^DATA[ \t]+(\w+)[ \t\r]*\n", re.MULTILINE)


def read_cloud(file: Path) -> np.ndarray:
    """Points (n, 3) float32 of a .pcd file, n > 0. Raises DataError."""
    # numpy parses headers as Python, and raises what that does
    with data_sources.refusing(file, errors=data_sources.ANY), np.errstate(over="ignore", invalid="ignore"):
        points = read_pcd(file)
        narrow = np.array(points, np.float32, order="C")
        for row in np.flatnonzero(~np.isfinite(narrow).all(1))[:1]:
            coordinate = points[row][~np.isfinite(narrow[row])][0]
            raise ValueError(f"point {row + 1}: a coordinate is {coordinate:.4g}, no finite number")
        return narrow


def read_pcd(file: Path) -> np.ndarray:
    with open_regular(file, follow=True) as stream:
        data = data_sources.content(stream, str(file))
    if not (last := LAST_OF_HEADER.search(data, 0, LONGEST_HEADER)):
        raise ValueError("no line DATA in its header; it is no PCD file, or a part of one")
    lines = data[: last.start()].decode("ascii").splitlines()
    header = {words[0]: words[1:] for line in lines if (words := line.split())}
    if missing := [key for key in ("FIELDS", "SIZE", "TYPE", "POINTS") if not header.get(key)]:
        raise ValueError(f"no {missing[0]} in its header")
    names, types, sizes = (header[key] for key in ("FIELDS", "TYPE", "SIZE"))
    counts = [int(number) for number in header.get("COUNT", ["1"] * len(names))]
    if not len(names) == len(types) == len(sizes) == len(counts) or any(names.count(name) != 1 for name in AXES):
        raise ValueError(f"FIELDS {' '.join(names)[:60]} are not x, y, z and others, with a TYPE, SIZE and COUNT each")
    kinds = [f"<{kind.lower()}{size}" for kind, size in zip(types, sizes, strict=True)]
    # numbers for names: padding gives several fields the name _
    layout = np.dtype([(str(i), kind, (n,)) for i, (kind, n) in enumerate(zip(kinds, counts, strict=True))])
    places = [names.index(name) for name in AXES]
    if any(kinds[place] not in ("<f4", "<f8") or counts[place] != 1 for place in places):
        raise ValueError("x, y and z are not of TYPE F, SIZE 4 or 8 and COUNT 1")
    count, body = int(header["POINTS"][0]), data[last.end() :]
    if not 0 < count <= MOST_POINTS:
        raise ValueError(f"POINTS {count:,} is not from 1 to {MOST_POINTS:,}")
    if last[1] == b"ascii":
        rows = body.decode("ascii").strip().splitlines()
        if len(rows) != count:
            raise ValueError(f"{len(rows)} lines of points instead of POINTS {count}")
        numbers = np.loadtxt(rows, comments=None, ndmin=2)
        if numbers.shape != (count, sum(counts)):
            raise ValueError(f"{numbers.shape[1]} numbers in a line instead of {sum(counts)}")
        return numbers[:, [sum(counts[:place]) for place in places]]
    if last[1] != b"binary":
        kind = last[1].decode()
        raise ValueError(f"DATA {kind} is not read: pcl_convert_pcd_ascii_binary {file.name} new.pcd 1 converts it")
    if not 0 <= len(body) - count * layout.itemsize < layout.itemsize:
        raise ValueError(f"{len(body):,} bytes of points instead of {count * layout.itemsize:,} for POINTS {count}")
    records = np.frombuffer(body, layout, count)
    return np.concatenate([records[str(place)] for place in places], 1)


def ply(points: np.ndarray) -> bytes:
    """A PLY file of points (P, 3)."""
    axes = "".join(f"property float {axis}\n" for axis in "xyz")
    header = f"ply\nformat binary_little_endian 1.0\nelement vertex {len(points)}\n{axes}end_header\n"
    return header.encode() + points.astype("<f4").tobytes()
