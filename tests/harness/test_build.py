"""Parameter groups, and layers that see the future: what is checked before a model trains."""

import pytest
import torch

from harness.config.build import build, on_meta, parameter_groups
from harness.config.compose import compose
from harness.errors import UsageError
from harness.training.causality import require_causal
from models.attention.base import MultiHead, Pattern

S5 = ["model=s5", "task=lra/text", "budget=smoke"]


def test_a_model_without_slow_parameters_has_one_group():
    model = on_meta(compose(["model=vanilla", "budget=smoke"])).model
    assert [id(p) for p in parameter_groups(model)] == [id(p) for p in model.parameters()]


@pytest.mark.parametrize(
    ("overrides", "names"),
    [
        (["model.slow_lr=0.5"], ("eigenvalues", "log_step", "enter")),
        (["model=s4d", "model.slow_lr=0.5"], ("log_decay", "frequency", "log_step")),
    ],
)
def test_slow_parameters_have_their_rate_and_no_decay(overrides, names):
    recipe = ["protocol=luna", "backbone.layers=2", "train.optimizer.lr=2", "train.optimizer.weight_decay=3"]
    built = build(compose([*S5, *recipe, *overrides]))
    optimizer = built.optimizer(parameter_groups(built.model))
    common, separate = optimizer.param_groups
    assert (common["lr"], common["weight_decay"]) == (2, 3) and (separate["lr"], separate["weight_decay"]) == (0.5, 0)
    slow = [p for name, p in built.model.named_parameters() if name.rpartition(".")[2] in names]
    assert len(slow) == 2 * len(names) and [id(p) for p in separate["params"]] == [id(p) for p in slow]
    every = [id(p) for group in optimizer.param_groups for p in group["params"]]
    assert len(every) == len(set(every)) and set(every) == {id(p) for p in built.model.parameters()}


def test_s5_s_recipe_asks_for_it():
    rates = {}
    for task in ("text", "pathfinder"):
        model = on_meta(compose(["model=s5", f"task=lra/{task}", "protocol=s5"])).model
        rates[task] = [group.get("lr") for group in parameter_groups(model)]
    assert rates == {"text": [None, 1e-3], "pathfinder": [None, 9e-4]}


def test_an_unknown_slow_parameter_is_refused_before_anything_is_read():
    with torch.device("meta"), pytest.raises(UsageError, match=r"slow parameters are some of .*not speed"):
        build(compose([*S5, "model.slow_lr=0.5", "model.slow=[speed]"]))


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
