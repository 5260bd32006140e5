"""A layer that sees the future is refused before it trains, and the probe leaves no trace in the random numbers."""

import pytest
import torch

from harness.config.build import build
from harness.config.compose import compose
from harness.errors import UsageError
from harness.training.causality import require_causal
from models.attention.base import MultiHead, Pattern


class Leaking(MultiHead):
    patterns = frozenset({Pattern.CAUSAL_SELF, Pattern.NONCAUSAL_SELF})

    def attend(self, q, k, v, key_padding_mask):
        return v.mean(2, keepdim=True) + 0 * q


def layer(pattern, kind=Leaking):
    return kind(16, 2, pattern=pattern, max_length=64)


def test_a_leaking_layer_is_refused_with_the_command_that_shows_it():
    settings = {"name": "mine", "_target_": "mypkg.Leaking"}
    with pytest.raises(UsageError, match=r"Leaking.*sees the future.*do=verify model=custom model._target_=mypkg"):
        require_causal(torch.nn.Sequential(layer("causal_self")), settings)
    require_causal(torch.nn.Sequential(layer("noncausal_self")), settings)


@pytest.mark.parametrize("model", ["vanilla", "lavo", "mamba"])
def test_causal_layers_pass_and_random_numbers_stay(model):
    torch.manual_seed(3)
    cfg = compose([f"model={model}", "task=probe/recall", "budget=smoke"])
    built = build(cfg)
    before = torch.random.get_rng_state()
    require_causal(built.model, cfg.model)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_what_does_not_run_on_a_few_tokens_is_not_judged():
    class Broken(Leaking):
        def attend(self, q, k, v, key_padding_mask):
            raise RuntimeError("needs its GPU")

    require_causal(torch.nn.Sequential(layer("causal_self", Broken)), {"name": "x"})
