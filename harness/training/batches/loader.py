"""Training batches in an order that is a function of the seed alone, resumable from any position.

The training stream is the endless concatenation of the split's shuffles, one per epoch; update t takes its examples
[t B, (t + 1) B). Evaluation passes through a split once, in order.
"""

from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from tasks.base import Batch, Split


class TrainLoader:
    """Micro-batches of one device. Lightning saves and restores its position through `state_dict`.

    It has a length, so that Lightning reads no batch ahead: the saved position is the trained one.
    """

    def __init__(
        self,
        split: Split,
        *,
        steps: int,
        batch_size: int,
        micro_batch_size: int,
        seed: int,
        rank: int = 0,
        world_size: int = 1,
    ):
        if len(split) == 0:
            raise ValueError("the training split is empty")
        if batch_size % (micro_batch_size * world_size):
            raise ValueError(
                f"batch_size {batch_size} is not micro_batch_size {micro_batch_size} x {world_size} devices x a number"
            )
        self.split, self.seed, self.micro_batch_size = split, seed, micro_batch_size
        self.rank, self.world_size = rank, world_size
        self.micro_batches = batch_size // (micro_batch_size * world_size)  # of an update, on this device
        self.total = steps * self.micro_batches
        self.position = 0  # micro-batches of this device that were handed out
        self.examples = micro_batch_size * world_size  # of the current micro-batches, on all devices
        self.loss_scale = 1.0  # all micro-batches weigh the same
        self._permutation = lru_cache(maxsize=2)(self._shuffle)

    def __len__(self) -> int:
        return self.total

    def __iter__(self) -> Iterator[Batch]:
        while self.position < self.total:
            start = (self.position * self.world_size + self.rank) * self.micro_batch_size
            self.position += 1
            yield self.split.batch(self.indices(start, start + self.micro_batch_size))

    def indices(self, start: int, stop: int) -> np.ndarray:
        """Examples at places [start, stop) of the endless stream."""
        places = np.arange(start, stop)
        epochs, within = np.divmod(places, len(self.split))
        return np.concatenate([self._permutation(int(e))[within[epochs == e]] for e in np.unique(epochs)])

    def _shuffle(self, epoch: int) -> np.ndarray:
        return np.random.Generator(np.random.PCG64([self.seed, epoch])).permutation(len(self.split))

    def state_dict(self) -> dict[str, int]:
        return {"updates": self.position // self.micro_batches}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.position = state["updates"] * self.micro_batches


def sequential_indices(size: int, batch_size: int, rank: int = 0, world_size: int = 1) -> Iterator[range]:
    """The examples of each batch of one device: devices take turns, and every example comes exactly once."""
    for start in range(rank * batch_size, size, batch_size * world_size):
        yield range(start, min(start + batch_size, size))
