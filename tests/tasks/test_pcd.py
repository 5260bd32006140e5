"""Clouds in files: every encoding, and whatever can be broken in one line each."""

import io
import resource
import struct
import zipfile

import numpy as np
import pytest

from tasks.checks import DataError
from tasks.completion.cloud_files import MOST_POINTS, lzf, read_cloud
from tests.helpers.tasks import mutations, one_line

POINTS = np.random.Generator(np.random.PCG64(3)).normal(0, 0.3, (40, 3)).astype(np.float32)


def header(data, *, fields="x y z", size="4 4 4", kind="F F F", count="1 1 1", points=40, more=()):
    lines = ["# .PCD v0.7 - Point Cloud Data file format", "VERSION 0.7", f"FIELDS {fields}", f"SIZE {size}"]
    lines += [f"TYPE {kind}", f"COUNT {count}", f"WIDTH {points}", "HEIGHT 1", "VIEWPOINT 0 0 0 1 0 0 0"]
    return "\n".join([*lines, *more, f"POINTS {points}", f"DATA {data}", ""]).encode()


def text(points=POINTS):
    return "".join(" ".join(f"{value:.9g}" for value in row) + "\n" for row in points).encode()


def pack(data):
    """LZF: runs of one byte as references, the rest as it is."""
    out, at = bytearray(), 0
    while at < len(data):
        run = 1
        while at + run < len(data) and run < 260 and data[at + run] == data[at]:
            run += 1
        if run >= 4:
            length = run - 1 - 2
            out += bytes([0, data[at]])
            out += bytes([length << 5, 0]) if length < 7 else bytes([7 << 5, length - 7, 0])
            at += run
        else:
            chunk = data[at : at + run]
            out += bytes([len(chunk) - 1]) + chunk
            at += run
    return bytes(out)


def compressed(columns):
    raw = b"".join(np.ascontiguousarray(column).tobytes() for column in columns)
    packed = pack(raw)
    return struct.pack("<II", len(packed), len(raw)) + packed


def put(folder, data, name="cloud.pcd"):
    file = folder / name
    file.write_bytes(data)
    return file


def npy(array):
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=True)
    return stream.getvalue()


def npz(**arrays):
    stream = io.BytesIO()
    np.savez_compressed(stream, **arrays)
    return stream.getvalue()


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
    "compressed.pcd": header("binary_compressed") + compressed(POINTS.T),
    "mixed.pcd": header("binary", **MIXED) + mixed_records().tobytes(),
    "packed.pcd": header("binary_compressed", **MIXED)
    + compressed([mixed_records()[name] for name in ("rgb", "z", "x", "label", "y")]),
    "mixed_ascii.pcd": header("ascii", **MIXED)
    + "".join(f"7 {z:.9g} {x:.9g} 9 9 9 {y:.9g}\n" for x, y, z in POINTS).encode(),
    "cloud.npy": npy(POINTS),
    "wide.npy": npy(POINTS.astype(np.float64)),
    "columns.npy": npy(np.asfortranarray(np.c_[POINTS, POINTS])),
    "cloud.npz": npz(points=POINTS),
}


@pytest.mark.parametrize("name", WHOLE)
def test_every_encoding_gives_the_same_points(name, tmp_path):
    cloud = read_cloud(put(tmp_path, WHOLE[name], name))
    assert cloud.dtype == np.float32 and cloud.flags.c_contiguous
    assert (cloud == POINTS).all()


def test_lzf_repeats_what_it_has_not_finished_writing():
    assert lzf(bytes([1]) + b"ab" + bytes([(5 << 5) | 0, 1]), 9) == b"ab" + b"abababa"
    assert lzf(bytes([2]) + b"abc" + bytes([7 << 5, 10, 2]), 22) == (b"abc" * 8)[:22]


