"""Parameter groups: some parameters have a learning rate of their own."""

import pytest
import torch

from harness.config.build import build, on_meta, parameter_groups
from harness.config.compose import compose
from harness.errors import UsageError

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
