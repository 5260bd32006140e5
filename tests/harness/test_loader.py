from types import SimpleNamespace

import pytest
import torch

from harness.errors import UsageError
from harness.training.batches.loader import TrainLoader, micro_batches, sequential_indices


class Numbers:
    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size

    def batch(self, indices):
        return {"index": torch.as_tensor(list(indices))}


def joined(batches):
    return [index for batch in batches for index in batch]


def drain(stream):
    return [batch["index"].tolist() for batch in stream]


def test_epochs_differ_by_the_seed_and_a_batch_may_straddle_them():
    def seen(seed):
        return joined(drain(TrainLoader(Numbers(10), steps=5, micro_batches=1, micro_batch_size=4, seed=seed)))

    assert sorted(seen(1)[:10]) == sorted(seen(1)[10:]) == list(range(10)), "every example once in an epoch"
    assert seen(1)[:10] != seen(1)[10:] and seen(3) == seen(3) != seen(4)


@pytest.mark.parametrize(("stop", "before", "after"), [(5, 4, 2), (13, 1, 4)])
def test_a_restored_stream_goes_on_with_the_next_examples(stop, before, after):
    def fresh(micro):
        return TrainLoader(Numbers(10), steps=20, micro_batches=4 // micro, micro_batch_size=micro, seed=7)

    first, second = fresh(before), fresh(after)
    steps = iter(first)
    for _ in range(stop * 4 // before):
        next(steps)
    second.load_state_dict(first.state_dict())
    assert joined(drain(second)) == joined(drain(fresh(4)))[stop * 4 :]


@pytest.mark.parametrize(("micro", "world"), [(8, 1), (4, 2), (1, 4)])
def test_an_update_holds_the_same_examples_however_it_is_shared(micro, world):
    whole = drain(TrainLoader(Numbers(30), steps=6, micro_batches=1, micro_batch_size=8, seed=2))
    per_update = 8 // (micro * world)
    how = {"steps": 6, "micro_batches": per_update, "micro_batch_size": micro, "seed": 2, "world_size": world}
    ranks = [drain(TrainLoader(Numbers(30), rank=rank, **how)) for rank in range(world)]
    for step, expected in enumerate(whole):
        parts = [batch for rank in ranks for batch in rank[step * per_update : (step + 1) * per_update]]
        assert sorted(joined(parts)) == sorted(expected)


@pytest.mark.parametrize(("size", "world", "says"), [(4, 1, "batch_size=4 on 1 device$"), (None, 3, "evenly by 3 dev")])
def test_a_batch_that_cannot_be_shared_is_refused(size, world, says):
    with pytest.raises(UsageError, match=f"train.batch_size=10 .*{says}"):
        micro_batches(SimpleNamespace(batch_size=10, micro_batch_size=size, batch_tokens=None), world)


@pytest.mark.parametrize("world", [1, 2, 3])
def test_evaluation_goes_through_every_example_once(world):
    seen = [i for rank in range(world) for indices in sequential_indices(23, 4, rank, world) for i in indices]
    assert sorted(seen) == list(range(23))
