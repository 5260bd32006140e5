"""Batches by tokens: the bound, the order, the division between devices, and a cell that trains with them."""

import functools
from itertools import chain
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from harness.config.build import on_meta
from harness.config.cell import cell_of
from harness.config.compose import compose
from harness.errors import UsageError
from harness.records import record
from harness.training.batches.loader import TokenLoader, make_loader, update_bounds
from harness.training.run_cell import run_cell
from tests.harness.test_resume import check_stopped_run, undisturbed
from tests.helpers.cells import request_of

SIZES = np.random.Generator(np.random.PCG64(0)).integers(3, 40, size=101)
BOUND = 200


class Sentences:
    def __init__(self, sizes=SIZES):
        self.sizes = np.asarray(sizes)

    def __len__(self):
        return len(self.sizes)

    def lengths(self):
        return self.sizes

    def batch(self, indices):
        return {"index": torch.as_tensor(np.asarray(indices))}


def loader(*, steps=30, seed=1, micro_batches=1, **options):
    return TokenLoader(Sentences(), steps=steps, batch_tokens=BOUND, micro_batches=micro_batches, seed=seed, **options)


def drain(batches):
    return [batch["index"].tolist() for batch in batches]


def test_an_epoch_visits_every_example_once_within_the_bound():
    whole = loader()
    epoch = drain(loader(steps=2 * whole.updates_per_epoch))
    first, second = epoch[: whole.updates_per_epoch], epoch[whole.updates_per_epoch :]
    assert sorted(chain(*first)) == sorted(chain(*second)) == list(range(101)) and first != second
    assert all(len(batch) * SIZES[batch].max() <= BOUND for batch in first)
    padding = sum(len(batch) * SIZES[batch].max() for batch in first) / SIZES.sum()
    assert padding < 1.15, "examples of a batch are of similar length"


def test_order_is_a_function_of_the_seed():
    assert drain(loader(seed=3)) == drain(loader(seed=3)) != drain(loader(seed=4))


@pytest.mark.parametrize("stop", [1, 13, 29])
@pytest.mark.parametrize("parts", [2, 3])
def test_it_resumes_from_any_update_with_other_micro_batches(stop, parts):
    whole, first = drain(loader()), loader(micro_batches=2)
    batches = iter(first)
    for _ in range(2 * stop):
        next(batches)
    second = loader(micro_batches=parts)
    second.load_state_dict(first.state_dict())
    rest = drain(second)
    updates = [sorted(set(chain(*rest[start : start + parts]))) for start in range(0, len(rest), parts)]
    assert updates == [sorted(update) for update in whole[stop:]]


@pytest.mark.parametrize("mean_over", ["examples", "tokens"])
@pytest.mark.parametrize(("micro_batches", "world_size"), [(3, 1), (1, 2), (2, 4)])
def test_an_update_holds_the_same_examples_however_it_is_divided(micro_batches, world_size, mean_over):
    """And the weighted mean over its parts is the mean over its examples or tokens."""
    values, weights = np.random.Generator(np.random.PCG64(1)).normal(size=101), np.ones(101)
    if mean_over == "tokens":
        weights = SIZES
    updates = drain(loader(steps=40))
    parts, means, counts = [[] for _ in updates], np.zeros(len(updates)), np.zeros(len(updates), int)
    for rank in range(world_size):
        share_loader = loader(
            steps=40, micro_batches=micro_batches, rank=rank, world_size=world_size, mean_over=mean_over
        )
        for step, batch in enumerate(share_loader):
            index = batch["index"].numpy()
            mean = (values[index] * weights[index]).sum() / weights[index].sum()
            means[step // micro_batches] += share_loader.loss_scale * mean / (micro_batches * world_size)
            counts[step // micro_batches] += share_loader.examples if rank == 0 else 0
            if share_loader.loss_scale:
                parts[step // micro_batches] += index.tolist()
                share = BOUND / (micro_batches * world_size)
                assert len(index) * SIZES[index].max() <= share + SIZES[index].max()
    assert [sorted(part) for part in parts] == [sorted(update) for update in updates]
    assert counts.tolist() == [len(update) for update in updates]
    expected = [(values[u] * weights[u]).sum() / weights[u].sum() for u in map(np.array, updates)]
    assert means == pytest.approx(np.array(expected))


@pytest.mark.parametrize(("examples", "bounds"), [(6, [0, 3, 5, 6]), (2, [0, 2, 4, 5, 6]), (1, [0, 1, 2, 3, 4, 5, 6])])
def test_bounds_are_the_widest_that_hold(examples, bounds):
    assert update_bounds(np.array([1, 1, 2, 3, 3, 9]), 6, examples) == bounds


def test_an_update_has_at_most_batch_examples():
    assert max(map(len, drain(loader()))) > 7 == max(map(len, drain(loader(batch_examples=7))))


def test_batch_examples_come_with_batch_tokens_and_reach_the_loader():
    typed = ["task=mt/wmt14_ende", "protocol=luna", "model=luna", "budget=smoke", "train.batch_examples=3"]
    with pytest.raises(UsageError, match=r"train\.batch_examples is a part of train\.batch_tokens"):
        on_meta(compose(typed))
    train = compose([*typed, "train.batch_tokens=640"]).train
    task = SimpleNamespace(split=lambda name: Sentences(), loss_mean_over="examples", tokens=len)
    assert np.diff(make_loader(task, train, 1, rank=0, world_size=1).bounds).max() == 3


@pytest.mark.parametrize(("sizes", "reason"), [([3, 201], "less than the longest example, 201"), (None, "lengths")])
def test_what_cannot_be_cut_by_tokens_is_refused(sizes, reason):
    split = Sentences(sizes)
    if sizes is None:
        split.lengths = lambda: None
    with pytest.raises(UsageError, match=reason):
        TokenLoader(split, steps=1, batch_tokens=BOUND, micro_batches=1, seed=0)


@pytest.mark.parametrize("micro", ["null", "300"])
def test_a_cell_stopped_in_training_is_resumed_exactly(tmp_path, monkeypatch, micro):
    whole = functools.partial(undisturbed, tmp_path / "whole")
    check_stopped_run(tmp_path, monkeypatch, whole, (6,), "train.batch_tokens=640", f"train.micro_batch_tokens={micro}")


def test_micro_batches_of_unequal_size_train_the_same_weights(places):
    typed = ["task=lra/listops", "model=vanilla", "budget=smoke", "trainer=cpu", "resources.cpus=1", *places]
    typed += ["train.batch_tokens=640", "backbone.dropout=0", "backbone.attention_dropout=0"]
    losses = []
    for micro in ("null", "250"):
        cfg = compose([*typed, f"train.micro_batch_tokens={micro}", "rerun=all"])
        result = run_cell(request_of(cfg))
        assert result.state == "done", result.detail
        entries = record.read(cell_of(cfg).record_path(cfg))
        losses.append([entries["metrics"]["last"]["val"]["loss"], entries["tokens"], entries["examples"]])
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert entries["update"] == {"examples": None, "micro_batch_size": None, "devices": 1, "tokens": 640}


def test_micro_batch_tokens_are_no_part_of_the_identity():
    typed = ["model=vanilla", "task=lra/listops", "budget=smoke"]
    by_tokens = cell_of(compose([*typed, "train.batch_tokens=640", "train.micro_batch_tokens=64"]))
    assert by_tokens.id == cell_of(compose([*typed, "train.batch_tokens=640"])).id
