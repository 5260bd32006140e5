"""ListOps: the value of a nested expression of up to 2000 tokens, ten classes (Tay et al., Long Range Arena, 2021).

Source of the data: LRA's files (`lra_release/listops-1000/basic_{train,val,test}.tsv`), LRA's generator
(google-research/long-range-arena `lra_benchmarks/data/listops.py`, see `listops_generator`), or a slice of the older
set of Nangia and Bowman. 96,000 / 2,000 / 2,000 examples, accuracy in percent.

Our readings:
- Parentheses are dropped and ids fixed (LRA's input pipeline): 15 symbols, padding and unknown make 17 rows.
  Sequences are cut at `max_length` and padded to the longest of their batch, not to 2000: a backbone that counts
  padding (Skyformer's mean over 2048 positions) pads further itself.
- Test and validation examples are the first that the generator gives, so they stay the same when fewer training
  examples are asked for.
- The classes are uneven (0 and 9 have 17 % each): always answering the training majority is the chance level. Four
  published rows are at it (X9 for the Performer: two random features).
- `append_eos`: fairseq's dictionary, which Luna's code uses, keeps an end symbol (X13): id 17, inside `max_length`.
"""

import os
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tasks import sources
from tasks.base import DataError, Progress, at_least
from tasks.cache import Examples
from tasks.lra import listops_generator as generator
from tasks.lra.bytes import pack
from tasks.lra.classification import SPLITS, SequenceClassification, cut
from tasks.lra.listops_generator import Grammar
from tasks.sources import RELEASE, SLICE, SYNTHETIC, Source

GENERATED, OFFICIAL = "generated", "official"
PAPER = {"train": 96_000, "val": 2_000, "test": 2_000}
SLICE_FILE = "listops_d20s_test.tsv"  # or .tsv.gz


@dataclass(kw_only=True, eq=False, repr=False)
class ListOps(SequenceClassification):
    """LRA ListOps. `path` is the folder of the official files or of a slice.

    `max_length` bounds generated expressions (strictly) and cuts all others; the other bounds and `data_seed` concern
    generated data (the seed also shuffles a slice before it is split 80/10/10). `workers` None: one process a core,
    fewer for small sets.
    """

    name = "lra/listops"
    release = f"the folder listops-1000 of {RELEASE}"
    classes = 10
    symbols = generator.UNKNOWN + 1
    published = (PAPER["train"] + PAPER["val"], PAPER["test"])

    source: str = GENERATED
    max_length: int = 2000
    min_length: int = 500
    max_depth: int = 10
    max_args: int = 10
    train: int = PAPER["train"]
    val: int = PAPER["val"]
    test: int = PAPER["test"]
    workers: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(1, workers=self.workers)

    def sources(self) -> dict[str, Source]:
        return {
            GENERATED: Source(self._settings, self._generate, check=self.grammar),
            OFFICIAL: Source(self._identity, self._official, takes_path=True, needs_path=True),
            SLICE: Source(self._identity, self._slice, takes_path=True, needs_path=True),
        }

    def grammar(self) -> Grammar:
        """That of generated expressions. Raises ValueError for bounds that none keeps."""
        return Grammar(self.min_length, self.max_length, self.max_depth, self.max_args)

    def _settings(self) -> dict[str, Any]:
        return {"generator_version": generator.VERSION, **vars(self.grammar()), **self.sizes}

    def _generate(self, progress: Progress) -> dict[str, Examples]:
        count, seed = sum(self.sizes.values()), self.data_seed
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        workers = self.workers or max(1, min(cores, count // 20_000))  # starting a process costs ~10,000 examples
        try:
            examples = generator.generate(count, self.grammar(), seed=seed, workers=workers, progress=progress)
        except BrokenProcessPool as error:
            raise DataError(f"a generating process died (memory?); try task.workers=1 with {self.hint}") from error
        except ValueError as error:
            raise DataError(f"{error}; ask for fewer or upcast the bounds, then {self.hint}") from error
        return cut(examples, self.sizes["test"], self.sizes["val"])

    def _files(self) -> dict[str, Path]:
        if self.source == OFFICIAL:
            return {name: self.path / f"basic_{name}.tsv" for name in SPLITS}
        plain = self.path / SLICE_FILE
        return {"all": plain if plain.exists() else plain.with_suffix(".tsv.gz")}

    def _identity(self) -> dict[str, Any]:
        return {name: sources.identity(file, self.hint) for name, file in self._files().items()}

    def _official(self, progress: Progress) -> dict[str, Examples]:
        return {name: read_tsv(file, self.hint, progress, header=True) for name, file in self._files().items()}

    def _slice(self, progress: Progress) -> dict[str, Examples]:
        file = self._files()["all"]
        examples = read_tsv(file, self.hint, progress, header=False)
        tenth = examples.count // 10
        if not tenth:
            few = f"{examples.count} examples cannot be split 80/10/10"
            raise DataError(f"{file}:{examples.count}: {few}; give ten or more, then {self.hint}")
        # the file is sorted by length
        bits = np.random.PCG64(np.random.SeedSequence([self.data_seed]))
        order = np.argsort(bits.random_raw(examples.count), kind="stable")
        return cut(examples.take(order.tolist()), tenth, tenth)

    def _origin(self, complete: bool) -> str:
        if self.source == GENERATED:
            return "full" if self.sizes == PAPER and self.grammar() == generator.LRA else SYNTHETIC
        return super()._origin(complete)


def read_tsv(file: Path, hint: str, progress: Progress, *, header: bool) -> Examples:
    """Expressions and labels of a (gzipped) text file: `Source TAB Target` with header, or `label TAB expression`.

    Every label is checked against the evaluator. Raises DataError, naming file and line.
    """

    def rows() -> Iterator[tuple[bytes, int]]:
        number = 0
        for number, line in sources.lines_of(file, hint):
            if number == 1 and header:
                if line != b"Source\tTarget":
                    raise DataError(
                        f"{file}:1: the header is not 'Source TAB Target'; put LRA's file there, then {hint}"
                    )
                continue
            try:
                yield example(line, label_first=not header)
            except ValueError as error:
                raise DataError(f"{file}:{number}: {error}; put the whole file there, then {hint}") from None
            if not number % 1000:
                progress(f"reading {file.name}", number, max(number, PAPER["train"]))
        if number <= header:
            raise DataError(f"{file}:1: no examples; put the whole file there, then {hint}")

    return pack(rows())


def example(line: bytes, *, label_first: bool) -> tuple[bytes, int]:
    """Tokens and value of a line. Raises ValueError."""
    try:
        columns = line.decode("utf-8").split("\t")
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start + 1} is not UTF-8") from None
    if len(columns) != 2:
        raise ValueError(f"{len(columns)} columns instead of 2")
    label, text = columns if label_first else reversed(columns)
    if label not in generator.SYMBOLS[generator.FIRST_DIGIT : generator.FIRST_OPERATOR]:
        raise ValueError(f"label {label[:20]!r} is not a digit")
    tokens = generator.parse(text)
    value = generator.evaluate(tokens)
    if value != int(label):
        raise ValueError(f"label {label}, but the expression is {value}")
    return tokens, value
