"""Batches in an order that is a function of the seed alone, from any position on.

The training stream is the endless concatenation of the split's shuffles, one per epoch; update t takes its examples
[t B, (t + 1) B). A run that was killed asks for the stream from its last saved position and sees what it would have
seen. Evaluation goes through a split once, in order, every example exactly once whatever the number of devices.
"""

from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from tasks.base import Batch, Split


class TrainLoader:
    """Micro-batches of one device. Lightning saves and restores its position through `state_dict`.

    Sized, so that Lightning does not read ahead of what it has trained on: the saved position is the trained one.
    """

    def __init__(
        self, split: Split, *, steps: int, batch_size: int, micro: int, seed: int, rank: int = 0, world: int = 1
    ):
        if len(split) == 0:
            raise ValueError("the training split is empty")
        if batch_size % (micro * world):
            raise ValueError(f"batch_size {batch_size} is not micro_batch_size {micro} x {world} devices x an integer")
        self.split, self.seed, self.micro = split, seed, micro
        self.rank, self.world = rank, world
        self.total = steps * batch_size // (micro * world)
        self.position = 0  # micro-batches of this device that were handed out
        self._permutation = lru_cache(maxsize=2)(self._shuffle)

    def __len__(self) -> int:
        return self.total

    def __iter__(self) -> Iterator[Batch]:
        while self.position < self.total:
            start = (self.position * self.world + self.rank) * self.micro
            self.position += 1
            yield self.split.batch(self.indices(start, start + self.micro))

    def indices(self, start: int, stop: int) -> np.ndarray:
        """Examples at places [start, stop) of the endless stream."""
        places = np.arange(start, stop)
        epochs, within = np.divmod(places, len(self.split))
        return np.concatenate([self._permutation(int(e))[within[epochs == e]] for e in np.unique(epochs)])

    def _shuffle(self, epoch: int) -> np.ndarray:
        return np.random.Generator(np.random.PCG64([self.seed, epoch])).permutation(len(self.split))

    def state_dict(self) -> dict[str, int]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.position = state["position"]


def sequential_batches(split: Split, batch_size: int, rank: int = 0, world: int = 1) -> Iterator[Batch]:
    """Every example of a split exactly once; `world` devices take turns, the last batch is as short as it is."""
    for start in range(rank * batch_size, len(split), batch_size * world):
        yield split.batch(range(start, min(start + batch_size, len(split))))
