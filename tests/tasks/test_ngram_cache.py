"""The n-gram with a cache: a naive float64 twin, the sum over the vocabulary, the past alone, gradients, repeats."""

from collections import Counter

import numpy as np
import pytest
import torch
from scipy.optimize import approx_fprime

from tasks.lm import ngram_cache
from tasks.lm.ngram_cache import NGramWithCache, mean_nats, past
from tasks.lm.ngrams import NGram, NGramCounts
from tests.tasks.test_ngrams import V, discounts_of, drawn, tensors


def drawn_model(order: int, seed: int = 0) -> NGramWithCache:
    rng = np.random.default_rng(seed)
    ngram = NGram(NGramCounts(drawn(40, 12), V), order, discounts_of(order), "48 bytes")
    return NGramWithCache(ngram, rng.uniform(0.1, 5, order), rng.uniform(0.05, 0.95, order))


def probability(model: NGramWithCache, window: list[int], i: int, token: int) -> float:
    """The equation: that `token` follows window[:i]."""
    before = torch.tensor([window[:i]])
    q = float(model.ngram(before, torch.tensor([[token]])).neg().exp())
    for k, (s, d) in enumerate(zip(model.strengths, model.discounts, strict=True)):
        if k > i:
            break
        came = Counter(window[j] for j in range(k, i) if window[j - k : j] == window[i - k : i])
        q = (came[token] - d * (came[token] > 0) + (s + d * len(came)) * q) / (came.total() + s)
    return q


@pytest.mark.parametrize("order", [1, 2, 3, 6])
@pytest.mark.parametrize(("length", "stride"), [(20, 20), (20, 3), (3, 3), (2, 1)])
def test_probabilities_are_those_of_the_naive_twin(order, length, stride, monkeypatch):
    monkeypatch.setattr(ngram_cache, "AT_ONCE", 50)  # so that windows are counted in several parts
    model, test = drawn_model(order), np.random.default_rng(1).choice(V, (8, length + 1))
    scored = range(length + 1 - stride, length + 1)
    expected = [[-np.log(probability(model, row, i, row[i])) for i in scored] for row in test.tolist()]
    tokens, targets = torch.from_numpy(test[:, :-1]), torch.from_numpy(test[:, -stride:])
    assert torch.allclose(model(tokens, targets), torch.tensor(expected, dtype=torch.float64), rtol=1e-12)


def test_nothing_of_the_future_or_of_another_window_is_used():
    model, test = drawn_model(4), drawn(6, 31, seed=3)
    changed = test.copy()
    changed[:, 18:] = 4 - changed[:, 18:]
    (tokens, targets), (others, later) = tensors(test), tensors(changed)
    scores, of_changed = model(tokens, targets), model(others, later)
    assert torch.equal(scores[:, :17], of_changed[:, :17]) and not torch.equal(scores[:, 17:], of_changed[:, 17:])
    alone = torch.cat([model(tokens[i : i + 1], targets[i : i + 1]) for i in range(len(tokens))])
    assert torch.equal(alone, scores)


def test_targets_that_are_not_scored_cost_nothing_and_change_nothing():
    model, (tokens, targets) = drawn_model(3), tensors(drawn(6, 19, seed=3))
    masked = targets.clone()
    masked[0, :5] = -100
    whole, part = model(tokens, targets), model(tokens, masked)
    assert not part[0, :5].any() and torch.equal(part[0, 5:], whole[0, 5:]) and torch.equal(part[1:], whole[1:])
    chosen, expected = (
        NGramWithCache.fitted(model.ngram, (tokens[:1], kept)) for kept in (masked[:1], targets[:1, 5:])
    )
    assert np.array_equal(chosen.strengths, expected.strengths)
    assert np.array_equal(chosen.discounts, expected.discounts)


def test_the_mean_and_its_gradients(order=3):
    model, test = drawn_model(order), drawn(20, 30, seed=4)
    tokens, targets = tensors(test)
    p, seen = model.ngram(tokens, targets).neg().exp().flatten().numpy(), past(test, 29, order)
    nats, *gradients = mean_nats(seen, p, model.strengths, model.discounts)
    assert nats == pytest.approx(float(model(tokens, targets).mean()), rel=1e-12)
    by_strength = approx_fprime(model.strengths, lambda s: mean_nats(seen, p, s, model.discounts)[0], 1e-7)
    by_discount = approx_fprime(model.discounts, lambda d: mean_nats(seen, p, model.strengths, d)[0], 1e-7)
    for gradient, numeric in zip(gradients, (by_strength, by_discount), strict=True):
        assert gradient == pytest.approx(numeric, abs=1e-6) and gradient.all()


def repeating(rows: int, seed: int) -> np.ndarray:
    """Windows of a random phrase of 8 tokens, three times over: what the training text cannot tell."""
    return np.tile(np.random.default_rng(seed).choice(V, (rows, 8)), 3)


def test_a_text_that_repeats_itself_is_read_better_than_by_the_ngram():
    ngram = NGram.fitted(NGramCounts(repeating(40, seed=0), V), 3, tensors(repeating(40, seed=1)), "")
    model, (tokens, targets) = NGramWithCache.fitted(ngram, tensors(repeating(40, seed=1))), tensors(repeating(40, 2))
    assert model(tokens, targets)[:, 10:].mean() < 0.7 * ngram(tokens, targets)[:, 10:].mean()
    assert (model.discounts >= 0).all() and (model.discounts < 1).all() and (model.strengths > 0).all()
