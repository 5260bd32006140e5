"""Where the clouds of a split are: files that a list names.

The shapes of a split alternate between the categories, so that the first few are of all.
`pair(shape, view)` gives one as it is stored, (partial (n, 3), complete (m, 3)) float32, and reads its files.

PCN (Yuan et al., 2018), as PoinTr's code reads it: `<split>/complete/<taxonomy>/<model>.pcd`, views of it at
`<split>/partial/<taxonomy>/<model>/00.pcd` and on (one, in the first release `<model>.pcd`, of those that are not to
train), and a JSON list of categories: taxonomy_id, taxonomy_name, and the models of train, val and test.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from tasks import data_sources, file_digests
from tasks.checks import DataError, Progress
from tasks.completion.cloud_files import read_cloud
from tasks.data_task import SPLITS
from tasks.regular_files import open_regular

Name = Annotated[str, Field(pattern=r"^\w[\w.-]*$")]  # cannot lead out of the folder


class Category(BaseModel):
    """An entry of the list: the names of a category and of its models in each split."""

    taxonomy_id: Name
    taxonomy_name: Annotated[str, Field(pattern=r"^\w[\w., -]*$")]
    train: list[Name]
    val: list[Name]
    test: list[Name]


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

    def check(self, progress: Progress) -> None:
        """Raises DataError for a missing file."""
        for shape in self._each(progress, "looking for the files"):
            for file in self.files(shape):
                if not file.exists():
                    raise DataError(f"{file}:1: No such file, but {self.listed} lists it", "put it there")

    def read(self, progress: Progress) -> None:
        """Read every cloud. Raises DataError for one that is broken."""
        for shape in self._each(progress, "reading the clouds"):
            for view in range(self.views):
                self.pair(shape, view)

    def _each(self, progress: Progress, doing: str) -> Iterator[int]:
        for shape in range(len(self.complete)):
            yield shape
            if shape % 100 == 99 or shape + 1 == len(self.complete):
                progress(f"{doing} of {self.listed.name}", shape + 1, len(self.complete))

    def pair(self, shape: int, view: int) -> tuple[np.ndarray, np.ndarray]:
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


def pcn_files(root: Path, views: int) -> tuple[tuple[str, ...], dict[str, Files]]:
    """Categories, and the shapes of each split, of a folder laid out like PCN's. Raises DataError."""
    listed = root / "PCN.json"
    if not listed.is_file() and not data_sources.files_in(root, "*.json"):
        cure = "put GRNet's release of PCN there: PCN.json and folders of .pcd files; lmdb and h5 files are not read"
        raise DataError(f"{root}:1: No such file, *.json", cure)
    listed = listed if listed.is_file() else data_sources.only_file(root, "*.json")
    categories = _categories(listed)
    splits = {}
    for split in SPLITS:
        of_category = [(category.taxonomy_id, getattr(category, split)) for category in categories.values()]
        # the first of each category, the second of each, ...
        places = sorted((at, label) for label, (_, models) in enumerate(of_category) for at in range(len(models)))
        folders = [root / split / "complete" / taxonomy for taxonomy, _ in of_category]
        files = [folders[label] / f"{of_category[label][1][at]}.pcd" for at, label in places]
        labels = np.array([label for _, label in places], np.int64)
        splits[split] = Files(listed, files, labels, views if split == "train" else 1)
    return tuple(categories), splits


def _categories(listed: Path) -> dict[str, Category]:
    """Categories by name, of a JSON list. Raises DataError."""
    cure = "put PoinTr's PCN.json there"
    with data_sources.refusing(f"{listed}:1", cure), open_regular(listed, follow=True) as stream:
        given = data_sources.content(stream, str(listed))
    try:
        categories = TypeAdapter(list[Category]).validate_json(given)
    except ValidationError as error:
        first = error.errors()[0]
        entry = "".join(f" {part}" if isinstance(part, str) else f" {part + 1}" for part in first["loc"])
        raise DataError(f"{listed}: category{entry}: {data_sources.one_line(first['msg'])[:120]}", cure) from error
    by_name = {category.taxonomy_name: category for category in categories}
    if not by_name or len(by_name) < len(categories):
        raise DataError(f"{listed}: {len(categories)} categories with {len(by_name)} different names", cure)
    return by_name
