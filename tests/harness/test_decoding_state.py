"""Each causal model declares how many numbers its decoding keeps, as a formula that holds, and what scales them."""

import functools

import pytest
import torch

from harness.commands.verify import build_layer
from harness.commands.verify_checks import LENGTH, declared_state, wrong_state
from harness.config.build import is_attention
from harness.config.compose import OWN_CLASS, arguments, compose, options
from harness.config.declared import declared
from harness.config.instantiate import target
from harness.errors import UsageError
from models.attention.base import Pattern
from tests.helpers.cells import with_model

SIZES = ["task=probe/recall", "backbone.dim=64", "backbone.heads=4"]
CHOSEN = {"griffin": 96}  # values for settings that are null, without an attribute of that name
KIND = {"based": ["model.block_types=[linear]"]}  # of the layer that the formula is of; the recipe's first is another
TAKEN = {"heads", "segments"}  # of the recipe, and a list


@functools.cache
def layers():
    """{model: (cfg, layer)} of the attentions that decode, by `causal_self`."""
    made, any_model = {}, compose(["budget=reduced", *SIZES])
    for name, _ in options("model"):
        if name in OWN_CLASS:
            continue
        kind = KIND.get(name)
        cfg = compose([f"model={name}", "budget=reduced", *SIZES, *kind]) if kind else with_model(any_model, name)
        if is_attention(target(arguments(cfg.model), "model", [])):
            torch.manual_seed(0)
            try:
                layer = build_layer(cfg, Pattern.CAUSAL_SELF, 8 * LENGTH)
                layer.init_state(1)
            except (UsageError, NotImplementedError):
                continue
            made[name] = cfg, layer
    return made


def test_all_of_them_declare_a_formula_that_holds():
    faults = {}
    for name, (cfg, layer) in layers().items():
        state = declared(cfg.model).state
        faults[name] = "no declares.state" if state is None else wrong_state(state.numbers, layer, arguments(cfg.model))
    assert {name: fault for name, fault in faults.items() if fault} == {} and len(faults) > 36


@pytest.mark.slow
def test_the_named_setting_changes_it():
    for name, (cfg, layer) in layers().items():
        state = declared(cfg.model).state
        if state.scales_with in (None, *TAKEN):
            continue
        value = arguments(cfg.model).get(state.scales_with) or vars(layer).get(state.scales_with, layer.head_dim)
        other = CHOSEN.get(name, 2 * value)
        words = [f"model={name}", "budget=reduced", *SIZES, *KIND.get(name, ())]
        changed = compose([*words, f"model.{state.scales_with}={other}"])
        scaled = build_layer(changed, Pattern.CAUSAL_SELF, 8 * LENGTH)
        numbers = [
            declared_state(state.numbers, built, arguments(made.model), 300)
            for built, made in ((layer, cfg), (scaled, changed))
        ]
        assert numbers[0] != numbers[1], (name, state.scales_with)
        assert not wrong_state(state.numbers, scaled, arguments(changed.model)), name


def test_a_wrong_formula_is_a_fault():
    cfg = compose(["model=latte", "budget=reduced", *SIZES])
    layer, settings = build_layer(cfg, Pattern.CAUSAL_SELF, 8 * LENGTH), arguments(cfg.model)
    assert "but decoding keeps 544" in wrong_state("latents * head_dim", layer, settings)
    with pytest.raises(UsageError, match="no number 'nothing'"):
        wrong_state("nothing", layer, settings)