@pytest.mark.parametrize(
    ("data", "size"),
    [
        (bytes([5]) + b"ab", 6),  # a run that is not there
        (bytes([0, 97, 1 << 5, 3]), 4),  # before the beginning
        (bytes([0, 97, 7 << 5, 255, 0]), 100),  # longer than it should be
        (bytes([0, 97, 7 << 5]), 9),  # cut
        (bytes([0, 97]), 2),  # shorter
    ],
)
def test_lzf_is_refused_where_it_is_none(data, size):
    with pytest.raises(ValueError, match="no LZF"):
        lzf(data, size)


def line_of(data, key):
    return 1 + [line.split()[:1] for line in data.split(b"\n")].index([key.encode()])


ASCII, BINARY = WHOLE["ascii.pcd"], WHOLE["binary.pcd"]
BODY = header("ascii").count(b"\n")
BROKEN = {
    "no points": (header("ascii", points=0), line_of(ASCII, "POINTS"), "zero points"),
    "empty file": (b"", 1, "no DATA"),
    "cut header": (ASCII[:90], 1, "no DATA"),
    "cut lines": (header("ascii") + text(POINTS[:30]), BODY + 30, "30 lines of points instead of POINTS 40"),
    "more lines": (ASCII + text(POINTS[:2]), BODY + 42, "42 lines of points"),
    "short line": (ASCII.rstrip().rsplit(b" ", 1)[0], BODY + 40, "2 numbers instead of 3"),
    "no number": (header("ascii") + text(POINTS[:39]) + b"1 2 tree\n", BODY + 40, "'tree' is no number"),
    "long number": (header("ascii", points=40) + text(POINTS[:39]) + b"1 2 0." + b"0" * 50, BODY + 40, "characters"),
    "ascii nan": (header("ascii") + text(POINTS[:4]) + b"1 nan 2\n" + text(POINTS[5:]), BODY + 5, "nan, no finite"),
    "ascii too large": (header("ascii") + text(POINTS[:39]) + b"1 1e60 2\n", BODY + 40, "no finite number"),
    "truncated": (BINARY[:-13], BODY, "record 39: 467 bytes of points instead of 480"),
    "too long": (BINARY + b"\0" * 12, BODY, "instead of 480"),
    "binary nan": (
        header("binary") + np.concatenate([POINTS[:6], [[0, np.nan, 0]], POINTS[7:]]).astype("<f4").tobytes(),
        1,
        "record 7: a coordinate is nan",
    ),
    "cut compressed": (WHOLE["compressed.pcd"][:-9], BODY, "compressed bytes instead of"),
    "no compressed": (header("binary_compressed"), BODY, "0 bytes of points instead of 480"),
    "wrong size": (header("binary_compressed") + struct.pack("<II", 4, 2**31), BODY, "instead of 480"),
    "no lzf": (header("binary_compressed") + struct.pack("<II", 3, 480) + b"\xff\xff\xff", BODY, "no LZF"),
    "absurd": (header("binary", points=10**9 - 1), line_of(ASCII, "WIDTH"), "is no number from 0 to"),
    "absurd digits": (header("binary", points="9" * 5000), 1, "no DATA"),
    "absurd count": (header("binary", count="1 1 1000000"), line_of(ASCII, "COUNT"), "is no number from 0 to"),
    "counts": (header("binary", more=["POINTS 39"]), line_of(ASCII, "POINTS") + 1, "a second POINTS"),
    "other count": (ASCII.replace(b"POINTS 40", b"POINTS 41"), line_of(ASCII, "POINTS"), "not WIDTH 40 x HEIGHT 1"),
    "no z": (header("ascii", fields="x y w"), line_of(ASCII, "FIELDS"), "0 fields z"),
    "two x": (header("ascii", fields="x y x"), line_of(ASCII, "FIELDS"), "2 fields x"),
    "integers": (header("ascii", kind="F F I"), line_of(ASCII, "TYPE"), "field z is 1 of TYPE I"),
    "odd size": (header("ascii", size="4 4 3"), line_of(ASCII, "TYPE"), "SIZE 3"),
    "fewer sizes": (header("ascii", size="4 4"), line_of(ASCII, "SIZE"), "2 of SIZE for 3 FIELDS"),
    "no fields": (ASCII.replace(b"FIELDS x y z\n", b""), BODY - 1, "no FIELDS"),
    "other data": (header("zip"), line_of(ASCII, "DATA"), "'zip' is none of"),
    "no text": (b"# \xff\xfe\n" + ASCII, 1, "no UTF-8"),
    "a picture": (b"\x89PNG\r\n\x1a\n" + bytes(5000), 1, "no UTF-8"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_pcd_is_refused_in_one_line(case, tmp_path):
    data, line, message = BROKEN[case]
    file = put(tmp_path, data)
    with pytest.raises(DataError) as error:
        read_cloud(file)
    one_line(error, f"{file}:{line}: ", message)


def header_npy(shape, descr="<f4"):
    text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape}, }}".ljust(117).encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.npy", npy(np.array([{"a": 1}, None, 3], dtype=object)), "an array of object"),
        ("a.npz", npz(a=np.array([{"a": 1}], dtype=object)), "an array of object"),
        ("a.npy", npy(np.arange(9).reshape(3, 3)), "an array of int64"),
        ("a.npy", npy(POINTS[:, :2]), "shape (40, 2)"),
        ("a.npy", npy(POINTS[None]), "shape (1, 40, 3)"),
        ("a.npy", npy(POINTS[:0]), "zero points"),
        ("a.npy", npy(POINTS)[:-5], "record 40: 475 bytes instead of 480"),
        ("a.npy", header_npy((10**12, 3)), "shape (1000000000000, 3)"),
        ("a.npy", header_npy((MOST_POINTS, 3)), "bytes instead of"),
        ("a.npy", b"no array", "no .npy file"),
        ("a.npy", b"\x93NUMPY\x01\x00\x10\x00" + b"__import__('os')", "no .npy file"),
        ("a.npy", npy(np.where(np.arange(40)[:, None] == 8, np.inf, POINTS)), "record 9: a coordinate is inf"),
        ("a.npz", npz(a=POINTS, b=POINTS), "2 arrays, not one"),
        ("a.npz", b"PK no archive", "no .npz file"),
        ("a.ply", b"ply", "no cloud of points is read from a .ply file"),
    ],
)
def test_a_broken_array_is_refused_in_one_line(name, data, message, tmp_path):
    file = put(tmp_path, data, name)
    with pytest.raises(DataError) as error:
        read_cloud(file)
    one_line(error, file, message)


