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
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from tasks.base import Predictor
from tasks.checks import DataError, Progress
from tasks.data_sources import RELEASE
from tasks.data_task import SLICE, SYNTHETIC, Source
from tasks.examples import Examples, Shards
from tasks.lra import pathfinder_generator as generator
from tasks.lra import pathfinder_predictors as predictors
from tasks.lra import pathfinder_reader as reader
from tasks.lra import pathfinder_tables as tables
from tasks.lra.classification import SequenceClassification, shuffled_by_content, split_off
from tasks.lra.fitted import at_most, boosted
from tasks.lra.pathfinder_tables import LRA, PATHX, Design

GENERATED, OFFICIAL = "generated", "official"
FIT_ON = 20_000  # pictures: a minute for boosted trees


@dataclass(kw_only=True, eq=False, repr=False)
class Pathfinder(SequenceClassification):
    """LRA Pathfinder-32.

    `source`: `generated`, `official` (`path`: a folder of LRA's release, `pathfinder32/curv_contour_length_14`) or
    `slice` (`path`: a folder laid out like it). `design` changes what generated pictures show; their size follows from
    `max_length`, which is that of a square and one more with `append_eos`. `workers` None: one process per core.
    """

    name = "lra/pathfinder"
    classes = 2
    symbols = 256
    published = (180_000, 20_000)
    release = f"the folder pathfinder32/curv_contour_length_14 of {RELEASE}"
    drawn: ClassVar[Design] = LRA  # for the paper

    source: str = GENERATED
    max_length: int | None = None
    design: Mapping[str, Any] | Design | None = None  # made a `Design`, None where pictures are read
    mask_black: bool = False
    train: int = 160_000
    val: int = 20_000
    test: int = 20_000

    def __post_init__(self) -> None:
        if self.max_length is None:
            self.max_length = self.drawn.size**2 + self.append_eos
        self.size = math.isqrt(max(0, self.max_length - self.append_eos))
        if self.size**2 + self.append_eos != self.max_length:
            end = " and an end symbol" if self.append_eos else ""
            raise ValueError(f"max_length={self.max_length} is no square picture{end}")
        changes = dict(self.design or {})
        settings = {field.name for field in dataclasses.fields(Design)} - {"size"}
        if unknown := sorted(set(changes) - settings):
            raise ValueError(f"design.{unknown[0]} is none of {', '.join(sorted(settings))}")
        generated = self.source == GENERATED
        self.design = dataclasses.replace(self.drawn, size=self.size, **changes) if generated else None
        self.padding_id = 0 if self.mask_black else None
        super().__post_init__()

    def sources(self) -> dict[str, Source]:
        return {
            GENERATED: Source(self._generate, self._identity),
            OFFICIAL: self.path_source(self._read, self._folder_identity, official=True),
            SLICE: self.path_source(self._read, self._folder_identity),
        }

    def baselines(self, seen: int | None = None) -> Mapping[str, Callable[[], Predictor]]:
        disc = {"size": self.size, "radius": (self.design or self.drawn).marker_radius}
        ink = partial(self.fitted, partial(predictors.line_ink, **disc), boosted, at_most(FIT_ON, seen))
        return {**super().baselines(seen), "boosted_ink_near_line": ink}

    def _identity(self) -> dict[str, Any]:
        digest = tables.digest(self.design)
        return {"version": generator.VERSION, "tables": digest, **dataclasses.asdict(self.design), **self.sizes}

    def _generate(self, progress: Progress) -> dict[str, Shards]:
        splits, start = {}, 0
        for name in ("test", "val", "train"):
            splits[name] = generator.shards(start, self.sizes[name], self.design, seed=self.data_seed)
            start += self.sizes[name]
        return splits

    def _folder_identity(self) -> dict[str, Any]:
        return {"version": reader.VERSION, "size": self.size, "metadata": reader.identity(self.path)}

    def _read(self, progress: Progress) -> dict[str, Examples]:
        # the easier folders are no reproduction of the paper's numbers
        contour = self.drawn.contour_length if self.source == OFFICIAL else None
        pictures = reader.read(self.path, self.size, progress, contour)
        tenth = pictures.count // 10
        if not tenth:
            raise DataError(f"{self.path}:{pictures.count}: too few pictures to split 80/10/10", "give ten")
        return split_off(shuffled_by_content(pictures, self.data_seed), tenth, tenth)

    def origin(self, complete: bool, part: str | None = None) -> str:
        if self.source == GENERATED:
            return "full" if complete and self.design == self.drawn else SYNTHETIC
        return super().origin(complete, part)


class PathX(Pathfinder):
    """LRA Path-X: 128 x 128 pixels. All 200,000 pictures are 3.3 GB, made in shards of 64 MB."""

    name = "lra/pathx"
    protocol = "google"
    release = f"the folder pathfinder128/curv_contour_length_14 of {RELEASE}"
    drawn = PATHX
