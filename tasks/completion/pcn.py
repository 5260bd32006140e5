"""PCN: complete a shape that was seen from one side (Yuan et al., 2018), with PoinTr's metrics (Yu et al., 2021).

28,974 shapes of ShapeNet in 8 categories to train, 800 to validate, 1,200 to test: 16,384 points of each surface, and
what a depth camera sees of it from 8 sides (one, to validate and test). Our readings:

- The model's input is `input_points` of those seen, chosen at random; of fewer, some are there twice (PoinTr's code
  fills up with points at 0). To train, a view, the choice, and whether both clouds are mirrored in x, in z or in both
  are drawn anew each time, from torch's generator; to validate and test they are a function of the example's number.
  (Later versions of PoinTr's code take the last view each time.)
- PoinTr's code selects checkpoints on the test split (X48), which is `validation=test` here.
- A split cut short (`train`, `val`, `test`) has as many shapes of each category as of any other.

    B batch, n input points, m output points
"""

import hashlib
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torchmetrics import MetricCollection

from models.attention.base import Pattern
from tasks.base import Batch, DataInfo, Predictor, Split
from tasks.checks import DataError, Progress, at_least, no_progress, one_of
from tasks.completion import synthetic_shapes
from tasks.completion.chamfer import NAMES, THRESHOLD, CompletionScores, NearestShape, chamfer_l1, scores
from tasks.completion.cloud_files import ply
from tasks.completion.shape_sources import Files, pcn_files
from tasks.completion.synthetic_shapes import GeneratedShapes
from tasks.data_task import SPLITS, SYNTHETIC, DataTask, Source
from tasks.lra.fitted import at_most

PUBLISHED = {"train": 28_974, "val": 800, "test": 1_200}
PUBLISHED_POINTS = 16_384
RELEASE = (
    "the folder ShapeNetCompletion (https://gateway.infinitescript.com/?fileName=ShapeNetCompletion)"
    " with PCN.json of https://github.com/yuxumin/PoinTr/tree/master/data/PCN in it"
)
PATHS = {"official": RELEASE, "slice": "a folder laid out like ShapeNetCompletion, with a PCN.json of what is in it"}
MOST_MEMORY = 4 << 30  # bytes of generated shapes
FITTED_TO = 64  # training shapes
NEIGHBOURS = 1024  # training shapes among which the nearest one is sought
FITTED_POINTS = 256  # of each, to compare reflections by
QUICK = 8  # shapes of a split whose files are checked when time is short
BASELINE_SEED = 5


class Clouds(Split):
    """One split. `batch(indices)` gives {"partial": (B, n, 3), "complete": (B, m, 3) float32, "category": (B,) int64}.

    `drawn`: views, chosen points and mirrors come from torch's generator.
    `reading` is entered to read a file: its errors name the command.
    """

    def __init__(
        self,
        shapes: Files | GeneratedShapes,
        input_points: int,
        output_points: int,
        *,
        drawn: bool = False,
        reading: Callable[[], AbstractContextManager[None]] = nullcontext,
    ):
        self.shapes, self.input_points, self.output_points = shapes, input_points, output_points
        self.drawn, self.reading = drawn, reading

    def __len__(self) -> int:
        return len(self.shapes.labels)

    def batch(self, indices: Sequence[int]) -> Batch:
        index = self.checked(indices).tolist()
        partial = np.empty((len(index), self.input_points, 3), np.float32)
        complete = np.empty((len(index), self.output_points, 3), np.float32)
        seed = int(torch.randint(2**62, ())) if self.drawn else 0
        for row, i in enumerate(index):
            random = np.random.Generator(np.random.PCG64([seed, row] if self.drawn else i))
            view = int(random.integers(self.shapes.views)) if self.drawn else 0
            with self.reading():
                seen, surface = self.shapes.pair(i, view)
            partial[row] = resampled(seen, self.input_points, random)
            complete[row] = (
                surface if len(surface) == self.output_points else resampled(surface, self.output_points, random)
            )
            if self.drawn:
                sign = np.ones(3, np.float32)
                sign[[0, 2]] = random.choice([-1, 1], 2)
                partial[row] *= sign
                complete[row] *= sign
        category = torch.from_numpy(self.shapes.labels[index])
        return {"partial": torch.from_numpy(partial), "complete": torch.from_numpy(complete), "category": category}