def test_an_archive_does_not_unpack_to_more_than_a_cloud(tmp_path):
    file = tmp_path / "bomb.npz"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("a.npy", "w") as stream:
        for _ in range(80):
            stream.write(bytes(1 << 20))
    with pytest.raises(DataError) as error:
        read_cloud(file)
    one_line(error, file, "more than 64 MiB")


def test_what_a_header_claims_is_not_allocated(tmp_path):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    count = " ".join(["1", "1", "1", "1000"])
    claims = {"fields": "x y z a", "size": "8 8 8 8", "kind": "F F F F", "count": count, "points": MOST_POINTS}
    for data in ("ascii", "binary", "binary_compressed"):
        body = struct.pack("<II", 8, (1003 * 8 * MOST_POINTS) % 2**32) + bytes(8)
        with pytest.raises(DataError):
            read_cloud(put(tmp_path, header(data, **claims) + body))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10  # KiB


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError) as error:
        read_cloud(tmp_path / "none.pcd")
    one_line(error, tmp_path / "none.pcd", "No such file")


@pytest.mark.parametrize("name", ["ascii.pcd", "binary.pcd", "compressed.pcd", "packed.pcd", "cloud.npy", "cloud.npz"])
def test_nothing_else_comes_out_of_a_broken_file(name, tmp_path):
    refused = 0
    for broken in mutations(WHOLE[name], 120):
        try:
            cloud = read_cloud(put(tmp_path, broken, name))
            assert cloud.shape[1] == 3 and np.isfinite(cloud).all()
        except DataError as error:
            assert "\n" not in str(error)
            refused += 1
    assert refused > 20
