"""Pathfinder's published folders: pictures in `imgs/<batch>/sample_<i>.png`, text in `metadata/<batch>.npy`.

A row of metadata is `folder file number label continuity dashes ...`, separated by spaces, eleven columns of which four
are read. The one empty picture of LRA's release is left out. Every other defect is a DataError of one line that names
file and row.
"""

import io
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import numpy as np

from tasks import data_sources, file_digests
from tasks.checks import DataError, Progress
from tasks.examples import Examples
from tasks.regular_files import open_regular

VERSION = 1  # part of the cache key of read folders
METADATA = "metadata"
LABELS = {"0": 0, "1": 1}
LARGEST_PICTURE = 1 << 20  # bytes of a file
# published empty, in Pathfinder-32's curv_baseline
EMPTY = PurePosixPath("imgs/0/sample_172.png")


def metadata_files(folder: Path) -> list[Path]:
    """The metadata files in the order of their batches. Raises DataError if there is none."""
    files = sorted(data_sources.files_in(folder, f"{METADATA}/*.npy"), key=lambda file: (len(file.stem), file.stem))
    if not files:
        reason = f"No such file, {METADATA}/*.npy"
        raise DataError(f"{folder}:1: {reason}", "set task.path to a folder like pathfinder32/..._14")
    return files


def identity(folder: Path) -> str:
    """sha256, hexadecimal, of all metadata and of the pictures that they name. Raises DataError."""
    files = metadata_files(folder)
    pictures = {folder / path for file in files for _, path, _ in _rows(file, None)}
    return file_digests.folder_identity(folder, {*files, *(file for file in pictures if file.is_file())})


def read(folder: Path, size: int, progress: Progress, contour: int | None = None) -> Examples:
    """All pictures (size, size), row by row, in the order of the metadata. Raises DataError.

    `contour`: how many dashes a path must have; None: any number.
    """
    files = metadata_files(folder)
    rows = [row for file in files for row in _rows(file, contour)]
    pixels, labels, seen = np.empty((len(rows), size, size), np.uint8), bytearray(), set()
    for number, (where, path, label) in enumerate(rows, 1):
        if path in seen:
            raise DataError(f"{where}: {path} is listed twice", "put LRA's folder there")
        seen.add(path)
        picture = _picture(folder / path, size)
        if isinstance(picture, np.ndarray):
            pixels[len(labels)] = picture
            labels.append(label)
        elif path != EMPTY or picture != NOTHING:
            raise DataError(f"{where}: {folder / path}: {picture}", "put LRA's folder there")
        if not number % 1000:
            progress(f"reading {folder.name}", number, len(rows))
    count = len(labels)
    return Examples(pixels[:count].reshape(-1), np.arange(count + 1) * size**2, np.frombuffer(labels, np.uint8))


def _rows(file: Path, contour: int | None) -> Iterator[tuple[str, PurePosixPath, int]]:
    """(file and row, picture's path in the folder, label). Raises DataError."""
    for number, line in data_sources.records_of(file):
        try:
            yield f"{file}:{number}", *_row(line, contour)
        except ValueError as error:
            raise DataError(f"{file}:{number}: {error}", "put LRA's folder there") from None


def _row(line: bytes, contour: int | None) -> tuple[PurePosixPath, int]:
    if line.startswith(b"\x93NUMPY"):
        raise ValueError("an array of NumPy, where LRA's release has text (np.savetxt writes it)")
    columns = line.decode().split()
    if len(columns) < 4:
        raise ValueError(f"{len(columns)} columns, but the fourth is the label")
    if columns[3] not in LABELS:
        raise ValueError(f"label {columns[3][:20]!r} is neither 0 nor 1")
    if contour is not None and columns[5:6] != [str(contour)]:
        lengths = f"paths of {columns[5][:20]} dashes" if len(columns) > 5 else "no length of its paths"
        raise ValueError(f"{lengths}, not of {contour}: another of LRA's folders, which task.source=slice reads")
    path = PurePosixPath(columns[0], columns[1])
    if path.is_absolute() or ".." in path.parts or "\0" in str(path):
        raise ValueError(f"{str(path)[:80]!r} leads out of the folder")
    return path, LABELS[columns[3]]


NOTHING = "an empty file"


def _picture(file: Path, size: int) -> np.ndarray | str:
    """Grey levels (size, size) uint8 of a PNG, or what is wrong with it."""
    import PIL.Image

    try:
        with open_regular(file, follow=True) as stream:
            data = stream.read(LARGEST_PICTURE + 1)
        if not data:
            return NOTHING
        if len(data) > LARGEST_PICTURE:
            return f"more than {LARGEST_PICTURE:,} bytes"
        with PIL.Image.open(io.BytesIO(data), formats=["PNG"]) as image:
            if image.size != (size, size) or image.mode != "L":
                return f"{image.size[0]} x {image.size[1]} pixels of mode {image.mode}, not {size} x {size} grey ones"
            image.verify()  # sums and end, which decoding does not look at; it cannot be decoded after
        with PIL.Image.open(io.BytesIO(data), formats=["PNG"]) as image:
            return np.asarray(image)
    except Exception as error:  # decoders raise many kinds of errors; that of a file has `strerror`
        return getattr(error, "strerror", None) or f"no PNG ({data_sources.one_line(error)[:80]})"
