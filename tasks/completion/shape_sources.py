"""Where the clouds of a split are: files that a list names, complete clouds to crop, or generated shapes.

The shapes of a split alternate between the categories, so that the first few are of all.
`pair(shape, view, random)` gives one as it is stored, (partial (n, 3), complete (m, 3)) float32, and reads its files.

- PCN (Yuan et al., 2018), as PoinTr's code reads it: `<split>/complete/<taxonomy>/<model>.pcd`, views of it at
  `<split>/partial/<taxonomy>/<model>/00.pcd` and on (one, in the first release `<model>.pcd`, of those that are not to
  train), and a JSON list of categories: taxonomy_id, taxonomy_name, and the models of train, val and test.
- ShapeNet-55 (Yu et al., 2021): `train.txt` and `test.txt`, there or in `ShapeNet-55`, name complete clouds
  `<taxonomy>-<model>.npy` in `shapenet_pc`. A cloud is centred and scaled into the unit ball; a quarter to three
  quarters of its points, those farthest from a viewpoint on the unit sphere, are missing. (The published code takes
  away those nearest to it, so it looks from the other side.) A tenth of `train.txt`, chosen by name and `data_seed`,
  is held out for validation.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tasks import data_sources, file_digests
from tasks.checks import DataError, Progress
from tasks.completion.cloud_files import read_cloud
from tasks.data_task import SPLITS
from tasks.regular_files import open_regular

Pair = tuple[np.ndarray, np.ndarray]
CLOUD = re.compile(r"\w+-\w[\w.-]*\.npy", re.ASCII)
NAME = re.compile(r"\w[\w.-]*", re.ASCII)  # cannot lead out of the folder
TITLE = re.compile(r"\w[\w., -]*", re.ASCII)


@dataclass(frozen=True)
class Files:
    """Complete clouds in files, and what is listed of them where: `listed` is for messages, `labels` (n,) int64.

    `views` are there of each.
    """

    listed: Path
    complete: Sequence[Path]
    labels: np.ndarray
    views: int = 1

    def first(self, count: int) -> "Files":
        return replace(self, complete=self.complete[:count], labels=self.labels[:count])

    def fingerprint(self) -> str:
        """A sha256 of all clouds and their places. Raises DataError."""
        files = [file for shape in range(len(self.complete)) for file in self.files(shape)]
        return file_digests.folder_identity(Path(os.path.commonpath(file.parent for file in files)), files)

    def files(self, shape: int) -> list[Path]:
        return [self.complete[shape]]

    def check(self, progress: Progress) -> None:
        """Raises DataError for a missing file."""
        names = cache(_names)
        for shape in self._each(progress, "looking for the files"):
            for file in self.files(shape):
                if file.name not in names(file.parent):
                    raise DataError(f"{file}:1: No such file, but {self.listed} lists it", "put it there")

    def read(self, progress: Progress) -> None:
        """Read every cloud. Raises DataError for one that is broken."""
        random = np.random.Generator(np.random.PCG64(0))
        for shape in self._each(progress, "reading the clouds"):
            for view in range(self.views):
                self.pair(shape, view, random)

    def _each(self, progress: Progress, doing: str) -> Iterator[int]:
        for shape in range(len(self.complete)):
            yield shape
            if shape % 100 == 99 or shape + 1 == len(self.complete):
                progress(f"{doing} of {self.listed.name}", shape + 1, len(self.complete))


class PcnFiles(Files):
    """PCN's files: each view of a cloud has its own."""

    def pair(self, shape: int, view: int, random: np.random.Generator) -> Pair:
        return read_cloud(self._view(shape, view)), read_cloud(self.complete[shape])

    def files(self, shape: int) -> list[Path]:
        return [self.complete[shape], *(self._view(shape, view) for view in range(self.views))]

    def _view(self, shape: int, view: int) -> Path:
        taxonomy, name = self.complete[shape].parts[-2:]
        folder = self.complete[shape].parents[2] / "partial" / taxonomy
        file = folder / name.removesuffix(".pcd") / f"{view:02d}.pcd"
        if self.views == 1 and not file.exists() and (folder / name).exists():
            return folder / name
        return file


class ShapeNet55Files(Files):
    """ShapeNet-55's: a view is what is left of a cloud; each time another one, if `random` is."""

    def pair(self, shape: int, view: int, random: np.random.Generator) -> Pair:
        file = self.complete[shape]
        cloud = read_cloud(file)
        cloud = cloud - cloud.mean(0)
        radius = np.sqrt(np.square(cloud).sum(1).max())
        if not radius > 0:
            raise DataError(f"{file}:1: record 1: all points are one", "put the right file there")
        cloud = cloud / radius
        return crop(cloud, random), cloud


