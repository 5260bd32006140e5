"""The probes: answers follow from the tokens alone, examples from seed and number; chance is what a guess scores."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from harness.config.build import build
from harness.config.cell import cell_of
from harness.config.compose import compose
from harness.config.variants import changes
from harness.training.batches.loader import TrainLoader
from harness.training.run_cell import run_cell
from models.attention.base import Pattern
from tasks.probe.compression import Compression
from tasks.probe.probe import NO_ANSWER
from tasks.probe.recall import Recall
from tasks.probe.state_tracking import GROUPS
from tests.helpers.cells import request_of
from tests.helpers.probes import CASES, made


@pytest.fixture(scope="module", params=CASES)
def task(request):
    return made(request.param)


# ten-line solvers, of the tokens alone: what is asked, and how the task lays out its tokens


def solve_recall(task, facts, queries, answers):
    value = {}
    for key, follows in zip(facts[::2], facts[1::2], strict=True):
        if key < task.half:
            value[key] = follows
    return [value[query] if asked != NO_ANSWER else NO_ANSWER for query, asked in zip(queries, answers, strict=True)]


def solve_noisy_recall(task, facts, queries, answers):
    pairs = zip(facts[::2], facts[1::2], strict=True)
    value = {key: follows for key, follows in pairs if key < task.half}
    return [value[query] for query in queries]


def solve_selective_copy(task, facts, queries, answers):
    assert queries == [task.vocabulary - 1] + [0] * task.copies
    return [NO_ANSWER] + [token for token in facts if token != 0]


def solve_compression(task, facts, queries, answers):
    assert queries == [task.vocabulary - 1]
    return facts


def solve_memorization(task, facts, queries, answers):
    assert facts == [] and set(queries[1::2]) == {task.vocab_size - 1}
    dictionary = task.values.tolist()
    return [NO_ANSWER if position % 2 == 0 else dictionary[queries[position - 1]] for position in range(len(queries))]


def solve_needle(task, facts, queries, answers):
    assert queries == [0] and facts.count(0) == 1
    return [facts[facts.index(0) + 1]]


def solve_capacity(task, facts, queries, answers):
    """A value among the tokens is that of the key before it."""
    value = {key: follows for key, follows in itertools.pairwise(queries) if follows >= task.vocab_size // 2}
    return [value[query] if asked != NO_ANSWER else NO_ANSWER for query, asked in zip(queries, answers, strict=True)]


def solve_state_tracking(task, facts, queries, answers):
    """By matrices: A5 is the rotations among the permutations."""
    places = len(GROUPS[task.group][0])
    matrices = [np.eye(places)[list(order)].T for order in itertools.permutations(range(places))]
    matrices = [matrix for matrix in matrices if task.group != "a5" or np.linalg.det(matrix) > 0]
    state, products = np.eye(places), []
    for query in queries:
        state = state @ matrices[query]
        products += [number for number, matrix in enumerate(matrices) if (matrix == state).all()]
    return products


def solve_markov(task, facts, queries, answers):
    return [*queries[1:], answers[-1]]


SOLVERS = {
    "Capacity": solve_capacity,
    "StateTracking": solve_state_tracking,
    "Markov": solve_markov,
    "Recall": solve_recall,
    "SelectiveCopy": solve_selective_copy,
    "NoisyRecall": solve_noisy_recall,
    "Extrapolation": solve_noisy_recall,
    "Compression": solve_compression,
    "Memorization": solve_memorization,
    "Needle": solve_needle,
    "LongNeedle": solve_needle,
    "LongRecall": solve_recall,
}


def test_every_answer_follows_from_the_tokens(task):
    for name in task.load().sizes:
        split = task.split(name)
        parts = (part.tolist() for part in split.sequences(range(min(40, len(split)))))
        for facts, queries, answers in zip(*parts, strict=True):
            assert SOLVERS[type(task).__name__](task, facts, queries, answers) == answers
            assert any(answer != NO_ANSWER for answer in answers)


def test_scored_positions(task):
    answers = task.split("test").sequences(range(50)).answers
    asked = (answers != NO_ANSWER).sum(1)
    kind, names = type(task).__name__, {"SelectiveCopy": "copies", "Capacity": "queries", "LongRecall": "asked"}
    names |= {"Recall": "asked", "NoisyRecall": "pairs", "Extrapolation": "pairs"}
    counts = {"Compression": task.length - 1, "Memorization": task.length // 2, "Needle": 1, "LongNeedle": 1}
    expected = getattr(task, names[kind]) if kind in names else counts.get(kind, task.length)
    assert set(asked.tolist()) == {expected}


def settings_of(task):
    return {key: value for key, value in task.settings().items() if key != "version"}


def test_a_resumed_run_reads_on_where_it_stopped(task):
    """The position in the stream is all that is saved: examples are generated again by their numbers."""
    how = {"steps": 6, "micro_batches": 1, "micro_batch_size": 8, "seed": 3}
    whole = list(TrainLoader(task.split("train"), **how))
    first = TrainLoader(task.split("train"), **how)
    begun = list(itertools.islice(first, 4))
    fresh = type(task)(**settings_of(task))
    fresh.load()
    rest = TrainLoader(fresh.split("train"), **how)
    rest.load_state_dict(first.state_dict())
    resumed = [*begun, *rest]
    assert len(resumed) == 6
    for expected, actual in zip(whole, resumed, strict=True):
        assert all(torch.equal(expected[key], actual[key]) for key in expected)


def test_another_seed_is_another_data_set(task):
    other = type(task)(**{**settings_of(task), "data_seed": 1})
    assert other.load().fingerprint != task.load().fingerprint
    numbers = range(20)
    assert not torch.equal(other.split("test").batch(numbers)["tokens"], task.split("test").batch(numbers)["tokens"])


def test_the_first_examples_do_not_depend_on_how_many_there_are(task):
    more = type(task)(**{**settings_of(task), "train": 10**9, "test": 5})
    more.load()
    for name in ("train", "test"):
        assert torch.equal(more.split(name).batch(range(5))["tokens"], task.split(name).batch(range(5))["tokens"])
    assert len(more.split("train").batch([10**9 - 1])["tokens"]) == 1


def test_chance_is_what_guessing_scores(task):
    """Always the same answer, over all that there are: within four standard errors of the chance that is told."""
    answers = task.split("train").sequences(range(2000)).answers
    answers = answers[answers != NO_ANSWER]
    counts = np.bincount(answers)
    assert counts.nonzero()[0].tolist() == list(task.answer_tokens)
    counts = counts[counts > 0]
    share = 1 / len(task.answer_tokens)
    error = 100 * np.sqrt(share * (1 - share) / len(answers))
    # keys repeat within an example, and a chain has its own frequent symbols: answers are not independent
    repeats = getattr(task, "asked", 1) / getattr(task, "pairs", 1) if isinstance(task, Recall) else 1
    repeats = {"Capacity": 3, "Markov": task.length}.get(type(task).__name__, max(1, repeats))
    assert abs(100 * counts.max() / len(answers) - task.chance) < 4.5 * error * np.sqrt(repeats)
    assert task.chance == pytest.approx(100 * share)
    guess = task.baselines()[task.baseline_name]()
    metrics, split = task.metrics(), task.split("test")
    task.score(guess, split.batch(range(len(split))), metrics)
    assert abs(metrics.compute()["acc"] - task.chance) < 12


def test_a_forgetful_and_a_perfect_model_score_chance_and_everything(task):
    class Known(torch.nn.Module):
        def __init__(self, answers, shift):
            super().__init__()
            self.logits = torch.nn.functional.one_hot((answers.clamp(min=0) + shift) % task.vocab_size, task.vocab_size)

        def forward(self, tokens):
            whole = torch.zeros(*tokens.shape, task.vocab_size)
            places = slice(None, -1) if isinstance(task, Compression) else slice(-self.logits.shape[1], None)
            whole[:, places] = 50.0 * self.logits
            return whole

    batch = task.split("test").batch(range(40))
    for shift, expected in ((0, 100.0), (1, 0.0)):
        metrics = task.metrics()
        scores = task.score(Known(batch["answers"], shift), batch, metrics)
        assert scores["acc"].tolist() == [expected] * 40 and float(metrics.compute()["acc"]) == expected
    assert float(task.loss(Known(batch["answers"], 0), batch)) < 1e-6


def test_a_query_that_is_not_scored_changes_nothing():
    task = made("recall")
    model = torch.nn.Sequential(torch.nn.Embedding(task.vocab_size, 8), torch.nn.Linear(8, task.vocab_size))
    batch = task.split("test").batch(range(8))
    logits = task.answer_logits(model, batch).detach()
    noise = torch.randn_like(logits) * (batch["answers"] == NO_ANSWER)[:, :, None]

    def noisy(tokens):
        return torch.cat([torch.zeros(8, task.lengths[0], task.vocab_size), logits + noise], 1)

    scores = [task.score(predictor, batch, task.metrics())["acc"] for predictor in (model, noisy)]
    assert noise.any() and torch.equal(*scores)
    assert task.loss(model, batch).item() == pytest.approx(task.loss(noisy, batch).item())


def test_queries_of_recall_follow_the_power_law():
    """The nearer place is the likelier one: with power .01 about as 1 / place."""
    task = made("recall", length=60, pairs=1, power=0.01)
    places = task.split("train").sequences(range(4000)).answers != NO_ANSWER
    counts = places.sum(0)[::2]
    law = np.arange(1, len(counts) + 1) ** -0.99
    expected = 4000 * law / law.sum()
    assert not places[:, 1::2].any()
    assert ((counts - expected) ** 2 / expected).sum() < 70  # chi^2 of 28 degrees of freedom, far in its tail


def test_noise_takes_the_share_that_is_set():
    for noise in (0.0, 0.25, 0.5):
        task = made("noisy recall", noise=noise)
        facts = task.split("test").sequences(range(50)).facts
        slots = task.lengths[0] // 2
        assert set((facts[:, ::2] >= 2 * task.half).sum(1).tolist()) == {round(noise * slots)}


def test_a_needle_stands_at_its_distance():
    task = made("needle")
    for distance in (1, 9, 28):
        tokens = task.split(f"distance_{distance}").batch(range(50))["tokens"]
        value = (tokens[:, :-1] == 0).int().argmax(1) + 1
        assert set((task.length - 1 - value).tolist()) == {distance}
    everywhere = (task.split("train").batch(range(2000))["tokens"][:, :-1] == 0).int().argmax(1)
    assert len(everywhere.unique()) == task.length - 2


def test_longer_sequences_keep_the_pairs():
    task = made("extrapolation")
    for factor in (2, 4, 8, 16):
        facts, queries, _ = task.split(f"factor_{factor}").sequences(range(30))
        assert facts.shape[1] + queries.shape[1] == factor * task.length
        assert set((facts[:, ::2] < task.half).sum(1).tolist()) == {task.pairs}


def test_capacity_has_the_pairs_that_are_set():
    task = made("capacity")
    for name, expected in {"pairs_2": [2], "pairs_8": [8], "test": [2, 3, 6]}.items():
        tokens = task.split(name).batch(range(300))["tokens"]
        counts = (tokens >= 20).sum(1)
        assert counts.unique().tolist() == expected
        assert all(80 < (counts == count).sum() < 120 for count in expected) or len(expected) == 1


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("recall", {"pairs": 30}, "vocabulary=40 has 19 keys"),
        ("recall", {"length": 20}, "length=20 has no room"),
        ("recall", {"fill": "zeros"}, "fill='zeros' is none of blank, random"),
        ("noisy recall", {"noise": 1}, "noise=1 is not from 0 to 1"),
        ("noisy recall", {"length": 43}, "is odd"),
        ("compression", {"pattern": "causal_cross"}, "has no causal_cross form"),
        ("needle", {"distances": [29]}, "distances=29 is not from 1 to 28"),
        ("extrapolation", {"factors": [1]}, "is less than 2"),
        ("needle", {"train": 0}, "train=0 is less than 1"),
        ("capacity", {"scored": [30]}, "vocabulary=40 has 19 keys, fewer than pairs=30"),
        ("capacity", {"pairs": [19]}, "length=48 has no room for pairs=19 and queries=6"),
        ("state tracking", {"group": "s4"}, "group='s4' is none of parity, s3, a5"),
        ("state tracking", {"pattern": "noncausal_self"}, "has no noncausal_self form"),
        ("markov", {"order": 3}, "order=3 is neither 1 nor 2"),
        ("markov", {"ranges": [10, 20]}, "do not rise to length=40"),
    ],
)
def test_settings_that_cannot_be_are_refused(name, settings, message):
    with pytest.raises(ValueError, match=".*".join(message.split(" ... "))) as error:
        made(name, **settings)
    assert "\n" not in str(error.value)


PATTERNS = [
    (name, pattern) for name, (make, _) in CASES.items() if "," not in name for pattern in sorted(make.patterns)
]


@pytest.mark.parametrize(("name", "pattern"), PATTERNS)
def test_every_pattern_asks_the_same_of_its_backbone(name, pattern):
    """Loss and scores are finite, an answer cannot be seen, and in the decoder no query sees a later one."""
    name = name.replace(" ", "_")
    cfg = compose([f"task=probe/{name}", "budget=smoke", f"task.pattern={pattern}", "model=vanilla"])
    torch.manual_seed(0)
    built = build(cfg)
    task, model = built.task, built.model.eval()
    task.load()
    batch = task.split("test").batch(range(4))
    assert task.loss(model, batch).isfinite()
    other = {**batch, "answers": torch.where(batch["answers"] == NO_ANSWER, NO_ANSWER, batch["answers"].flip(0))}
    logits = task.answer_logits(model, batch)
    assert logits.shape == (*batch["answers"].shape, task.vocab_size)
    assert torch.equal(logits, task.answer_logits(model, other))
    if pattern is not Pattern.NONCAUSAL_SELF and name not in ("compression", "needle"):
        tokens = torch.cat([batch["tokens"][:, :-1], (batch["tokens"][:, -1:] + 1) % task.vocab_size], 1)
        assert torch.allclose(logits[:, :-1], task.answer_logits(model, {**batch, "tokens": tokens})[:, :-1], atol=1e-5)


@pytest.mark.parametrize("pattern", ["noncausal_self", "causal_cross"])
def test_another_pattern_is_one_change_of_the_recipe(pattern):
    """Backbone and sizes follow from the pattern, so that a table's column sets the pattern alone."""
    overrides = ["task=probe/recall", "budget=reduced", "model=vanilla", f"task.pattern={pattern}"]
    only = {"task.pattern": ["causal_self", pattern]}
    assert changes(cell_of(compose(overrides))) == only
    slower = changes(cell_of(compose([*overrides, "train.optimizer.lr=0.001"])))
    assert slower == only | {"train.optimizer.lr": [0.003, 0.001]}


