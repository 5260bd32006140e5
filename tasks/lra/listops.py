"""ListOps: the value of a nested expression of up to 2000 tokens, ten classes (Tay et al., Long Range Arena, 2021).

Source of the data: LRA's files (`lra_release/listops-1000/basic_{train,val,test}.tsv`) or LRA's generator
(google-research/long-range-arena `lra_benchmarks/data/listops.py`, see `listops_generator`). 96,000 / 2,000 / 2,000
examples, accuracy in percent.

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

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from tasks import data_sources, file_digests
from tasks.base import DataInfo, FinalEvaluation, Predictor
from tasks.checks import DataError, Progress
from tasks.data_sources import RELEASE
from tasks.data_task import SLICE, SPLITS, SYNTHETIC, CachedSet, Source
from tasks.examples import Examples, content_hash, fingerprint, pack_bytes
from tasks.lra import listops_generator as generator
from tasks.lra.classification import SequenceClassification, SequenceSplit, split_off
from tasks.lra.classifiers import Lookup
from tasks.lra.fitted import at_most, boosted
from tasks.lra.listops_generator import Grammar
from tasks.seq2seq.pairs import padded

GENERATED, OFFICIAL = "generated", "official"
PAPER = {"train": 96_000, "val": 2_000, "test": 2_000}
DEPTHS = 4  # the root's arguments are at the first one; symbols below the last one count as of the last one
DIGITS, OPERATORS = 10, generator.END_ID - generator.FIRST_OPERATOR
COUNTED = DIGITS + OPERATORS
FIT_ON = 64_000  # expressions for boosted trees, whose fit then takes less than a minute on one core


@dataclass(kw_only=True, eq=False, repr=False)
class ListOps(SequenceClassification):
    """LRA ListOps. `path` is the folder of the official files, or of the same files with fewer lines (`slice`).

    `max_length` bounds generated expressions (strictly) and cuts all others; the other bounds and `data_seed` concern
    generated data. `workers` None: one process per core, fewer for small sets. `final_lengths`: after the test,
    expressions of up to each of these lengths are scored.
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
    final_lengths: Sequence[int] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for length in self.final_lengths or ():
            if length <= self.max_length + 1:
                raise ValueError(f"final_lengths={length} does not exceed max_length={self.max_length}")

    def sources(self) -> dict[str, Source]:
        return {
            GENERATED: Source(self._generate, self._settings, check=self.grammar),
            OFFICIAL: self.path_source(self._read, self._identity, official=True),
            SLICE: self.path_source(self._read, self._identity),
        }

    def grammar(self) -> Grammar:
        """The grammar of generated expressions. Raises ValueError for bounds that no expression keeps."""
        return Grammar(self.min_length, self.max_length, self.max_depth, self.max_args)

    def _settings(self) -> dict[str, Any]:
        return {"generator_version": generator.VERSION, **vars(self.grammar()), **self.sizes}

    def _generate(self, progress: Progress) -> dict[str, Examples]:
        examples = self._expressions(sum(self.sizes.values()), self.grammar(), progress)
        return split_off(examples, self.sizes["test"], self.sizes["val"])

    def _expressions(self, count: int, grammar: Grammar, progress: Progress) -> Examples:
        workers = self.worker_count(count // 20_000)  # starting a process costs ~10,000 examples
        return generator.generate(count, grammar, seed=self.data_seed, workers=workers, progress=progress)

    def longer(self, length: int) -> Grammar:
        """The grammar of a final evaluation: more tokens than any training example, at least half of `length`."""
        return replace(self.grammar(), min_length=max(self.max_length, length // 2) - 1, max_length=length)

    def cached_sets(self) -> list[CachedSet]:
        def longer_set(length: int) -> CachedSet:
            grammar = self.longer(length)
            settings = {"generator_version": generator.VERSION, **vars(grammar), "test": self.test}
            parameters = {"source": GENERATED, "data_seed": self.data_seed, **settings}
            return CachedSet(parameters, lambda progress: {"test": self._expressions(self.test, grammar, progress)})

        return [*super().cached_sets(), *map(longer_set, self.final_lengths or ())]

    def load(self) -> DataInfo:
        info, sets = super().load(), self.cached_sets()[1:]
        self._longer: dict[str, SequenceSplit] = {}
        if not sets:
            return info
        longer = {f"length_{n}": self.open(cached)["test"] for n, cached in zip(self.final_lengths, sets, strict=True)}
        lengths = zip(longer.items(), self.final_lengths, strict=True)
        self._longer = {name: self.sequences(part, length) for (name, part), length in lengths}
        sizes = info.sizes | {name: part.count for name, part in longer.items()}
        return replace(
            info, sizes=sizes, fingerprint=fingerprint(map(content_hash, [*self._used.values(), *longer.values()]))
        )

    def final_evaluations(self) -> Sequence[FinalEvaluation]:
        return [FinalEvaluation(name, split) for name, split in self._longer.items()]

    def encode(self, inputs: Sequence[Any]) -> Tensor:
        """Expressions such as `[MAX 2 [MIN 4 7 ] 9 ]`, with a space between symbols."""
        rows = []
        for text in inputs:
            try:
                tokens = generator.parse(str(text))
                generator.evaluate(tokens)
            except ValueError as error:
                raise DataError(f"{str(text)[:20]!r}: {error}", "type an expression: [MAX 2 [MIN 4 7 ] 9 ]") from None
            rows.append(np.array([*tokens, *([] if self.eos is None else [self.eos])]))
            if len(rows[-1]) > self.max_length:
                raise DataError(
                    f"an expression of {len(rows[-1])} tokens, but the model reads {self.max_length} at most"
                )
        return padded(rows, generator.PAD)

    def baselines(self, seen: int | None = None) -> Mapping[str, Callable[[], Predictor]]:
        """Most frequent values: of the root's operator, and of its value on its digit arguments; boosted
        counts, also with this value."""
        train, root = self.split("train"), lambda tokens: tokens[:, 0]
        keys = {"root_operator": (self.symbols, root), "root_operator_on_digits": (11 * self.symbols, root_on_digits)}
        lookups = {name: partial(Lookup.fitted, train, self.classes, *key, most=seen) for name, key in keys.items()}

        features = {
            "boosted_counts_per_depth": depth_counts,
            "boosted_counts_and_root_on_digits": lambda t: np.column_stack([depth_counts(t), root_on_digits(t) % 11]),
        }
        most = at_most(FIT_ON, seen)
        fitted = {name: partial(self.fitted, some, boosted, most) for name, some in features.items()}
        return {**super().baselines(seen), **lookups, **fitted}

    def _files(self) -> dict[str, Path]:
        return {name: self.path / f"basic_{name}.tsv" for name in SPLITS}

    def _identity(self) -> dict[str, Any]:
        return file_digests.identities(self._files())

    def _read(self, progress: Progress) -> dict[str, Examples]:
        return {name: read_tsv(file, progress) for name, file in self._files().items()}

    def origin(self, complete: bool, part: str | None = None) -> str:
        if self.source == GENERATED:
            return "full" if self.sizes == PAPER and self.grammar() == generator.LRA else SYNTHETIC
        return super().origin(complete, part)


def depth_counts(tokens: np.ndarray) -> np.ndarray:
    """Expressions (B, N) -> (B, D (S + 4) + operators + 2) float32, which tell nothing of the order of symbols.

    Columns: how often each of the S digits and operators stands at each of D depths; the least, largest and middle
    digit of each depth and their sum modulo 10, -1 where there is none; the root's operator, one-hot; the number of
    tokens; the largest depth.
    """
    opens = (tokens >= generator.FIRST_OPERATOR) & (tokens < generator.END_ID)
    depth = np.cumsum(opens, 1) - np.cumsum(tokens == generator.END_ID, 1) - opens  # 0 is the root alone
    counted = (tokens >= generator.FIRST_DIGIT) & (tokens < generator.END_ID) & (depth > 0)
    row, place = np.nonzero(counted)
    place_depth = np.clip(depth[row, place], 1, DEPTHS) - 1
    cell = (row * DEPTHS + place_depth) * COUNTED + tokens[row, place] - generator.FIRST_DIGIT
    counts = np.bincount(cell, minlength=len(tokens) * DEPTHS * COUNTED).reshape(len(tokens), DEPTHS, COUNTED)
    root = tokens[:, :1] == generator.FIRST_OPERATOR + np.arange(OPERATORS)
    length, deepest = (tokens > 0).sum(1), np.where(counted, depth, 0).max(1, initial=0)
    values = digit_values(counts[..., :DIGITS])
    parts = [counts.reshape(len(tokens), -1), values.reshape(len(tokens), -1), root, length[:, None], deepest[:, None]]
    return np.concatenate(parts, 1).astype(np.float32)


def digit_values(counts: np.ndarray) -> np.ndarray:
    """Counts of digits (..., 10) -> (..., 4): least, largest and middle digit, sum modulo 10; -1 without digits."""
    total, up_to = counts.sum(-1), counts.cumsum(-1)
    middle = (up_to <= ((total - 1) // 2)[..., None]).sum(-1)
    values = [(counts > 0).argmax(-1), 9 - (counts[..., ::-1] > 0).argmax(-1), middle, counts @ np.arange(DIGITS) % 10]
    return np.where(total[..., None] > 0, np.stack(values, -1), -1)


def root_on_digits(tokens: np.ndarray) -> np.ndarray:
    """Expressions (B, N) -> 11 x the root's symbol + its value on the digits among its arguments, 10 without any."""
    opens = (tokens >= generator.FIRST_OPERATOR) & (tokens < generator.END_ID)
    closed = np.cumsum(tokens == generator.END_ID, 1)
    depth = np.cumsum(opens, 1) - closed
    argument = (depth == 1) & (tokens >= generator.FIRST_DIGIT) & (tokens < generator.FIRST_OPERATOR)
    counts = [(argument & (tokens == generator.FIRST_DIGIT + digit)).sum(1) for digit in range(DIGITS)]
    counts = np.stack(counts, 1)  # (B, 10)
    least, largest, middle, total = digit_values(counts).T
    upper = (counts.cumsum(1) <= counts.sum(1, keepdims=True) // 2).sum(1)
    values = {"[MIN": least, "[MAX": largest, "[MED": (middle + upper) // 2, "[SM": total}
    root, value = tokens[:, 0], np.full(len(tokens), 10)
    for operator, result in values.items():
        value = np.where((root == generator.IDS[operator]) & (least >= 0), result, value)
    return 11 * root + value


def read_tsv(file: Path, progress: Progress) -> Examples:
    """Expressions and labels of a text file, whose first line is `Source TAB Target`.

    Every label is checked against the evaluator. Raises DataError, naming file and line.
    """

    def rows() -> Iterator[tuple[bytes, int]]:
        number = 0
        for number, line in data_sources.records_of(file):
            if number == 1:
                if line != b"Source\tTarget":
                    raise DataError(f"{file}:1: the header is not 'Source TAB Target'", "put LRA's file there")
                continue
            text = data_sources.decoded(line, f"{file}:{number}")
            try:
                yield example(text)
            except ValueError as error:
                raise DataError(f"{file}:{number}: {error}", "put the whole file there") from None
            if not number % 1000:
                progress(f"reading {file.name}", number, max(number, PAPER["train"]))
        if number <= 1:
            raise DataError(f"{file}:1: no examples", "put the whole file there")

    return pack_bytes(rows())


def example(line: str) -> tuple[bytes, int]:
    """Tokens and value of a line. Raises ValueError."""
    columns = line.split("\t")
    if len(columns) != 2:
        raise ValueError(f"{len(columns)} columns instead of 2")
    text, label = columns
    if label not in generator.SYMBOLS[generator.FIRST_DIGIT : generator.FIRST_OPERATOR]:
        raise ValueError(f"label {label[:20]!r} is not a digit")
    tokens = generator.parse(text)
    value = generator.evaluate(tokens)
    if value != int(label):
        raise ValueError(f"label {label}, but the expression is {value}")
    return tokens, value
