"""Initial values of the models, which are those of the published code, and the kinds of layers of a stack."""

import math
from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from zoo import CLASSES, by_first, load

from models.attention.base import Pattern
from models.layers.rglru import RGLRU


def equal(value) -> Callable[[Tensor], None]:
    return lambda x: torch.testing.assert_close(x, torch.as_tensor(value, dtype=x.dtype).expand_as(x))


def normal(std, share=0.06):
    """Mean 0; `share`: by how much the drawn deviation may differ."""

    def check(x):
        assert x.std().item() == pytest.approx(std, rel=share) and abs(x.mean()) < 5 * std / x.numel() ** 0.5

    return check


def truncated(std):
    """Flax's: cut off at two standard deviations, with this deviation afterwards."""

    def check(x):
        normal(std, 0.02)(x)
        assert 2.2 * std < x.abs().max() <= 2 * std / 0.87962566

    return check


def uniform(bound, least=0.9):
    def check(x):
        assert least * bound < x.max() <= bound and -bound <= x.min() < -least * bound

    return check


def between(low, high, function=lambda x: x, *, mean=None, near=0.2):
    """Drawn from one bound to the other, after a function; `mean` is that of the logarithm."""

    def check(x):
        x = function(x)
        assert low <= x.min() and x.max() <= high
        assert mean is None or abs(x.log().mean() - mean) < near

    return check


