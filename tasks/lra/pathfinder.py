"""Pathfinder: are the two discs on the same dashed path? (Linsley et al., 2018; Tay et al., Long Range Arena, 2021.)

Pictures of 32 x 32 pixels, read row by row as 1,024 grey levels from 0 to 255; Path-X is the same with 128 x 128. Of
LRA's three kinds ("easy", "intermediate", "hard": contours of 6, 9 and 14 dashes) the papers use the hard one. 200,000
pictures, 160,000 / 20,000 / 20,000, half of them in either class, accuracy in percent.

Our readings:
- The published pictures can be generated: `pathfinder_generator` is the published algorithm, so with the published
  settings and sizes a generated set counts as the full one.
- Which pictures validate and test is a function of their content and `data_seed`. The published codes take TFDS's
  order, a seeded shuffle or two unseeded ones (X7). Of generated pictures the first test and the next validate.
- No pixel is padding. `mask_black=true` masks those of level 0, as the code of LRA and of Skyformer does (X4): two
  thirds of them all.
- The targets are darker than the distractors (X5); `design.distractor_contrast=1.5` makes them alike.
"""

import dataclasses
import math
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from models.attention.base import Pattern
from tasks.base import DataError, Progress
from tasks.cache import Examples
from tasks.lra import pathfinder_generator as generator
from tasks.lra import pathfinder_reader as reader
from tasks.lra import pathfinder_tables as tables
from tasks.lra.classification import SLICE, SequenceClassification, by_content
from tasks.lra.pathfinder_design import LRA, PATHX, Design
from tasks.sources import Source

GENERATED = "generated"
OFFICIAL = "official"


class Pathfinder(SequenceClassification):
    """LRA Pathfinder-32.

    `source`: `generated`, `official` (`path`: a folder of LRA's release, `pathfinder32/curv_contour_length_14`) or
    `slice` (`path`: a folder laid out like it). `design` changes what generated pictures show; their size follows from
    `max_length`, which is that of a square and one more with `append_eos`. `workers` None: one thread a core.
    """

    name = "lra/pathfinder"
    classes = 2
    symbols = 256
    published = (180_000, 20_000)
    drawn: ClassVar[Design] = LRA  # for the paper
    design: Design | None  # of generated pictures

    def __init__(
        self,
        *,
        data_root: str | Path,
        source: str = GENERATED,
        path: str | Path | None = None,
        pattern: Pattern | str = Pattern.NONCAUSAL_SELF,
        max_length: int | None = None,
        design: Mapping[str, Any] | None = None,
        mask_black: bool = False,
        train: int = 160_000,
        val: int = 20_000,
        test: int = 20_000,
        data_seed: int = 0,
        append_eos: bool = False,
        drop_remainder: int | None = None,
        workers: int | None = None,
    ):
        if max_length is None:
            max_length = self.drawn.size**2 + append_eos
        size = math.isqrt(max(0, max_length - append_eos))
        if size**2 + append_eos != max_length:
            end = " and an end symbol" if append_eos else ""
            raise ValueError(f"max_length={max_length} is no square picture{end}")
        if workers is not None and workers < 1:
            raise ValueError(f"workers={workers} is less than 1")
        known = {field.name for field in dataclasses.fields(Design)} - {"size"}
        if unknown := sorted(set(design or {}) - known):
            raise ValueError(f"design.{unknown[0]} is none of {', '.join(sorted(known))}")
        self.size, self.design = size, None
        if source == GENERATED:
            self.design = dataclasses.replace(self.drawn, size=size, **(design or {}))
        self.padding_id = 0 if mask_black else None
        self.workers = workers
        super().__init__(
            data_root=data_root,
            source=source,
            path=path,
            pattern=pattern,
            max_length=max_length,
            train=train,
            val=val,
            test=test,
            data_seed=data_seed,
            append_eos=append_eos,
            drop_remainder=drop_remainder,
        )

    def sources(self) -> dict[str, Source]:
        folder = partial(Source, self._folder_identity, self._read, takes_path=True, needs_path=True)
        return {GENERATED: Source(self._identity, self._generate), OFFICIAL: folder(), SLICE: folder()}

    def _identity(self) -> dict[str, Any]:
        digest = tables.digest(self.design)
        return {"version": generator.VERSION, "tables": digest, **dataclasses.asdict(self.design), **self.sizes}

    def _generate(self, progress: Progress) -> dict[str, Examples]:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        workers, count = self.workers or cores, sum(self.sizes.values())
        try:
            pictures = generator.generate(count, self.design, seed=self.data_seed, workers=workers, progress=progress)
        except ValueError as error:
            raise DataError(f"{error}; change task.design, then {self.hint}") from error
        return cut(pictures, self.sizes["test"], self.sizes["val"])

    def _folder_identity(self) -> dict[str, Any]:
        return {"version": reader.VERSION, "size": self.size, "metadata": reader.identity(self.path, self.hint)}

    def _read(self, progress: Progress) -> dict[str, Examples]:
        pictures = reader.read(self.path, self.size, self.hint, progress)
        tenth = pictures.count // 10
        if not tenth:
            raise DataError(f"{self.path}:{pictures.count}: too few pictures to split 80/10/10; give ten, {self.hint}")
        return cut(by_content(pictures, self.data_seed), tenth, tenth)

    def _origin(self, complete: bool) -> str:
        if self.source == GENERATED:
            return "full" if complete and self.design == self.drawn else "synthetic"
        return super()._origin(complete)


class PathX(Pathfinder):
    """LRA Path-X: 128 x 128 pixels. All 200,000 pictures are 3.3 GB, in memory while they are prepared."""

    name = "lra/pathx"
    drawn = PATHX


def cut(pictures: Examples, test: int, val: int) -> dict[str, Examples]:
    """The first `test` examples, the next `val`, and the rest as `train`."""
    rest = pictures.part(test + val, pictures.count)
    return {"train": rest, "val": pictures.part(test, test + val), "test": pictures.part(0, test)}
