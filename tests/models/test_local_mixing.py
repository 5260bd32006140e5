"""`declares: local` of every model: what it says, and what its layers hold with and without the declared settings."""

import re

import pytest
import torch
from zoo import CLASSES, DIM, EVERY, HEADS, MAX_LENGTH, build, in_chunks, inputs, load

from harness.commands.list import local_mixing
from harness.config.compose import option_config
from models.attention.base import Pattern
from models.attention.rwkv4 import TokenShift
from models.layers.convolution import ShortConvolution

PART = re.compile(r"conv \d+|shift( \d+)?|average|recurrence|window \d+")
TAPS = {"conv": 4}
ON = {"forgetting": {"kv_shift": True}, "nystrom": {"conv_kernel": 3}, "gla": TAPS, "hgrn2": TAPS}  # off as published


def declares(name):
    return option_config("model", name).declares


def switches(name):
    return dict(declares(name).get("short_conv") or {})


OWN = [name for name in EVERY if switches(name)]


def layer(name, **settings):
    pattern = Pattern.CAUSAL_SELF if Pattern.CAUSAL_SELF in CLASSES[name].patterns else Pattern.NONCAUSAL_SELF
    return build(name, pattern, **settings).double()


def convolves(model):
    """Whether a layer has a convolution of two taps or more, or a token shift."""
    modules = list(model.modules())
    if any(isinstance(m, ShortConvolution) and m.weight.shape[1] > 1 for m in modules):
        return True
    return any(isinstance(m, TokenShift) and m.shares is not None for m in modules)


@pytest.mark.parametrize("name", EVERY)
def test_every_model_declares_its_local_mixing(name):
    said = local_mixing(declares(name), load(name, tiny=False)[1])
    assert said == "none" or all(PART.fullmatch(part) for part in said.split(" + ")), said


@pytest.mark.parametrize("name", OWN)
def test_the_switch_takes_the_first_part_away(name):
    settings = load(name)[1]
    on, off = ({**settings, **values} for values in (ON.get(name, {}), switches(name)))
    said = [local_mixing(declares(name), values) for values in (on, off)]
    assert said[0].removeprefix(said[0].split(" + ")[0]).removeprefix(" + ") == said[1].removesuffix("none")


@pytest.mark.parametrize("name", OWN)
def test_the_switch_changes_the_layer_and_nothing_convolves_without_it(name):
    """A layer with the switch off decodes as it reads, and trains all its parameters."""
    if "block_types" in load(name)[1]:  # the kind of block that convolves
        return check_switch(name, block_types=["conv" if name == "based" else "recurrent"])
    return check_switch(name)


def check_switch(name, **kind):
    on, off = layer(name, **kind, **ON.get(name, {})), layer(name, **kind, **switches(name))
    x, _ = inputs(off.pattern, 13, dtype=torch.float64)
    assert [p.shape for p in on.parameters()] != [p.shape for p in off.parameters()]
    assert not convolves(off)
    y = off(x)[0]
    y.square().sum().backward()
    unread = {"rows"}  # of HGRN2, in its first layer
    assert all(p.grad is not None for key, p in off.named_parameters() if key not in unread)
    if not off.pattern.causal:
        return
    with torch.no_grad():
        rows, _ = in_chunks(off, x, off.init_state(len(x)), (1, 5, 1, 6))
    torch.testing.assert_close(rows, y.detach(), atol=1e-9, rtol=0)


@pytest.mark.parametrize("name", [name for name in CLASSES if name not in OWN])
def test_a_model_that_declares_no_switch_has_no_convolution_to_switch_off(name):
    for pattern in CLASSES[name].patterns:
        assert not convolves(CLASSES[name](DIM, HEADS, pattern=pattern, max_length=MAX_LENGTH, **load(name)[1]))
