"""In-context Markov chains against a naive generator, and their Bayes predictor against the evidence in closed form."""

import bisect
import itertools
import math

import numpy as np
import pytest
import torch

from tasks.probe.markov import Markov, log_posterior

SIZES = {"train": 200, "val": 50, "test": 300}


def made(**settings):
    task = Markov(**SIZES, **{"length": 60, "symbols": 4, "ranges": (20, 60), **settings})
    task.load()
    return task


def naive_chain(task, stream, number):
    """Symbol by symbol in whole numbers of Python, from the words of Philox."""
    calls = itertools.count(1)

    def words(count):
        bits = np.random.Philox(key=[task.data_seed, stream], counter=[0, number, next(calls), 0])
        return [int(word) >> 32 for word in bits.random_raw(count)]

    cuts = iter(words(task.symbols**task.order * (task.symbols - 1)))
    contexts = itertools.product(range(task.symbols), repeat=task.order)
    rows = {context: sorted(itertools.islice(cuts, task.symbols - 1)) for context in contexts}
    chain = [word * task.symbols >> 32 for word in words(task.order)]
    for word in words(task.length + 1 - task.order):
        chain.append(bisect.bisect_right(rows[tuple(chain[-task.order :])], word))
    return chain


@pytest.mark.parametrize("order", [1, 2])
def test_chains_are_those_of_a_naive_generator(order):
    task = made(order=order)
    for stream, name in enumerate(("train", "val", "test")):
        batch = task.split(name).batch(range(30))
        for number in (0, 7, 29):
            chain = naive_chain(task, stream, number)
            assert batch["tokens"][number].tolist() == chain[:-1] and batch["answers"][number].tolist() == chain[1:]


@pytest.mark.parametrize("order", [0, 1, 2])
def test_the_posterior_s_losses_add_up_to_the_evidence(order):
    """The likelihood of all answers under the prior: for each context (G - 1)! prod_s n_s! / (n + G - 1)!."""
    task = made(order=max(1, order))
    tokens, answers = task.split("test").batch(range(20)).values()
    logs = log_posterior(tokens, answers, 4, order)
    assert logs.dtype == torch.float64 and torch.allclose(logs.exp().sum(2), torch.ones(()).double())
    losses = -logs.gather(2, answers[:, :, None])[:, :, 0]
    for row, follows, loss in zip(tokens.tolist(), answers.tolist(), losses, strict=True):
        counts, evidence = {}, (max(0, order - 1)) * math.log(4)
        for place in range(max(0, order - 1), len(row)):
            context = tuple(row[place + 1 - order : place + 1])
            counts.setdefault(context, [0] * 4)[follows[place]] += 1
        for seen in counts.values():
            evidence += math.lgamma(sum(seen) + 4) - math.lgamma(4) - sum(math.lgamma(count + 1) for count in seen)
        assert float(loss.sum()) == pytest.approx(evidence, rel=1e-10)


@pytest.mark.parametrize("order", [1, 2])
def test_no_other_predictor_is_ahead_of_the_posterior(order):
    task = made(order=order, symbols=3, length=200, ranges=(50, 200))
    batch, gaps = task.split("test").batch(range(300)), {}
    for name, make in task.baselines().items():
        metrics = task.metrics()
        scores = task.score(make(), batch, metrics)
        gaps[name] = {key: float(value) for key, value in metrics.compute().items()}
        parts = (50 * scores["gap_to_50"] + 150 * scores["gap_to_200"]) / 200
        assert torch.allclose(parts, scores["gap"])
    assert list(gaps) == ["uniform", "symbol_counts", *["pair_counts"] * (order - 1), "bayes"]
    assert abs(gaps["bayes"]["gap"]) < 1e-12
    assert all(gap["gap"] > 0.05 for name, gap in gaps.items() if name != "bayes")
    assert gaps["uniform"]["loss"] == pytest.approx(math.log(3))


def test_the_posterior_does_not_see_the_answer():
    """The last answer is unknown to a predictor, and no answer changes what is said at its place or before."""
    task = made()
    tokens, answers = task.split("test").batch(range(5)).values()
    said = log_posterior(tokens, answers, 4, 1)
    other = answers.clone()
    other[:, 30] = (other[:, 30] + 1) % 4
    changed = log_posterior(tokens, other, 4, 1)
    assert torch.equal(said[:, :31], changed[:, :31]) and not torch.equal(said, changed)
    assert torch.equal(task.baselines()["bayes"]()(tokens), said)