STEP = between(0.00099, 0.101, torch.exp, mean=math.log(0.01), near=0.3)
SOFT_STEP = between(0.00099, 0.101, F.softplus, mean=math.log(0.01))
PRO = {"qk_norm": True, "kv_shift": True, "output_norm": True, "output_gate": True}
MODELS = {  # (model, width, heads, settings)
    "based, linear": ("based", 256, 4, {"block_types": ["linear"]}),
    "based, convolution": ("based", 256, 4, {"block_types": ["conv"]}),
    "block_recurrent": ("block_recurrent", 256, 2, {"gate": "lstm"}),
    "deltanet": ("deltanet", 256, 4, {}),
    "gated_deltanet": ("gated_deltanet", 1024, 1024, {}),
    "kda": ("kda", 1024, 1024, {}),
    "forgetting": ("forgetting", 128, 4, PRO),
    "griffin": ("griffin", 512, 4, {"rnn_dim": 600}),
    "griffin, local": ("griffin", 512, 4, {"block_types": ["local"]}),
    "h3": ("h3", 500, 1, {"d_state": 16}),
    "hyena": ("hyena", 256, 1, {}),
    "latte_swa": ("latte_swa", 512, 4, {"latents": 256, "window": 4}),
    "mamba": ("mamba", 512, 1, {"d_state": 5}),
    "mamba2": ("mamba2", 1024, 512, {}),
    "retnet": ("retnet", 256, 4, {}),
    "rwkv4": ("rwkv4", 8, 1, {"channel_mix": True}),
    "s4d": ("s4d", 500, 1, {"d_state": 16}),
    "s5": ("s5", 50, 1, {"d_state": 400, "blocks": 50}),
    "synthesizer": ("synthesizer", 8, 4, {"rank": 4}),
    "synthesizer, random": ("synthesizer", 8, 4, {"rank": 0}),
    "transformer_xl": ("transformer_xl", 256, 4, {}),
    "xlstm, matrix": ("xlstm", 256, 4, {"slstm_at": []}),
    "xlstm, scalar": ("xlstm", 256, 4, {"slstm_every": 1, "ffn": True}),
}
SMALL = math.sqrt(2 / (5 * 256))
# (a key of MODELS, names of parameters, how they start)
STARTS = [
    ("based, linear", "block.q_proj,block.v_proj,block.out_proj", normal(0.02)),
    ("based, convolution", "block.in_proj,block.out_proj", normal(0.02)),
    ("based, convolution", "block.convolution", uniform(3**-0.5)),
    ("block_recurrent", "q_proj,v_proj,recurrence.token_q,recurrence.state_q,recurrence.state_kv", normal(256**-0.5)),
    ("block_recurrent", "out_proj,recurrence.token_out,recurrence.gate.new", normal(512**-0.5)),
    ("block_recurrent", "recurrence.gate.gates", normal((0.1 / 512) ** 0.5)),
    ("block_recurrent", "recurrence.first_states", normal(0.1)),
    ("block_recurrent", "recurrence.ids", normal(1.0)),
    ("block_recurrent", "position_bias", normal(32**-0.5, 0.3)),
    ("block_recurrent", "factor,recurrence.token_factor,recurrence.state_factors,recurrence.norm", equal(1.0)),
    ("deltanet", "norm_weight", equal(1.0)),
    ("deltanet", "convolution", uniform(0.5)),
    ("deltanet", "qkv_proj,beta_proj,out_proj", uniform(1 / 16)),
    ("gated_deltanet", "log_rate", between(0, 16, torch.exp)),
    ("gated_deltanet", "decay_bias", SOFT_STEP),
    ("kda", "log_rate", between(1, 16, torch.exp)),
    ("kda", "decay_bias", SOFT_STEP),
    ("forgetting", "forget_proj.bias", equal(0.0)),
    ("forgetting", "q_proj,k_proj,v_proj,out_proj,gate_proj,forget_proj", normal(0.02, 0.1)),
    ("griffin", "block.x_proj,block.y_proj", normal(512**-0.5)),
    ("griffin", "block.out_proj", normal(600**-0.5)),
    ("griffin", "block.convolution", normal(0.05)),
    ("griffin", "block.convolution_bias,block.out_proj.bias", equal(0.0)),
    ("griffin, local", "block.q_proj,block.out_proj", normal(512**-0.5)),
    ("h3", "diagonal.log_decay", equal(math.log(0.5))),
    ("h3", "diagonal.frequency", equal(math.pi * torch.arange(8.0))),
    ("h3", "diagonal.log_step", STEP),
    ("h3", "shift.leave", uniform(1 / 4)),
    ("hyena", "filters.frequency", equal(14.0)),
    ("hyena", "convolution,convolution_bias", uniform(3**-0.5)),
    ("hyena", "filters.skip", normal(1.0, 0.2)),
    ("hyena", "in_proj,out_proj", uniform(1 / 16)),
    ("latte_swa", "q_proj,k_proj,v_proj,out_proj,local.q_proj,local.k_proj", truncated(512**-0.5)),
    ("mamba", "log_decay", equal(torch.arange(1.0, 6).log())),
    ("mamba", "dt_proj.bias", SOFT_STEP),
    ("mamba", "dt_proj", uniform(32**-0.5)),
    ("mamba", "convolution,convolution_bias", uniform(0.5)),
    ("mamba2", "log_decay", between(1, 16.001, torch.exp)),
    ("mamba2", "step_bias", SOFT_STEP),
    ("mamba2", "convolution,convolution_bias", uniform(0.5)),
    ("retnet", "q_proj,k_proj", uniform(2**-2.5 * (6 / 512) ** 0.5)),
    ("retnet", "v_proj,gate_proj", uniform(2**-2.5 * (6 / 768) ** 0.5)),
    ("retnet", "out_proj", uniform(0.5 * (6 / 768) ** 0.5)),
    ("rwkv4", "k_proj,r_proj,out_proj,channel_mix.v_proj,channel_mix.r_proj", equal(0.0)),
    ("s4d", "log_decay", equal(math.log(0.5))),
    ("s4d", "frequency", equal([16 / math.pi * (16 / (2 * n + 1) - 1) for n in range(8)])),
    ("s4d", "log_step", STEP),
    # mean |.|^2 of an entry: 1 / P of B; 2 / P of C, whose real and imaginary parts are drawn
    ("s5", "enter", normal(800**-0.5)),
    ("s5", "leave", normal(400**-0.5)),
    ("s5", "log_step", STEP),
    ("synthesizer", "left,right", uniform((6 / 64) ** 0.5, 0.8)),
    ("synthesizer, random", "random", uniform((6 / 96) ** 0.5, 0.8)),
    ("transformer_xl", "q_proj,v_proj,position_proj,out_proj", normal(0.02)),
    ("transformer_xl", "content_bias,position_bias", normal(0.02, 0.2)),
    ("xlstm, matrix", "block.up_proj,block.q_proj,block.v_proj", normal(SMALL)),
    ("xlstm, matrix", "block.gate_proj", equal(0.0)),
    ("xlstm, scalar", "block.i_proj,block.f_proj,block.ffn.gate", normal(SMALL)),
    ("xlstm, scalar", "block.recurrent,block.o_proj.bias", equal(0.0)),
    ("xlstm, scalar", "block.convolution,block.convolution.bias", uniform(0.5)),
]


