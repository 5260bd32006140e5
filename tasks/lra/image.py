"""Image: which of ten classes does a picture of 1,024 grey pixels, read row by row, show? (Tay et al., LRA, 2021.)

CIFAR-10 (Krizhevsky, 2009): 50,000 pictures to train, 10,000 to test, 32 x 32. A token is a grey level, 0 to 255.

Our readings:
- Grey is 0.2989 R + 0.587 G + 0.114 B as TensorFlow's `rgb_to_grayscale` makes it of bytes, times 255.5 / 255 and cut
  to an integer: in exact arithmetic here, so the same on every machine. (Latte's code leaves the factor out, which
  makes white 254.)
- No pixel is padding. `mask_black=true` masks those of level 0, as the code of LRA and of Skyformer does (X4).
- LRA takes the last tenth of TFDS's training order for validation; here it is a tenth in an order of our own.
- With `max_length` 256, 64 or 16 the picture is the mean over squares of 2 x 2, 4 x 4 or 8 x 8 pixels.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePath
from typing import IO, Any

import numpy as np

from tasks import cells, data_sources
from tasks.base import Predictor
from tasks.checks import DataError, Progress
from tasks.data_sources import Download
from tasks.data_task import SLICE, SYNTHETIC, Source
from tasks.examples import Examples
from tasks.lra import synthetic_image
from tasks.lra.classification import PUBLISHED_SPLITS, SequenceClassification
from tasks.lra.fitted import at_most, discriminant, nearest

ARCHIVE = Download(
    "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    170_052_171,
    "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
)
FILES = ("data_batch_*.bin", "test_batch.bin")  # in the archive: to train and to test
HUB = ("uoft-cs/cifar10", "0b2714987fa478483af9968de7c934580d0bb9a2")
TFDS = "cifar10:3.0.2"
SIDE = 32
RECORD = 1 + 3 * SIDE * SIDE  # bytes of a picture in the archive
LENGTHS = {(SIDE // block) ** 2: block for block in (1, 2, 4, 8)}  # pixels that remain: side of the squares averaged
CLASSES = 10
FIT_ON = 16_000  # pictures whose neighbours are sought

Pictures = tuple[np.ndarray, np.ndarray]  # colours (n, SIDE, SIDE, 3) uint8, classes (n,) uint8


@dataclass(kw_only=True, eq=False, repr=False)
class Image(SequenceClassification):
    """LRA Image.

    `source`: `official` (the archive at Toronto, or `path` to a copy), `hf`, `tfds`, `slice` (`path`: a folder with
    files of the archive, `data_batch_*.bin` and `test_batch.bin`, of any number of pictures) or `synthetic` (of
    `synthetic_image`, which `noise` and `silhouette` belong to). Raises ValueError for a `max_length` that is not a
    square.
    """

    name = "lra/image"
    classes = CLASSES
    symbols = 256
    published = (50_000, 10_000)

    source: str = "official"
    max_length: int = SIDE * SIDE
    mask_black: bool = False
    train: int = 45_000
    val: int = 5_000
    test: int = 10_000
    noise: int = 32
    silhouette: bool = False

    def __post_init__(self) -> None:
        if self.max_length not in LENGTHS:
            raise ValueError(f"max_length={self.max_length} is no square picture: {', '.join(map(str, LENGTHS))}")
        self.padding_id = 0 if self.mask_black else None
        super().__post_init__()

    def sources(self) -> dict[str, Source]:
        archive = self.path_source(
            self._official, lambda: {"sha256": ARCHIVE.sha256}, requires_path=False, complete=True
        )
        of_pictures = {
            "official": archive,
            **self.libraries(HUB, TFDS, self._library),
            SLICE: self.path_source(self._slice, self.identity),
            SYNTHETIC: self.generated(
                synthetic_image, noise=self.noise, silhouette=self.silhouette, block=LENGTHS[self.max_length]
            ),
        }
        return {name: self._of_sequences(source) for name, source in of_pictures.items()}

    def baselines(self, seen: int | None = None) -> Mapping[str, Callable[[], Predictor]]:
        """A linear discriminant of the levels; the nearest training pictures by their levels and by the pixels that are
        on, as they stand and moved to the corner."""
        size = math.isqrt(self.max_length)
        vectors = {
            "nearest_levels": lambda tokens: levels(tokens, size),
            "nearest_levels_in_corner": lambda tokens: in_corner(levels(tokens, size), size),
            "nearest_pixels": lambda tokens: switched_on(tokens, size),
            "nearest_pixels_in_corner": lambda tokens: in_corner(switched_on(tokens, size), size),
        }
        linear = partial(self.fitted, partial(np.asarray, dtype=np.float64), discriminant, seen)
        nearest_one, most = partial(nearest, 1), at_most(FIT_ON, seen)
        by_distance = {name: partial(self.fitted, some, nearest_one, most) for name, some in vectors.items()}
        return {**super().baselines(seen), "linear_discriminant": linear, **by_distance}

    def _of_sequences(self, pictures: Source) -> Source:
        """The source of sequences for a source of pictures."""

        def read(progress: Progress) -> dict[str, Examples]:
            return {name: to_sequences(*pair, self.max_length) for name, pair in pictures.read(progress).items()}

        return replace(pictures, identity=lambda: {"max_length": self.max_length, **pictures.identity()}, read=read)

    def _official(self, progress: Progress) -> dict[str, Pictures]:
        file = ARCHIVE.at(self.path, self.data_root / "downloads", progress)
        members = data_sources.archive(file, lambda name: any(PurePath(name).match(pattern) for pattern in FILES))
        return read_batches(((f"{file}/{name}", stream) for name, stream in members), file)

    def _library(self, rows: Sequence[Mapping[str, Any]], where: str, progress: Progress) -> Pictures:
        colours, labels = [], []
        for number, row in enumerate(rows, 1):
            picture = np.asarray(row.get("img", row.get("image")))  # of the hub, of TFDS
            if picture.shape != (SIDE, SIDE, 3) or picture.dtype != np.uint8:
                problem = f"the picture is {picture.dtype} {picture.shape}, not uint8 {(SIDE, SIDE, 3)}"
                raise DataError(f"{where}:{number}: {problem}")
            colours.append(picture)
            labels.append(cells.label(row.get("label"), range(CLASSES), "label", f"{where}:{number}"))
            if not number % 1000:
                progress(f"reading {where}", number, max(number, len(rows)))
        return np.array(colours, np.uint8).reshape(-1, SIDE, SIDE, 3), np.array(labels, np.uint8)

    def _slice(self, progress: Progress) -> dict[str, Pictures]:
        return read_batches(opened(data_sources.files_in(self.path, *FILES)), self.path)


def grey(colours: np.ndarray) -> np.ndarray:
    """(..., 3) uint8 -> (...) uint8, as tf.image.rgb_to_grayscale."""
    total = colours.astype(np.int64) @ np.array([2989, 5870, 1140])
    return (total * 511 // 5_100_000).astype(np.uint8)  # 255.5 / 255 / 10,000


def to_sequences(colours: np.ndarray, labels: np.ndarray, length: int) -> Examples:
    """Pictures (n, SIDE, SIDE, 3) and classes (n,) -> sequences of `length` grey levels."""
    block = LENGTHS[length]
    squares = grey(colours).reshape(len(colours), SIDE // block, block, SIDE // block, block)
    levels = squares.sum((2, 4), dtype=np.int64) // block**2
    return Examples(levels.astype(np.uint8).ravel(), np.arange(len(colours) + 1) * length, labels)


def opened(files: Iterable[Path]) -> Iterator[tuple[str, IO[bytes]]]:
    for file in files:
        with data_sources.opened_text(file) as stream:
            yield str(file), stream


def read_batches(batches: Iterable[tuple[str, IO[bytes]]], where: Path) -> dict[str, Pictures]:
    """Pictures of (name, content) of files of the archive, in the order of their names. Raises DataError."""
    by_split: dict[str, dict[str, np.ndarray]] = {name: {} for name in PUBLISHED_SPLITS}
    for name, stream in batches:
        data = np.frombuffer(data_sources.content(stream, name), np.uint8)
        if not data.size or data.size % RECORD:
            raise DataError(f"{name}:1: {data.size:,} bytes are no whole number of pictures")
        records = data.reshape(-1, RECORD)
        for wrong in np.flatnonzero(records[:, 0] >= CLASSES)[:1]:
            cells.label(int(records[wrong, 0]), range(CLASSES), "label", f"{name}:{wrong + 1}")
        by_split["test" if name.endswith(FILES[1]) else "train"][name] = records
    if empty := [split for split, some in by_split.items() if not some]:
        raise DataError(f"{where}: no pictures to {empty[0]}", f"put the files of {ARCHIVE.url} there")
    return {split: unpack(np.concatenate([some[name] for name in sorted(some)])) for split, some in by_split.items()}


def unpack(records: np.ndarray) -> Pictures:
    """Records (n, RECORD) of the class and all levels of red, of green, of blue -> pictures."""
    return records[:, 1:].reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1), records[:, 0].copy()


def levels(tokens: np.ndarray, size: int) -> np.ndarray:
    """Grey levels (B, >= W^2), W = `size` -> (B, W^2) float32."""
    return tokens[:, : size**2].astype(np.float32)


def switched_on(tokens: np.ndarray, size: int) -> np.ndarray:
    """(B, >= W^2) -> (B, W^2) float32: 1 where a pixel is lighter than the darkest one of its picture, else 0."""
    pictures = tokens[:, : size**2]
    return (pictures > pictures.min(1, keepdims=True)).astype(np.float32)


def in_corner(pictures: np.ndarray, size: int) -> np.ndarray:
    """(B, W^2) -> (B, W^2): moved so that the first row and column with a pixel that is on are 0, dark where empty."""
    on = switched_on(pictures, size).reshape(-1, size, size)
    dark = pictures.min(1)[:, None, None]
    top, left = (on.max(axis).argmax(1) for axis in (2, 1))
    grid = np.arange(size)
    rows, columns = (grid + first[:, None] for first in (top, left))  # (B, W)
    inside = (rows < size)[:, :, None] & (columns < size)[:, None, :]
    number = np.arange(len(on))[:, None, None]
    moved = pictures.reshape(on.shape)[number, rows[:, :, None] % size, columns[:, None, :] % size]
    return np.where(inside, moved, dark).reshape(len(on), -1)
