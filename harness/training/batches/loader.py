"""Training batches in an order that is a function of the seed alone, resumable from any position.

`TrainLoader`: the training stream is the endless concatenation of the split's shuffles, one per epoch; update t takes
its examples [t B, (t + 1) B).

`TokenLoader` (`train.batch_tokens`): each update holds examples of similar length, with padding at most `batch_tokens`.
The examples of an epoch are sorted by length, ties in random order, and cut into updates: the next example is added as
long as (examples x longest) stays within the bound. The updates of an epoch then come in random order. All epochs have
the same number of updates. An update is divided evenly between its micro-batches on all devices, which differ by one
example at most. `loss_scale` weighs each micro-batch so that the gradient of the update is the mean over its examples,
or over its tokens if `Task.loss_mean_over` is "tokens". A micro-batch without examples repeats one with weight 0.

Evaluation passes through a split once, in order (`sequential_indices`).
"""

import math
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np
from omegaconf import DictConfig

from harness.config.allowed import devices_of
from harness.errors import UsageError
from tasks.base import Batch, Split, Task


class Loader:
    """Micro-batches of one device. Lightning saves and restores the position through `state_dict`.

    It has a length, so that Lightning reads no batch ahead: the saved position is the trained one.
    """

    examples: int  # of the current micro-batches, on all devices
    tokens = 0  # of the current micro-batch of this device; counted here, because a batch on a GPU would be waited for
    loss_scale: float  # of the current micro-batch of this device

    def __init__(
        self,
        split: Split,
        *,
        steps: int,
        micro_batches: int,
        seed: int,
        rank: int = 0,
        world_size: int = 1,
        tokens_of: Callable[[Batch], int] = lambda batch: 0,
    ):
        """`tokens_of`: `Task.tokens`."""
        if len(split) == 0:
            raise ValueError("the training split is empty")
        self.split, self.seed, self.rank, self.world_size = split, seed, rank, world_size
        self.tokens_of = tokens_of
        self.micro_batches = micro_batches  # per update, on this device
        self.total = steps * micro_batches
        self.position = 0  # micro-batches of this device that were handed out

    def __len__(self) -> int:
        return self.total

    def __iter__(self) -> Iterator[Batch]:
        while self.position < self.total:
            batch = self.next_batch()
            self.tokens = self.tokens_of(batch) if self.loss_scale else 0  # 0: of a repeated example
            yield batch

    def next_batch(self) -> Batch:
        """The micro-batch at `position`, which moves on before Lightning may save it."""
        raise NotImplementedError

    def random(self, epoch: int) -> np.random.Generator:
        return np.random.Generator(np.random.PCG64([self.seed, epoch]))

    def state_dict(self) -> dict[str, int]:
        return {"updates": self.position // self.micro_batches}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.position = state["updates"] * self.micro_batches


class TrainLoader(Loader):
    def __init__(self, split: Split, *, micro_batch_size: int, **settings: Any):
        """`settings`: as for `Loader`."""
        super().__init__(split, **settings)
        self.micro_batch_size = micro_batch_size
        self.examples = micro_batch_size * self.world_size
        self.loss_scale = 1.0  # all micro-batches weigh the same
        self._permutation = lru_cache(maxsize=2)(self._shuffle)

    def next_batch(self) -> Batch:
        start = (self.position * self.world_size + self.rank) * self.micro_batch_size
        self.position += 1
        return self.split.batch(self.indices(start, start + self.micro_batch_size))

    def indices(self, start: int, stop: int) -> np.ndarray:
        """The examples at positions [start, stop) of the endless stream."""
        epochs, within = np.divmod(np.arange(start, stop), len(self.split))
        return np.concatenate([self._permutation(int(e))[within[epochs == e]] for e in np.unique(epochs)])

    def _shuffle(self, epoch: int) -> np.ndarray:
        return self.random(epoch).permutation(len(self.split))


class TokenLoader(Loader):
    """Raises UsageError for an example longer than `batch_tokens`, and for a split without lengths."""

    def __init__(
        self,
        split: Split,
        *,
        batch_tokens: int,
        batch_examples: int | None = None,
        mean_over: str = "examples",
        **settings: Any,
    ):
        """`settings`: as for `Loader`."""
        lengths = split.lengths()
        if lengths is None:
            raise UsageError("train.batch_tokens: this task does not tell the lengths of its examples; set it to null")
        super().__init__(split, **settings)
        if lengths.max() > batch_tokens:
            raise UsageError(
                f"train.batch_tokens={batch_tokens} is less than the longest example, {lengths.max()} tokens"
            )
        self.lengths = lengths
        self.weights = lengths if mean_over == "tokens" else np.ones_like(lengths)
        # of each update in the sorted examples
        self.bounds = update_bounds(np.sort(lengths), batch_tokens, batch_examples or len(lengths))
        self.updates_per_epoch = len(self.bounds) - 1
        self.examples, self.loss_scale = 0, 1.0
        self._epoch_order = lru_cache(maxsize=2)(self._order)

    def next_batch(self) -> Batch:
        update, micro_batch = divmod(self.position, self.micro_batches)
        indices = self.indices(update)
        parts = np.array_split(indices, self.micro_batches * self.world_size)
        first = micro_batch * self.world_size
        part = parts[first + self.rank]
        self.position += 1
        self.examples = sum(map(len, parts[first : first + self.world_size]))
        self.loss_scale = len(parts) * float(self.weights[part].sum() / self.weights[indices].sum())
        return self.split.batch(part if len(part) else indices[:1])

    def indices(self, update: int) -> np.ndarray:
        """The examples of an update, counted from the start of the training, in ascending length."""
        epoch, position = divmod(update, self.updates_per_epoch)
        examples, updates = self._epoch_order(epoch)
        number = updates[position]
        return examples[self.bounds[number] : self.bounds[number + 1]]

    def _order(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """The examples by length, and the order of the updates."""
        random = self.random(epoch)
        shuffled = random.permutation(len(self.lengths))
        examples = shuffled[np.argsort(self.lengths[shuffled], kind="stable")]
        return examples, random.permutation(self.updates_per_epoch)


def update_bounds(lengths: np.ndarray, batch_tokens: int, batch_examples: int) -> list[int]:
    """Where updates of ascending `lengths` (n,) begin, and n.

    In each update, examples x longest <= `batch_tokens` and examples <= `batch_examples`.
    """
    bounds = [0]
    for position, length in enumerate(lengths.tolist()):
        examples = position - bounds[-1] + 1
        if examples * length > batch_tokens or examples > batch_examples:
            bounds.append(position)
    return [*bounds, len(lengths)]


def sequential_indices(size: int, batch_size: int, rank: int = 0, world_size: int = 1) -> Iterator[range]:
    """The examples of each batch of one device: devices take turns, and every example comes exactly once."""
    for start in range(rank * batch_size, size, batch_size * world_size):
        yield range(start, min(start + batch_size, size))


def make_loader(task: Task, train: Any, seed: int, *, rank: int, world_size: int) -> Loader:
    """The training batches of this device. Raises UsageError."""
    split, settings = task.split("train"), {"steps": train.max_steps, "seed": seed, "rank": rank}
    settings |= {"world_size": world_size, "tokens_of": task.tokens, "micro_batches": micro_batches(train, world_size)}
    if train.batch_tokens:
        settings |= {"mean_over": task.loss_mean_over, "batch_examples": train.batch_examples}
        return TokenLoader(split, batch_tokens=train.batch_tokens, **settings)
    return TrainLoader(split, micro_batch_size=micro_batch_size(train, world_size), **settings)


def micro_batch_size(train: Any, world_size: int) -> int:
    """Examples per forward pass of a device."""
    return train.micro_batch_size or max(1, train.batch_size // world_size)


def micro_batches(train: Any, world_size: int) -> int:
    """Forward passes per update of a device. Raises UsageError if the batch cannot be divided evenly."""
    if train.batch_tokens:
        tokens = train.micro_batch_tokens or train.batch_tokens
        return max(1, math.ceil(train.batch_tokens / (tokens * world_size)))
    size = micro_batch_size(train, world_size)
    if train.batch_size % (size * world_size):
        if not train.micro_batch_size:
            size = int(train.batch_size)
            most = max(n for n in range(1, min(world_size, size + 1)) if size % n == 0)
            uneven = f"train.batch_size={train.batch_size} cannot be divided evenly by {world_size} devices"
            raise UsageError(f"{uneven}; resources.devices={most} resources.nodes=1 can")
        raise UsageError(
            f"train.batch_size={train.batch_size} is not a multiple of train.micro_batch_size={size} on "
            f"{world_size} device{'s' if world_size > 1 else ''}"
        )
    return train.batch_size // (size * world_size)


def update_division(cfg: DictConfig) -> dict[str, int | None]:
    """A record's entry `update`: how the examples of an update are divided between devices."""
    train, devices = cfg.train, devices_of(cfg)
    if train.batch_tokens:
        return {"examples": None, "micro_batch_size": None, "devices": devices, "tokens": train.batch_tokens}
    size = micro_batch_size(train, devices)
    return {"examples": train.batch_size, "micro_batch_size": size, "devices": devices}
