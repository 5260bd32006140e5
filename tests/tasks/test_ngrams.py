"""n-grams: counts by hand, a naive float64 twin, the sum over the vocabulary, the window's edge, and real bytes."""

from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.optimize import approx_fprime, minimize

from harness.config.compose import arguments, compose
from harness.config.instantiate import instantiate
from tasks.lm import language_modelling
from tasks.lm.ngrams import NGram, NGramCounts, joined, leaving_out, mean_nats
from tests.helpers.tasks import ready, refused
from tests.tasks.test_language_modelling import corpus, evaluated

SLICES = Path(__file__).resolve().parents[3] / "shared" / "data"
V = 5


def drawn(rows: int, columns: int, seed: int = 0) -> np.ndarray:
    """Token ids 0 to 3 of 5: 4 never occurs."""
    return np.random.default_rng(seed).choice(4, (rows, columns), p=(0.6, 0.2, 0.15, 0.05))


def discounts_of(order: int) -> np.ndarray:
    return np.random.default_rng(order).uniform(0.1, 0.9, (order, 3)) * (1, 2, 3)


class Naive:
    """The equations, one token at a time, with a dictionary for each context."""

    def __init__(self, windows, discounts):
        self.discounts, self.after = discounts, defaultdict(Counter)
        for window in windows.tolist():
            for i in range(1, len(window)):
                for size in range(min(i, len(discounts) - 1) + 1):
                    self.after[tuple(window[i - size : i])][window[i]] += 1

    def probability(self, context, token) -> float:
        """`context` has at most order - 1 tokens."""
        lower = self.probability(context[1:], token) if context else 1 / V
        counts, discount = self.after.get(tuple(context)), self.discounts[len(context)]
        if not counts:
            return lower
        taken = {count: discount[min(count, 3) - 1] for count in counts.values()}
        kept = counts[token] - taken[counts[token]] if counts[token] else 0.0
        return (kept + sum(taken[count] for count in counts.values()) * lower) / sum(counts.values())


def test_probabilities_are_those_counted_by_hand():
    """0 1 0 1 0 2: after 0 came 1 twice and 2 once; targets are 1 0 1 0 2."""
    half = np.full((2, 3), (0.5, 1.0, 1.5))
    model = NGram(NGramCounts(np.array([[0, 1, 0, 1, 0, 2]]), 3), 2, half, "")
    # two tokens twice and one once leave 2 x 1 + 1 x 0.5 of 5 to the third of each
    unigram = [(2 - 1.0 + 2.5 / 3) / 5, (2 - 1.0 + 2.5 / 3) / 5, (1 - 0.5 + 2.5 / 3) / 5]
    after_0 = [1.5 * unigram[0] / 3, (2 - 1.0 + 1.5 * unigram[1]) / 3, (1 - 0.5 + 1.5 * unigram[2]) / 3]
    tokens, targets = torch.tensor([[0], [0], [0], [2]]), torch.tensor([[0], [1], [2], [1]])
    expected = [*after_0, unigram[1]]  # nothing came after 2
    assert model(tokens, targets).neg().exp().flatten().tolist() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("order", [1, 2, 3, 6])
@pytest.mark.parametrize(("length", "stride"), [(9, 9), (9, 2), (3, 3), (2, 1)])
def test_probabilities_are_those_of_the_naive_twin(order, length, stride):
    train, discounts = drawn(40, 12), discounts_of(order)
    naive, model = Naive(train, discounts), NGram(NGramCounts(train, V), order, discounts, "")
    test = np.random.default_rng(1).choice(V, (30, length + 1))
    scored = range(length + 1 - stride, length + 1)
    expected = [
        [-np.log(naive.probability(row[max(0, i - order + 1) : i], row[i])) for i in scored] for row in test.tolist()
    ]
    tokens, targets = torch.from_numpy(test[:, :-1]), torch.from_numpy(test[:, -stride:])
    assert torch.allclose(model(tokens, targets), torch.tensor(expected, dtype=torch.float64), rtol=1e-12)