def test_the_state_of_a_decoder_is_counted():
    """Of its caches, the tokens of the example count, not the room for more."""
    cases = [("vanilla", "causal_self", 2 * 2 * 24 * 32), ("vanilla", "causal_cross", None)]
    for model, pattern, numbers in (*cases, ("hyena", "causal_self", 2 * (2 * 24 + 2 * 3) * 32)):
        cfg = compose(["task=probe/recall", "budget=smoke", f"task.pattern={pattern}", f"model={model}"])
        built = build(cfg)
        built.task.load()
        [evaluation] = built.task.final_evaluations()
        assert evaluation.name == "decoding_state" and len(evaluation.split) == 1
        metrics = evaluation.metrics()
        with torch.no_grad():
            stored = evaluation.score(built.model.eval(), evaluation.split.batch([0]), metrics)["numbers"]
        assert float(stored) == float(metrics.compute()["numbers"]) > 0
        assert numbers is None or float(stored) == numbers
    assert made("recall", pattern="noncausal_self").final_evaluations() == [], "of an encoder none"


@pytest.mark.parametrize(
    ("name", "finals"),
    [("needle", {"distance_1", "distance_8", "distance_22"}), ("long_recall", {"factor_2", "factor_4"})],
)
def test_trains_and_makes_its_final_evaluations(name, finals, places):
    cfg = compose([f"task=probe/{name}", "budget=smoke", "trainer=cpu", "model=vanilla", *places])
    result = run_cell(request_of(cfg))
    assert result.state == "done", result.detail
    [record] = (json.loads(path.read_text()) for path in Path(cfg.paths.records).rglob("*.json"))
    assert record["metrics"]["best"]["test"]["n"] == 96 and record["data"]["source"] == "synthetic"
    assert finals <= record["evaluations"].keys()
    assert all(entry["status"] == "done" for entry in record["evaluations"].values())
