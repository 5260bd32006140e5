"""Training batches by tokens: every update holds examples of similar length, at most `batch_tokens` with padding.

The examples of an epoch are sorted by length, ties in random order, and cut into updates: the next example is added as
long as (examples x longest) stays within the bound. The updates of an epoch then come in random order. Both orders are
functions of the seed and the epoch alone, and all epochs have the same number of updates, so the loader resumes from
any position.

An update is divided evenly between its micro-batches on all devices; they differ by one example at most. `loss_scale`
weighs each one so that the gradient of the update is the mean over its examples, or over its tokens where
`Task.loss_mean_over` is "tokens". A micro-batch without an example of its own repeats one with weight 0.
"""

from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from harness.errors import UsageError
from tasks.base import Batch, Split


class TokenLoader:
    """Micro-batches of one device, with the interface of `TrainLoader`. Raises UsageError for an example too long."""

    def __init__(
        self,
        split: Split,
        *,
        steps: int,
        batch_tokens: int,
        micro_batches: int,
        seed: int,
        rank: int = 0,
        world_size: int = 1,
        mean_over: str = "examples",
    ):
        lengths = split.lengths()
        if lengths is None:
            raise UsageError("train.batch_tokens: this task does not tell the lengths of its examples; set it to null")
        if len(lengths) == 0:
            raise ValueError("the training split is empty")
        if lengths.max() > batch_tokens:
            raise UsageError(
                f"train.batch_tokens={batch_tokens} is less than the longest example, {lengths.max()} tokens"
            )
        self.split, self.seed, self.lengths = split, seed, lengths
        self.micro_batches, self.rank, self.world_size = micro_batches, rank, world_size
        self.weights = lengths if mean_over == "tokens" else np.ones_like(lengths)
        self.bounds = update_bounds(np.sort(lengths), batch_tokens)  # of each update in the sorted examples
        self.updates_per_epoch = len(self.bounds) - 1
        self.total = steps * micro_batches
        self.position = 0  # micro-batches of this device that were handed out
        self.examples = 0  # of the current micro-batches, on all devices
        self.loss_scale = 1.0  # of the current micro-batch of this device
        self._epoch_order = lru_cache(maxsize=2)(self._order)

    def __len__(self) -> int:
        return self.total

    def __iter__(self) -> Iterator[Batch]:
        while self.position < self.total:
            update, micro_batch = divmod(self.position, self.micro_batches)
            indices = self.indices(update)
            parts = np.array_split(indices, self.micro_batches * self.world_size)
            first = micro_batch * self.world_size
            part = parts[first + self.rank]
            self.position += 1
            self.examples = sum(map(len, parts[first : first + self.world_size]))
            self.loss_scale = len(parts) * float(self.weights[part].sum() / self.weights[indices].sum())
            yield self.split.batch(part if len(part) else indices[:1])

    def indices(self, update: int) -> np.ndarray:
        """Examples of an update, counted from the start of the training, in ascending length."""
        epoch, place = divmod(update, self.updates_per_epoch)
        examples, updates = self._epoch_order(epoch)
        number = updates[place]
        return examples[self.bounds[number] : self.bounds[number + 1]]

    def _order(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """Examples by length, and the order of the updates."""
        random = np.random.Generator(np.random.PCG64([self.seed, epoch]))
        shuffled = random.permutation(len(self.lengths))
        examples = shuffled[np.argsort(self.lengths[shuffled], kind="stable")]
        return examples, random.permutation(self.updates_per_epoch)

    def state_dict(self) -> dict[str, int]:
        return {"updates": self.position // self.micro_batches}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.position = state["updates"] * self.micro_batches


def update_bounds(lengths: np.ndarray, batch_tokens: int) -> list[int]:
    """Where updates of ascending `lengths` (n,) begin, and n: in each one, examples x longest <= `batch_tokens`."""
    bounds = [0]
    for place, length in enumerate(lengths.tolist()):
        if (place - bounds[-1] + 1) * length > batch_tokens:
            bounds.append(place)
    return [*bounds, len(lengths)]
