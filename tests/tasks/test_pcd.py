"""Clouds in files: every encoding, and whatever can be broken in one line each."""

import resource

import numpy as np
import pytest

from tasks.checks import DataError
from tasks.completion.cloud_files import MOST_POINTS, read_cloud
from tests.helpers.tasks import mutations, refused

POINTS = np.random.Generator(np.random.PCG64(3)).normal(0, 0.3, (40, 3)).astype(np.float32)


def header(data, *, fields="x y z", size="4 4 4", kind="F F F", count="1 1 1", points=40, more=()):
    lines = ["# .PCD v0.7 - Point Cloud Data file format", "VERSION 0.7", f"FIELDS {fields}", f"SIZE {size}"]
    lines += [f"TYPE {kind}", f"COUNT {count}", f"WIDTH {points}", "HEIGHT 1", "VIEWPOINT 0 0 0 1 0 0 0"]
    return "\n".join([*lines, *more, f"POINTS {points}", f"DATA {data}", ""]).encode()


def text(points=POINTS):
    return "".join(" ".join(f"{value:.9g}" for value in row) + "\n" for row in points).encode()


def put(folder, data, name="cloud.pcd"):
    file = folder / name
    file.write_bytes(data)
    return file


MIXED = {"fields": "rgb z x label y", "size": "4 8 8 2 8", "kind": "U F F U F", "count": "1 1 1 3 1"}


def mixed_records():
    layout = [("rgb", "<u4"), ("z", "<f8"), ("x", "<f8"), ("label", "<u2", 3), ("y", "<f8")]
    records = np.zeros(len(POINTS), layout)
    records["rgb"], records["label"] = 7, 9
    for name, column in zip("xyz", POINTS.T, strict=True):
        records[name] = column
    return records


WHOLE = {
    "ascii.pcd": header("ascii") + text(),
    "crlf.pcd": header("ascii").replace(b"\n", b"\r\n") + text().replace(b"\n", b"\r\n"),
    "binary.pcd": header("binary") + POINTS.tobytes(),
    "mixed.pcd": header("binary", **MIXED) + mixed_records().tobytes(),
    "padded.pcd": header("binary", fields="_ x y z _", size="1 4 4 4 2", kind="U F F F U", count="4 1 1 1 3")
    + b"".join(b"pad " + row.tobytes() + bytes(6) for row in POINTS),
    "mixed_ascii.pcd": header("ascii", **MIXED)
    + "".join(f"7 {z:.9g} {x:.9g} 9 9 9 {y:.9g}\n" for x, y, z in POINTS).encode(),
}


@pytest.mark.parametrize("name", WHOLE)
def test_every_encoding_gives_the_same_points(name, tmp_path):
    cloud = read_cloud(put(tmp_path, WHOLE[name], name))
    assert cloud.dtype == np.float32 and cloud.flags.c_contiguous
    assert (cloud == POINTS).all()


ASCII, BINARY = WHOLE["ascii.pcd"], WHOLE["binary.pcd"]
BROKEN = {
    "no points": (header("ascii", points=0), "POINTS 0 is not from 1"),
    "empty file": (b"", "no line DATA"),
    "cut header": (ASCII[:90], "no line DATA"),
    "cut lines": (header("ascii") + text(POINTS[:30]), "30 lines of points instead of POINTS 40"),
    "short lines": (header("ascii") + b"1 2\n" * 40, "2 numbers in a line instead of 3"),
    "no number": (header("ascii") + text(POINTS[:39]) + b"1 2 tree\n", "'tree'"),
    "ascii nan": (header("ascii") + text(POINTS[:4]) + b"1 nan 2\n" + text(POINTS[5:]), "point 5: a coordinate is nan"),
    "truncated": (BINARY[:-13], "467 bytes of points instead of 480"),
    "too long": (BINARY + b"\0" * 12, "instead of 480"),
    "binary nan": (
        header("binary") + np.concatenate([POINTS[:6], [[0, np.nan, 0]], POINTS[7:]]).astype("<f4").tobytes(),
        "point 7: a coordinate is nan",
    ),
    "compressed": (header("binary_compressed"), "pcl_convert_pcd_ascii_binary cloud.pcd new.pcd 1 converts it"),
    "absurd": (header("binary", points=10**9 - 1), "is not from 1 to"),
    "absurd digits": (header("binary", points="9" * 5000), "no line DATA"),
    "absurd count": (header("binary", count="1 1 1000000"), "not of TYPE F"),
    "no z": (header("ascii", fields="x y w"), "FIELDS x y w"),
    "odd size": (header("ascii", size="4 4 3"), "f3"),
    "no fields": (ASCII.replace(b"FIELDS x y z\n", b""), "no FIELDS"),
    "other data": (header("zip"), "DATA zip is not read"),
    "no text": (b"# \xff\xfe\n" + ASCII, "can't decode"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_pcd_is_refused_in_one_line(case, tmp_path):
    data, message = BROKEN[case]
    file = put(tmp_path, data)
    with refused(f"{file}: ", message):
        read_cloud(file)


def test_what_a_header_claims_is_not_allocated(tmp_path):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    count = " ".join(["1", "1", "1", "1000"])
    claims = {"fields": "x y z a", "size": "8 8 8 8", "kind": "F F F F", "count": count, "points": MOST_POINTS}
    for data in (header("ascii", **claims), header("binary", **claims) + bytes(8)):
        with pytest.raises(DataError):
            read_cloud(put(tmp_path, data))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10  # KiB


@pytest.mark.parametrize("name", ["ascii.pcd", "binary.pcd", "mixed.pcd"])
def test_nothing_else_comes_out_of_a_broken_file(name, tmp_path):
    refused = 0
    for broken in mutations(WHOLE[name], 30):
        try:
            cloud = read_cloud(put(tmp_path, broken, name))
            assert cloud.shape[1] == 3 and np.isfinite(cloud).all()
        except DataError as error:
            assert "\n" not in str(error)
            refused += 1
    assert refused > 4
