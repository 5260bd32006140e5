"""Classification of a user's own texts: one class per row of a file.

Classes are the different labels, as text, in sorted order. Baselines: the most frequent class, naive Bayes and logistic
regression on n-grams, of bytes up to 5, of words and of a tokenizer's pieces up to 2.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from tasks.base import DataInfo, Predictor
from tasks.checks import DataError, Progress
from tasks.data.own_files import text_of
from tasks.data.rows import tables
from tasks.data.sequences import OwnSequences
from tasks.data_task import SYNTHETIC
from tasks.examples import Examples
from tasks.file_digests import path_identity
from tasks.lra import synthetic_text
from tasks.lra.ngram_counts import ngram_fits

MOST_CLASSES = 1000
FEW_CLASSES = 20  # so many may be classes in any number of rows
LONGEST_LABEL = 200  # characters
FEW_UNSEEN = 0.1  # of the test rows: so many may have a class that training lacks
BYTES, PIECES = 5, 2  # of an n-gram


@dataclass(kw_only=True, eq=False, repr=False)
class Classification(OwnSequences):
    """`text` and `label` name columns of the files at `path`. A label is a text or a whole number."""

    name = "data/classification"
    generator = synthetic_text
    settings = {"distance": 16, "negated": 0.5, "words": synthetic_text.MOST_WORDS}  # noqa: RUF012

    text: str = "text"
    label: str = "label"

    def columns(self) -> dict[str, Sequence[str]]:
        return {"text": [self.text], "label": [self.label]}

    def entry(self, cells: tuple[Any, ...], where: str) -> tuple[bytes, int]:
        label = label_of(cells[1], self.label, where)
        return text_of(cells[0], self.text, where).encode(), self._numbers[label]

    def _read(self, progress: Progress) -> dict[str, Examples]:
        self._numbers = {label: number for number, label in enumerate(self.class_names)}  # once, not row by row
        return super()._read(progress)

    def load(self) -> DataInfo:
        """Test rows of a class that training lacks are counted; many of them are refused."""
        info = super().load()
        labels = self._used["test"].labels
        unseen = labels[~np.isin(labels, self._used["train"].labels)]
        if len(unseen) > FEW_UNSEEN * len(labels):
            names = ", ".join(repr(self.class_name(number)) for number in np.unique(unseen)[:5].tolist())
            problem = f"column '{self.label}': {len(unseen)} test rows have a class that no training row has: {names}"
            raise DataError(f"{self.path}: {problem}", "correct these labels, or put such rows into train")
        return replace(info, sizes=info.sizes | ({"without_their_class": len(unseen)} if len(unseen) else {}))

    @property
    def class_names(self) -> tuple[str, ...]:
        """The labels, in the order of their numbers. Raises DataError."""
        if self.source == SYNTHETIC:
            return ("0", "1")
        if self.path is None:
            self.check_source()  # says what is missing
        return labels_in(self.path, self.label, path_identity(self.path, self.reads))

    def class_name(self, number: int) -> str:
        return self.class_names[number]

    @property
    def classes(self) -> int:
        return len(self.class_names)

    def baselines(self, seen: int | None = None) -> Mapping[str, Callable[[], Predictor]]:
        most, unit = (BYTES, "byte") if self.tokenizer == "bytes" else (PIECES, "token")
        return {**super().baselines(seen), **ngram_fits(self, most, unit, seen)}


def label_of(value: Any, column: str, where: str) -> str:
    """Raises DataError unless a label is a text that is not empty, a whole number or a truth value."""
    if not isinstance(value, (str, int)) or not (name := str(value).strip()):
        shown = "empty" if value in (None, "") else f"{str(value)[:20]!r}, no class"
        raise DataError(f"{where}: column '{column}' is {shown}", "put a class there, or use task=data/regression")
    if len(name) > LONGEST_LABEL:
        raise DataError(f"{where}: column '{column}' has {len(name):,} letters, a class at most {LONGEST_LABEL}")
    return name


@lru_cache(maxsize=16)
def labels_in(path: Path, column: str, identity: str) -> tuple[str, ...]:
    """The different labels of all rows, sorted; read once per content of the files. Raises DataError."""
    names: set[str] = set()
    rows = (row for some in tables(path).values() for table in some for row in table.rows((column,)))
    count = 0
    for where, (value,) in rows:
        count += 1
        names.add(label_of(value, column, where))
        if len(names) > MOST_CLASSES:
            raise DataError(f"{where}: column '{column}' has more than {MOST_CLASSES} different values: no classes")
    if len(names) > max(FEW_CLASSES, count // 2):
        cure = "name the column with the class, or use task=data/regression for numbers"
        raise DataError(
            f"{path}: column '{column}' has {len(names)} different values in {count} rows: no classes", cure
        )
    if len(names) < 2:
        raise DataError(f"{path}: column '{column}' has one value alone, {next(iter(names))[:20]!r}")
    return tuple(sorted(names, key=lambda name: (len(name), name) if name.isdigit() else (0, name)))