def crop(cloud: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """The points of (n, 3) without the farthest from a viewpoint on the unit sphere, a quarter to three quarters."""
    direction = random.standard_normal(3).astype(np.float32)
    direction /= np.linalg.norm(direction)
    missing = random.integers(len(cloud) // 4, 3 * len(cloud) // 4, endpoint=True)
    return cloud[np.square(cloud - direction).sum(1).argsort()[: len(cloud) - missing]]


def pcn_files(root: Path, views: int) -> tuple[tuple[str, ...], dict[str, PcnFiles]]:
    """Categories, and the shapes of each split, of a folder laid out like PCN's. Raises DataError."""
    listed = root / "PCN.json"
    if not listed.is_file() and not data_sources.files_in(root, "*.json"):
        cure = "put GRNet's release of PCN there: PCN.json and folders of .pcd files; lmdb and h5 files are not read"
        raise DataError(f"{root}:1: No such file, *.json", cure)
    listed = listed if listed.is_file() else data_sources.only_file(root, "*.json")
    categories = _categories(listed)
    splits = {}
    for split in SPLITS:
        entries = _in_turn({name: category[split] for name, category in categories.items()})
        folder = root / split / "complete"
        files = [folder / categories[name]["taxonomy_id"] / f"{model}.pcd" for name, model in entries]
        labels = _labels([name for name, _ in entries], list(categories))
        splits[split] = PcnFiles(listed, files, labels, views if split == "train" else 1)
    return tuple(categories), splits


def shapenet55_files(root: Path, data_seed: int) -> tuple[tuple[str, ...], dict[str, ShapeNet55Files]]:
    """Categories, and the shapes of each split, of a folder laid out like ShapeNet-55's. Raises DataError."""
    folder = root / "ShapeNet-55" if (root / "ShapeNet-55").is_dir() else root
    lists = {split: _cloud_names(folder / f"{split}.txt") for split in ("train", "test")}
    if both := sorted(set(lists["train"]) & set(lists["test"])):
        problem = f"{len(both)} shapes are in both train.txt and test.txt, {both[0]} among them"
        raise DataError(f"{folder}: {problem}", "put the published lists there")

    def shuffle_key(name: str) -> bytes:
        return hashlib.blake2b(f"{data_seed}:{name}".encode(), digest_size=16).digest()

    ordered = sorted(lists["train"], key=shuffle_key)
    held = len(ordered) // 10
    names = {"train": ordered[held:], "val": ordered[:held], "test": lists["test"]}
    categories = sorted({name.split("-", 1)[0] for some in lists.values() for name in some})
    splits = {}
    for split in SPLITS:
        some = names[split]
        entries = _in_turn({c: [name for name in some if name.startswith(f"{c}-")] for c in categories})
        files = [root / "shapenet_pc" / name for _, name in entries]
        listed = folder / ("test.txt" if split == "test" else "train.txt")
        splits[split] = ShapeNet55Files(listed, files, _labels([category for category, _ in entries], categories))
    return tuple(categories), splits


def _categories(listed: Path) -> dict[str, dict[str, Any]]:
    """Categories by name, of a JSON list. Raises DataError."""
    try:
        with open_regular(listed, follow=True) as stream:
            given = json.loads(data_sources.content(stream, str(listed)))
    except DataError:
        raise
    except (OSError, ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 1)
        raise DataError(f"{listed}:{line}: no list of categories ({data_sources.one_line(error)[:80]})") from error
    if not isinstance(given, list) or not given:
        raise DataError(f"{listed}:1: no list of categories", "put PoinTr's PCN.json there")
    categories: dict[str, dict[str, Any]] = {}
    for number, category in enumerate(given, 1):
        if wrong := _wrong(category, categories):
            raise DataError(f"{listed}: category {number}: {wrong}", "put PoinTr's PCN.json there")
        categories[category["taxonomy_name"]] = category
    return categories


def _wrong(category: Any, earlier: Mapping[str, Any]) -> str | None:
    """What is wrong with an entry of the list."""
    if not isinstance(category, dict):
        return "no mapping"
    for key, form in (("taxonomy_id", NAME), ("taxonomy_name", TITLE)):
        if not isinstance(category.get(key), str) or not form.fullmatch(category[key]):
            return f"{key} {str(category.get(key))[:40]!r} is no name"
    if category["taxonomy_name"] in earlier:
        return f"a second {category['taxonomy_name']}"
    for split in SPLITS:
        models = category.get(split)
        if not isinstance(models, list):
            return f"no list of models to {split}"
        for number, model in enumerate(models, 1):
            if not isinstance(model, str) or not NAME.fullmatch(model):
                return f"model {number} to {split}, {str(model)[:40]!r}, is no name"
    return None


def _cloud_names(listed: Path) -> list[str]:
    names = []
    for number, line in data_sources.records_of(listed):
        name = line.decode(errors="replace").strip()
        if not CLOUD.fullmatch(name):
            raise DataError(f"{listed}:{number}: {name[:60]!r} is no <taxonomy>-<model>.npy")
        names.append(name)
    return names


def _in_turn(of_categories: Mapping[str, Sequence[str]]) -> list[tuple[str, str]]:
    """(category, model): the first of each, the second of each, ..."""
    places = [(at, order) for order, models in enumerate(of_categories.values()) for at in range(len(models))]
    names = list(of_categories)
    return [(names[order], of_categories[names[order]][at]) for at, order in sorted(places)]


def _labels(of_shapes: Sequence[str], categories: Sequence[str]) -> np.ndarray:
    number = {name: i for i, name in enumerate(categories)}
    return np.array([number[name] for name in of_shapes], np.int64)


def _names(folder: Path) -> frozenset[str]:
    try:
        return frozenset(os.listdir(folder))
    except OSError:
        return frozenset()
