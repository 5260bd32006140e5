"""Files of point clouds: PCD 0.7 (the Point Cloud Library's).

A PCD has a header of lines, `KEY value ...`, and then points as lines of numbers (`DATA ascii`) or as records
(`binary`). Those of the published set have the fields x, y and z alone, and are not `binary_compressed`.

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
    size = header["SIZE"][0]
    form = [header["FIELDS"], header["TYPE"], header["SIZE"], header.get("COUNT", ["1"] * 3)]
    if form != [["x", "y", "z"], ["F"] * 3, [size] * 3, ["1"] * 3] or size not in ("4", "8"):
        raise ValueError(f"FIELDS {' '.join(form[0])[:60]} are not x y z, of TYPE F, SIZE 4 or 8 and COUNT 1")
    count, body = int(header["POINTS"][0]), data[last.end() :]
    if not 0 < count <= MOST_POINTS:
        raise ValueError(f"POINTS {count:,} is not from 1 to {MOST_POINTS:,}")
    if last[1] == b"ascii":
        rows = body.decode("ascii").strip().splitlines()
        if len(rows) != count:
            raise ValueError(f"{len(rows)} lines of points instead of POINTS {count}")
        numbers = np.loadtxt(rows, comments=None, ndmin=2)
        if numbers.shape != (count, 3):
            raise ValueError(f"{numbers.shape[1]} numbers in a line instead of 3")
        return numbers
    if last[1] != b"binary":
        kind = last[1].decode()
        raise ValueError(f"DATA {kind} is not read: pcl_convert_pcd_ascii_binary {file.name} new.pcd 1 converts it")
    point = 3 * int(size)  # bytes
    if not 0 <= len(body) - count * point < point:
        raise ValueError(f"{len(body):,} bytes of points instead of {count * point:,} for POINTS {count}")
    return np.frombuffer(body, f"<f{size}", 3 * count).reshape(count, 3)


def ply(points: np.ndarray) -> bytes:
    """A PLY file of points (P, 3)."""
    axes = "".join(f"property float {axis}\n" for axis in "xyz")
    header = f"ply\nformat binary_little_endian 1.0\nelement vertex {len(points)}\n{axes}end_header\n"
    return header.encode() + points.astype("<f4").tobytes()