@by_first(("key", "names", "check"), STARTS)
def test_starts_as_published(key, names, check):
    name, dim, heads, settings = MODELS[key]
    cls, pattern = CLASSES[name], Pattern.CAUSAL_SELF
    pattern = pattern if pattern in cls.patterns else Pattern.NONCAUSAL_SELF
    torch.manual_seed(0)
    parameters = dict(cls(dim, heads, pattern=pattern, max_length=12, **settings).named_parameters())
    for parameter in names.split(","):
        check(parameters.get(parameter, parameters.get(f"{parameter}.weight")).detach())


def stack(name, layers, dim=16, heads=2, **settings):
    cls, hyper = load(name)
    made = [cls(dim, heads, pattern="causal_self", max_length=8, **{**hyper, **settings}) for _ in range(layers)]
    for previous, layer in pairwise(made):
        layer.set_previous(previous)
    return made


# (model, layers, settings, a letter of the kind of each layer)
KINDS = [
    ("based", 7, {}, "LWCCCLW"),
    ("griffin", 7, {}, "RRLRRLR"),
    ("xlstm", 18, {}, "MMMMMMMSMMMMMMMSMM"),
    ("xlstm", 7, {"slstm_every": 3}, "MMSMMSM"),
    ("xlstm", 6, {"slstm_at": [0, 4]}, "SMMMSM"),
    ("xlstm", 9, {"slstm_at": []}, "MMMMMMMMM"),
    ("block_recurrent", 12, {"recurrent_layers": [10]}, "NNNNNNNNNRNN"),
    ("block_recurrent", 2, {"recurrent_layers": [10]}, "NR"),
    ("block_recurrent", 9, {"recurrent_layers": [4, 20]}, "NNNRNNNNN"),
    ("block_recurrent", 9, {"recurrent_layers": [10, 20]}, "NNNNNNNNR"),
    ("block_recurrent", 3, {"recurrent_layers": []}, "NNN"),
]


@pytest.mark.parametrize(("name", "layers", "settings", "kinds"), KINDS)
def test_kinds_of_layers(name, layers, settings, kinds):
    made = stack(name, layers, **settings)
    parts = [getattr(layer, "block", getattr(layer, "recurrence", None)) for layer in made]
    assert "".join(type(part).__name__[0] for part in parts) == kinds
    if name in ("based", "griffin"):
        assert [layer.has_weights for layer in made] == [kind == {"based": "W", "griffin": "L"}[name] for kind in kinds]


def test_the_layers_of_a_stack_of_xlstm_start_by_their_place():
    layers = stack("xlstm", 4, 256, 4, slstm_at=[1, 3], ffn=True)
    matrix, first, _, last = (layer.block for layer in layers)
    assert matrix.gate_proj.bias[4:].tolist() == [3, 4, 5, 6]
    for block, power in ((first, 0.3 + 1.3 / 3), (last, 1.6)):
        expected = 5 - 12 * (torch.arange(64) / 63) ** power
        torch.testing.assert_close(block.f_proj.bias.view(4, 64), expected.expand(4, 64))


def test_radii_of_rglru_start_in_their_ring():
    torch.manual_seed(0)
    squares = torch.exp(-2 * F.softplus(RGLRU(4000, 1000).decay))
    assert squares.min() > 0.9**2 and squares.max() < 0.999**2
    assert abs(squares.mean().item() - (0.9**2 + 0.999**2) / 2) < 0.005
