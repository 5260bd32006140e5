"""Which split a row belongs to, and which test examples are copies of training examples.

Files named train, val (valid, validation, dev) and test are those splits; `split_column` names a column
with these words; otherwise rows are divided by `fractions`. Rows of equal content go to the same split, so a division
makes no copies, and it depends on the contents and `data_seed` alone, not on the order of the rows. Where there is no
val, `fractions[1]` of the training rows are held out in the same way.
"""

import hashlib
from collections.abc import Iterable, Sequence

import numpy as np

from tasks.base import Batch, Split
from tasks.checks import DataError
from tasks.data.rows import ALL, SPLIT_NAMES
from tasks.data_task import SPLITS

TOLERANCE = 1e-6


def check_fractions(fractions: Sequence[float]) -> None:
    """Raises ValueError unless they are three positive shares of 1."""
    if len(fractions) != len(SPLITS) or min(fractions) <= 0 or abs(sum(fractions) - 1) > TOLERANCE:
        raise ValueError(f"fractions={list(fractions)} are not three positive shares of 1, of train, val and test")


def split_in(value: object, column: str, where: str) -> str:
    """The split that a row names in `split_column`. Raises DataError."""
    name = str(value).strip().lower()
    if name not in SPLIT_NAMES:
        raise DataError(f"{where}: column '{column}': {str(value)[:20]!r} is none of {', '.join(SPLIT_NAMES)}")
    return SPLIT_NAMES[name]


def divided(
    splits: Sequence[str], contents: Sequence[bytes], fractions: Sequence[float], seed: int, where: object
) -> list[str]:
    """The split of each row: `train`, `val` or `test`, where `splits` says `all`, or where val is missing.

    Raises DataError if a split is empty.
    """
    named = list(splits)
    if ALL in named:
        named = shared_out(
            named, contents, dict(zip(("test", "val"), (fractions[2], fractions[1]), strict=True)), ALL, seed
        )
    elif "val" not in named:
        named = shared_out(named, contents, {"val": fractions[1]}, "train", seed)
    if empty := [split for split in SPLITS if split not in named]:
        raise DataError(f"{where}: no rows for {empty[0]}", arguments="task.fractions=[..] or task.split_column=..")
    return named


def shared_out(
    named: Sequence[str], contents: Sequence[bytes], shares: dict[str, float], source: str, seed: int
) -> list[str]:
    """The rows of `source` in the order of a digest of their content: the first ones to `shares`, the rest train."""
    salt = f"{seed}:".encode()
    rows = [row for row, split in enumerate(named) if split == source]
    order = {row: hashlib.blake2b(salt + contents[row], digest_size=16).digest() for row in rows}
    rows.sort(key=order.__getitem__)
    limits, total = [], 0.0
    for split, share in shares.items():
        total += share
        limits.append((split, max(1, round(total * len(rows)))))
    result = list(named)
    split = ""
    for number, row in enumerate(rows):
        if not number or order[row] != order[rows[number - 1]]:  # equal contents stay together
            split = next((split for split, limit in limits if number < limit), "train")
        result[row] = split
    return result


def digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=16).digest()


def copied(train: Iterable[bytes], test: Iterable[bytes]) -> np.ndarray:
    """int64: the numbers of the test contents that are a training content."""
    seen = {digest(content) for content in train}
    return np.array([number for number, content in enumerate(test) if digest(content) in seen], np.int64)


class Chosen(Split):
    """Some examples of a split, under numbers of their own."""

    def __init__(self, split: Split, numbers: np.ndarray):
        self.whole, self.numbers = split, numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def batch(self, indices: Sequence[int]) -> Batch:
        index = self.checked(indices)
        return self.whole.batch(self.numbers[index])

    def lengths(self) -> np.ndarray | None:
        lengths = self.whole.lengths()
        return None if lengths is None else lengths[self.numbers]