@dataclass(kw_only=True, eq=False, repr=False)
class PCN(DataTask):
    """Point cloud completion.

    `source`: `official` (`path`: the folder ShapeNetCompletion, read a batch at a time), `slice` (a part of it) or
    `synthetic` (of `shapes`). `train`, `val` and `test` are the numbers of shapes to generate, or at most to use of
    those that are read; `views`, of each to train. `validation=test` validates on the test split, one object with it.
    `ignore_zeros` scores as PoinTr's code does, see `chamfer`; `f1_threshold` is the distance below which a point
    counts as met, for clouds of few points that of neighbours. `asymmetry` of generated shapes: see
    `synthetic_shapes`. Raises ValueError, in one line, before any data is touched.
    """

    metric = "cd_l1"
    higher_is_better = False
    baseline_name = "training_points"
    name = "completion/pcn"
    patterns = (Pattern.NONCAUSAL_CROSS,)  # from points to seen points

    source: str = "official"
    pattern: Pattern | str = Pattern.NONCAUSAL_CROSS
    input_points: int = 2048
    output_points: int = PUBLISHED_POINTS
    views: int = 8
    train: int = PUBLISHED["train"]
    val: int = PUBLISHED["val"]
    test: int = PUBLISHED["test"]
    validation: str = "val"
    ignore_zeros: bool = False
    f1_threshold: float | None = None
    asymmetry: float | None = None

    def __post_init__(self) -> None:
        self.sizes = {"train": self.train, "val": self.val, "test": self.test}
        at_least(1, **self.sizes, input_points=self.input_points, output_points=self.output_points, views=self.views)
        one_of(("val", "test"), validation=self.validation)
        if self.f1_threshold is not None and not 0 < self.f1_threshold < math.inf:
            raise ValueError(f"f1_threshold={self.f1_threshold} is no positive distance")
        synthetic_shapes.check(self.asymmetry or 0.0)
        super().__post_init__()
        self.categories: tuple[str, ...] = ()

    def sources(self) -> dict[str, Source]:
        listed = {name: Source(self._listed, path=layout, requires_path=True) for name, layout in PATHS.items()}
        listed["official"] = replace(listed["official"], complete=True)
        return {**listed, SYNTHETIC: Source(self._generated)}

    def prepare(self, progress: Progress) -> None:
        """Checks that all files in the lists exist; writes nothing."""
        self._look(progress)

    def check_is_prepared(self) -> None:
        """As `prepare`, for a few shapes per split."""
        self._look(no_progress, at_most=QUICK)

    def load(self) -> DataInfo:
        self.check_source()
        shapes = self._source.read(no_progress)
        how = {"input_points": self.input_points, "output_points": self.output_points}
        how["reading"] = self.naming_the_command  # files are read batch by batch
        self._splits = {name: Clouds(part, **how, drawn=name == "train") for name, part in shapes.items()}
        if self.validation == "test":
            self._splits["val"] = self._splits["test"]  # the same object, so that it is scored once and recognised
        sizes = {name: len(split) for name, split in self._splits.items()}
        prints = {name: part.fingerprint() for name, part in shapes.items()}
        prints["val"] = prints[self.validation]
        fingerprint = hashlib.sha256("".join(prints[name] for name in SPLITS).encode()).hexdigest()
        return DataInfo(self._origin(), fingerprint, sizes)

    def backbone_kwargs(self) -> dict[str, object]:
        return {"pattern": self.pattern, "input_points": self.input_points, "output_points": self.output_points}

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """The sum of the CD-L1 of the coarse and of the fine cloud."""
        return sum(chamfer_l1(cloud, batch["complete"]) for cloud in model(batch["partial"]))

    def metrics(self) -> MetricCollection:
        """`cd_l1` and `cd_l2`, times 1000, and `f1`, all of the fine cloud; the same of each category."""
        return MetricCollection({"scores": CompletionScores(self.categories)})

    def score(self, model: Predictor, batch: Batch, metrics: MetricCollection) -> dict[str, Tensor]:
        _, fine = model(batch["partial"])
        how = {"ignore_zeros": self.ignore_zeros, "threshold": self.f1_threshold or THRESHOLD}
        distances = scores(fine.detach(), batch["complete"], **how)
        metrics.update(distances, batch["category"])
        return dict(zip(NAMES, distances.unbind(1), strict=True))

    def baselines(self, seen: int | None = None) -> Mapping[str, Callable[[], Predictor]]:
        """One cloud for all shapes, of points of training shapes; the input; the input and a reflection of it; the
        training shape that the input fits best."""
        return {
            "training_points": lambda: partial(always, torch.from_numpy(self.training_points())),
            "input": lambda: lambda partial_cloud: (partial_cloud, partial_cloud),
            "input_and_reflection": lambda: partial(reflected, self.best_reflection()),
            "nearest_training_shape": lambda: NearestShape(self.training_shapes(at_most(NEIGHBOURS, seen))),
        }

    def tokens(self, batch: Batch) -> int:
        return batch["partial"].shape[0] * batch["partial"].shape[1]

    def outputs(self, model: nn.Module, indices: Sequence[int]) -> dict[str, Sequence[Any]]:
        """The input, the fine cloud and the complete one of each shape, as PLY."""
        batch, device = self.split("test").batch(indices), next(model.parameters()).device
        _, fine = model(batch["partial"].to(device))
        clouds = {"partial": batch["partial"], "predicted": fine.float().cpu(), "complete": batch["complete"]}
        return {
            "example": list(indices),
            "category": [self.categories[label] for label in batch["category"].tolist()],
            **{f"{name}.ply": [ply(cloud.numpy()) for cloud in some] for name, some in clouds.items()},
        }

    def artifacts(self, model: nn.Module) -> dict[str, object]:
        """Input, prediction and target of test shapes of different categories."""

        from tasks.completion import cloud_plot

        split = self.split("test")
        batch = split.batch(cloud_plot.pick(split.shapes.labels))
        device = next(model.parameters()).device
        partial, complete = (batch[name].to(device) for name in ("partial", "complete"))
        _, fine = model(partial)
        clouds = (cloud.detach().float().cpu().numpy() for cloud in (partial, fine, complete))
        names = [self.categories[label] for label in batch["category"].tolist()]
        return {"png": cloud_plot.draw(*clouds, names, scores(fine, complete)[:, 0].tolist())}

    def training_shapes(self, most: int) -> Tensor:
        """(T, m, 3) float32: the complete clouds of the first T training shapes, at most so many."""
        shapes = self.split("train").shapes
        random = np.random.Generator(np.random.PCG64([self.data_seed, BASELINE_SEED]))
        pairs = (shapes.pair(shape, 0) for shape in range(min(most, len(shapes.labels))))
        return torch.from_numpy(np.array([resampled(complete, self.output_points, random) for _, complete in pairs]))

    def training_points(self) -> np.ndarray:
        """(m, 3) float32: points of the first training shapes, as many of each."""
        shapes = self.split("train").shapes
        random = np.random.Generator(np.random.PCG64([self.data_seed, BASELINE_SEED]))
        count = min(FITTED_TO, len(shapes.labels), self.output_points)
        points = -(-self.output_points // count)
        drawn = [resampled(shapes.pair(shape, 0)[1], points, random) for shape in range(count)]
        return resampled(np.concatenate(drawn), self.output_points, random)

    def best_reflection(self) -> Tensor:
        """(3,) signs of the coordinates: of all seven reflections in x, y or z, the one that completes training shapes.

        (-1, -1, -1) is the reflection at the middle, which a shape in any pose may have.
        """
        shapes = self.split("train").shapes
        random = np.random.Generator(np.random.PCG64([self.data_seed, BASELINE_SEED]))
        pairs = [shapes.pair(shape, 0) for shape in range(min(FITTED_TO, len(shapes.labels)))]
        few = [[resampled(cloud, FITTED_POINTS, random) for cloud in pair] for pair in pairs]
        seen, surface = torch.from_numpy(np.array(few)).unbind(1)
        signs = [torch.tensor(sign) for sign in itertools.product((1.0, -1.0), repeat=3)][1:]
        return min(signs, key=lambda sign: float(chamfer_l1(reflected(sign, seen)[1], surface)))

    def _look(self, progress: Progress, at_most: int | None = None) -> None:
        """Raises DataError for missing files of the first shapes, or for too many shapes to generate."""
        self.check_source()
        if self.source == SYNTHETIC:
            self._check_memory()
            return
        for name, part in self._listed(progress).items():
            part.first(at_most or len(part.labels)).check(progress)
            if at_most is None and name != "train":  # read when training has ended; a minute at PCN's sizes
                part.read(progress)

    def _listed(self, progress: Progress) -> dict[str, Files]:
        """The shapes of each split that are used. Raises DataError."""
        self.categories, listed = pcn_files(self.path, self.views)
        self._counts = {name: len(part.labels) for name, part in listed.items()}
        if empty := [name for name, count in self._counts.items() if not count]:
            raise DataError(f"{listed[empty[0]].listed}:1: no shapes to {empty[0]}")
        counts, where = [self._counts[name] for name in SPLITS], f"{listed['train'].listed}:1"
        self.check_is_complete(where, counts, list(PUBLISHED.values()), "shapes to train, val and test")
        return {name: part.first(self.sizes[name]) for name, part in listed.items()}

    def _generated(self, progress: Progress) -> dict[str, GeneratedShapes]:
        self._check_memory()
        self.categories, self._counts = synthetic_shapes.CATEGORIES, self.sizes
        how = {"input_points": self.input_points, "output_points": self.output_points}
        how |= {"asymmetry": self.asymmetry or 0.0}
        views = (self.views, 1, 1)
        return {
            name: synthetic_shapes.generate(self.sizes[name], seed=(self.data_seed, i), views=views[i], **how)
            for i, name in enumerate(SPLITS)
        }

    def _check_memory(self) -> None:
        count = sum(self.sizes.values())
        needed = synthetic_shapes.memory(count, input_points=self.input_points, output_points=self.output_points)
        if needed > MOST_MEMORY:
            problem = f"{needed / 2**30:.1f} GiB of generated points are more than {MOST_MEMORY / 2**30:.0f}"
            fewer = "task.train=... task.output_points=..."
            raise DataError(f"source={self.source}: {problem}", "choose fewer shapes or points", fewer)

    def _origin(self) -> str:
        used = all(self.sizes[name] >= count for name, count in self._counts.items())
        published = (self.output_points, self.views) == (PUBLISHED_POINTS, 8)
        return self.origin(self.source == "official" and used and published)


def always(cloud: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
    """The cloud (m, 3) for every partial cloud in (B, n, 3), in a model's format: coarse and fine."""
    clouds = cloud.to(seen).expand(len(seen), -1, -1)
    return clouds, clouds


def reflected(signs: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
    """Clouds (B, n, 3) and their reflections, (B, 2n, 3), in a model's format."""
    return seen, torch.cat([seen, seen * signs.to(seen)], 1)


def resampled(points: np.ndarray, count: int, random: np.random.Generator) -> np.ndarray:
    """`count` of the points (n, 3): all different if there are enough, else each at least once."""
    order = random.permutation(len(points))[:count]
    if len(order) < count:
        order = np.concatenate([order, random.integers(len(points), size=count - len(order))])
    return points[order]
