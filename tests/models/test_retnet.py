"""Retention's decays, its two public forms, and its start."""

import math

import pytest
import torch
from golden import golden, needs_golden

from models.attention import retnet
from models.attention.retnet import RetNet
from models.ops.tiles import TileBudget

ROLES = {"w_q": "q_proj", "w_k": "k_proj", "w_v": "v_proj", "w_g": "gate_proj", "w_o": "out_proj"}


def published(case, **hyper):
    meta, a = golden(case)
    size = meta["hyper"]
    model = RetNet(size["d"], size["heads"], pattern=meta["pattern"], max_length=size["n"], **hyper).double()
    with torch.no_grad():
        for role, name in ROLES.items():
            getattr(model, name).weight.copy_(a[role])
    return model, a


@needs_golden
@pytest.mark.parametrize("case", ["retnet_n63", "retnet_n64"])
class TestPublished:
    def test_step_form_is_the_one_without_a_divisor(self, case):
        model, a = published(case)
        torch.testing.assert_close(model(a["x"])[0], a["y_recurrent"], atol=1e-12, rtol=0)

    def test_parallel_form_differs_by_the_epsilon_of_the_norm(self, case, monkeypatch):
        model, a = published(case)
        assert 1e-5 < (model(a["x"])[0] - a["y"]).abs().max() < 1e-4
        monkeypatch.setattr(retnet, "EPSILON", 0.0)
        other, _ = published(case, divide_scores=True)
        torch.testing.assert_close(model(a["x"])[0], other(a["x"])[0], atol=1e-12, rtol=0)

    def test_divisors_of_any_tile(self, case, monkeypatch):
        model, a = published(case, divide_scores=True)
        monkeypatch.setattr(retnet, "TILE", TileBudget(5 * 2 * 4 * a["x"].shape[1], 1))
        torch.testing.assert_close(model(a["x"])[0], a["y"], atol=1e-9, rtol=0)


def test_decays_keep_their_digits():
    expected = [math.log1p(-(2.0 ** -(5 + h))) for h in range(40)]
    torch.testing.assert_close(retnet.log_decays(40), torch.tensor(expected, dtype=torch.float64), atol=0, rtol=1e-15)


@pytest.mark.parametrize("divide_scores", [False, True])
def test_only_without_divided_scores_it_is_linear(divide_scores):
    model = RetNet(8, 2, pattern="causal_self", max_length=4, divide_scores=divide_scores)
    assert model.linear is model.chunked is not divide_scores
