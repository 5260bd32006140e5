"""Which parameters of each model have no weight decay, as in the method's public code (D-48)."""

import pytest
import torch
from zoo import DECODERS, DIM, HEADS, MAX_LENGTH, NAMES, by_first, load

from harness.config.build import on_meta, parameter_groups
from harness.config.compose import compose

ALL = "all"
RWKV7_MAPS = {f"{name}_map.{part}.weight" for name in ("decay", "rate", "gate") for part in ("inner", "outer")}
# parameters of a layer as configured; every model that is not named here leaves all of them to the recipe
EXEMPT = {
    "gated_deltanet": {"log_rate", "decay_bias"},
    "h3": {"shift.enter", "diagonal.enter", "diagonal.log_decay", "diagonal.frequency", "diagonal.log_step"},
    "hyena": {
        *(f"filters.hidden.{i}.{kind}" for i in range(3) for kind in ("weight", "bias")),
        *("filters.out.weight", "filters.frequency"),
    },
    "kda": {"log_rate", "decay_bias"},
    "mamba": {"log_decay", "skip"},
    "mamba2": {"log_decay", "skip", "step_bias"},
    "rwkv4": ALL,
    "rwkv7": RWKV7_MAPS
    | {"shift.shares", "decay_map.outer.bias", "rate_map.outer.bias", "removal_weight", "rate_weight", "bonus"}
    | {"norm_weight", "norm_bias"},
    "xlstm": {"block.skip", "block.norm.weight", "block.gate_proj.bias", "block.convolution.bias"},
}


def layer_of(name, **overrides):
    cls, hyper = load(name)
    pattern = min(cls.patterns)
    return cls(DIM, HEADS, pattern=pattern, max_length=MAX_LENGTH, **{**hyper, **overrides})


def without_decay(layer):
    """Names of the parameters that AdamW with a weight decay of 1 does not shrink; their gradients are zero."""
    optimizer = torch.optim.AdamW(parameter_groups(layer), lr=0.1, weight_decay=1.0)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.fill_(1.0)
            parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    return {name for name, parameter in layer.named_parameters() if (parameter == 1).all()}


SCALAR = {*(f"block.{gate}_proj.bias" for gate in "ifzo"), "block.recurrent", "block.ffn_norm.weight"}
SCALAR |= {"block.norm.weight", "block.convolution.bias"}
CASES = [(name, {}, EXEMPT.get(name, set())) for name in NAMES]
CASES += [
    ("xlstm", {"slstm_at": [0], "ffn": True}, SCALAR),
    ("rwkv4", {"channel_mix": True}, ALL),
    ("h3", {"head_width": 2}, EXEMPT["h3"]),
    ("s4d", {"slow_lr": 0.1}, {"log_decay", "frequency", "log_step"}),
    ("s5", {"slow_lr": 0.1, "slow": ("eigenvalues",)}, {"eigenvalues"}),
]


@by_first(("name", "settings", "expected"), CASES)
def test_exempt_parameters_are_those_of_the_public_code(name, settings, expected):
    layer = layer_of(name, **settings)
    names = {name for name, _ in layer.named_parameters()}
    assert without_decay(layer) == (names if expected is ALL else expected)


@pytest.mark.parametrize("name", DECODERS)
def test_whole_decoders_leave_all_parameters_to_the_recipe(name):
    model = on_meta(compose([f"model={name}", "task=lm/wikitext103", "budget=smoke"])).model
    assert [id(p) for p in parameter_groups(model)] == [id(p) for p in model.parameters()]