def tensors(windows: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.from_numpy(windows[:, :-1]), torch.from_numpy(windows[:, 1:])


def test_targets_that_are_not_scored_cost_nothing_and_change_nothing():
    counts, (tokens, targets) = NGramCounts(drawn(40, 12), V), tensors(drawn(6, 9, seed=3))
    masked = targets.clone()
    masked[0, :5] = -100
    model = NGram(counts, 3, discounts_of(3), "")
    whole, part = model(tokens, targets), model(tokens, masked)
    assert not part[0, :5].any() and torch.equal(part[0, 5:], whole[0, 5:]) and torch.equal(part[1:], whole[1:])
    chosen = NGram.fitted(counts, 3, (tokens[:1], masked[:1]), "").discounts
    assert np.array_equal(chosen, NGram.fitted(counts, 3, (tokens[:1], targets[:1, 5:]), "").discounts)


def test_the_mean_and_its_gradient(order=3):
    train, test, discounts = drawn(6, 12), np.random.default_rng(4).choice(V, (20, 9)), discounts_of(order)
    facts = NGramCounts(train, V).facts(test, 8, order)
    nats, gradient = mean_nats(facts, discounts, V)
    naive = Naive(train, discounts)
    expected = [naive.probability(row[max(0, i - 2) : i], row[i]) for row in test.tolist() for i in range(1, 9)]
    assert nats == pytest.approx(float(-np.log(expected).mean()), rel=1e-12)
    numeric = approx_fprime(discounts.ravel(), lambda flat: mean_nats(facts, flat.reshape(order, 3), V)[0], 1e-7)
    assert gradient.ravel() == pytest.approx(numeric, abs=1e-5)
    assert np.count_nonzero(gradient[1:]) == gradient[1:].size, "every discount of the higher orders counts"


def test_validation_chooses_better_discounts_than_the_training_counts():
    counts, validation = NGramCounts(drawn(40, 12), V), tensors(drawn(40, 12, seed=5))
    chosen, estimated = (NGram.fitted(counts, 4, given, "") for given in (validation, None))
    assert np.array_equal(estimated.discounts, leaving_out(counts.levels(4)))
    assert chosen(*validation).mean() < estimated(*validation).mean()
    with pytest.raises(ValueError, match="no training window with a target"):
        NGramCounts(np.zeros((0, 5), np.int64), V)


def test_the_task_fits_on_what_a_model_draws(tmp_path):
    task = corpus(tmp_path)
    windows = len(task.split("train"))
    makers = task.baselines(3)
    ngrams = ["2gram", "3gram", "4gram", "5gram", "6gram", "6gram_with_cache"]
    assert list(makers) == ["unigram", *ngrams, "5gram_all", "6gram_all", "6gram_with_cache_all"]
    assert makers["4gram"]().saw == "48 bytes" and makers["5gram_all"]().saw == f"{windows * 16} bytes"
    repeated, whole = (task.baselines(seen)["5gram"]() for seen in (windows + 1, None))
    scores = {name: evaluated(task, task.split("test"), make())["ppl"] for name, make in makers.items()}
    assert repeated.saw == whole.saw == f"{windows * 16} bytes"
    assert evaluated(task, task.split("test"), whole)["ppl"] == scores["5gram_all"] < scores["5gram"]
    assert scores["5gram_all"] < scores["unigram"]


def test_lines_and_dictionaries_are_counted_as_the_model_reads_them(tmp_path):
    task = corpus(tmp_path, reading="lines", dictionary=12, stride=4)
    model = task.baselines()["3gram"]()
    assert model.counts.vocab_size == 12 and model.saw.endswith(" tokens")
    batch = task.split("train").batch(range(len(task.split("train"))))
    expected = np.bincount(joined(batch["tokens"], batch["targets"])[:, 1:].ravel(), minlength=12)
    assert model.counts.levels(1)[0].counts[:-1].tolist() == expected.tolist()
    ngram, unigram = (evaluated(task, task.split("test"), p)["ppl"] for p in (model, task.baselines()["unigram"]()))
    assert ngram < unigram


def test_more_text_than_can_be_counted_is_cut_or_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(language_modelling, "MOST_COUNTED", 160)
    task = corpus(tmp_path)
    assert task.baselines(20)["2gram"]().saw == "160 bytes"
    with refused("training tokens are more than the 160", kind=ValueError):
        task.baselines(20)["6gram_all"]()


def test_discounts_are_not_chosen_on_the_test(tmp_path, monkeypatch):
    task = corpus(tmp_path)
    task._splits["val"] = task._splits["test"]
    model = task.baselines()["3gram"]()
    assert np.array_equal(model.discounts, leaving_out(model.counts.levels(3)))
    assert not any("cache" in name for name in task.baselines()), "its weights would be chosen on the test"


@pytest.mark.slow
@pytest.mark.skipif(not SLICES.is_dir(), reason="no real text here")
@pytest.mark.parametrize(
    ("typed", "seen", "published"),
    [
        (["lm/openwebtext", "latte", "t1", "task.beginnings=null"], 4800, (12.54, 7.80, 5.86, 5.15, 5.08)),
        (["lm/wikitext103", "llp", "a_256"], 3200, (11.73, 7.76, 5.66, 4.90, 4.90)),
    ],
)
def test_real_bytes_have_the_perplexities_of_another_program(tmp_path, typed, seen, published):
    """Of a separate C++ program with one discount for each order, on the same bytes; three discounts are no worse."""
    name, protocol, configuration, *settings = typed
    cfg = compose([
        *(f"task={name}", f"protocol={protocol}", f"protocol.configuration={configuration}", "budget=reduced"),
        *(f"paths.data={tmp_path}", f"paths.slices={SLICES}", *settings),
    ])  # fmt: skip
    task = ready(instantiate(arguments(cfg.task), "task", []))
    makers = task.baselines(seen)
    test = task.split("test").batch(range(len(task.split("test"))))
    tokens, targets = task._discount_windows()

    def perplexity(model: NGram) -> float:
        return float(torch.exp(model(test["tokens"], test["targets"]).sum() / (test["targets"] >= 0).sum()))

    for order, value in zip(range(2, 7), published, strict=True):
        model = makers[f"{order}gram"]()
        facts = model.counts.facts(joined(tokens, targets), targets.shape[1], order)

        def alike(discounts: np.ndarray, facts=facts) -> tuple[float, np.ndarray]:
            nats, gradient = mean_nats(facts, np.repeat(discounts[:, None], 3, 1), 257)
            return nats, gradient.sum(1)

        best = minimize(alike, np.full(order, 0.7), jac=True, method="L-BFGS-B", bounds=[(0.001, 0.999)] * order).x
        equal = NGram(model.counts, order, np.repeat(best[:, None], 3, 1), "")
        assert perplexity(equal) == pytest.approx(value, rel=0.02)
        assert perplexity(model) < 1.001 * perplexity(equal)
