"""Probes that are scored beyond the length of training: their longer examples, and what predictors see of them."""

import numpy as np
import pytest

from tasks.probe.long_needle import LongNeedle
from tasks.probe.probe import NO_ANSWER
from tests.helpers.probes import SIZES, made


@pytest.mark.parametrize("name", ["long needle", "long recall"])
def test_longer_sequences_ask_for_the_same_facts_at_greater_distances(name):
    task = made(name)
    counts = {"factor_2": 150, "factor_8": 37}
    for variant, count in counts.items():
        split = task.split(variant)
        assert len(split) == count
        facts, queries, answers = split.sequences(range(count))
        assert facts.shape[1] + queries.shape[1] == int(variant[-1]) * task.length
        assert (answers != NO_ANSWER).sum() == count * (6 if name == "long recall" else 1)
    batches = {final.name: final.batch_size for final in task.final_evaluations()}
    assert batches["factor_2"] == (1 << 16) // (2 * task.length) and batches["decoding_state"] is None


def test_long_recall_asks_from_anywhere():
    """The mean place of a query is the middle, at each length; by the law of probe/recall most are near the facts."""
    task = made("long recall")
    for name in ("test", "factor_8"):
        _, queries, answers = task.split(name).sequences(range(37))
        places = np.nonzero(answers != NO_ANSWER)[1] / queries.shape[1]
        assert places.mean() == pytest.approx(0.5, abs=4 * (1 / 12 / len(places)) ** 0.5 + 1 / queries.shape[1])


def test_predictors_that_count_values_see_the_facts_alone_at_every_length():
    task = made("long recall")
    for name in ("test", "factor_8"):
        facts, queries, _ = task.split(name).sequences(range(20))
        tokens = task.split(name).batch(range(20))["tokens"]
        assert (
            task.facts_in(tokens).tolist() == facts.tolist()
            and tokens[:, facts.shape[1] :].tolist() == queries.tolist()
        )


def test_a_small_test_has_as_many_longer_examples():
    task = LongNeedle(**{**SIZES, "test": 7}, length=30, factors=(2,))
    assert task.examples_of("factor_2") == 7 and made("extrapolation").examples_of("factor_16") == SIZES["test"]
