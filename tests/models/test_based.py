"""Based: the kinds of a stack, the states' sizes, the start."""

import math
from itertools import pairwise

import torch

from models.attention.based import Based, ConvBlock, LinearBlock, WindowBlock


def build(dim=16, heads=2, **hyper):
    torch.manual_seed(0)
    return Based(dim, heads, pattern="causal_self", max_length=64, **hyper)


def test_layers_cycle_through_the_kinds():
    layers = [build() for _ in range(7)]
    for previous, layer in pairwise(layers):
        layer.set_previous(previous)
    kinds = [LinearBlock, WindowBlock, ConvBlock, ConvBlock, ConvBlock, LinearBlock, WindowBlock]
    assert [type(layer.block) for layer in layers] == kinds
    assert [layer.has_weights for layer in layers] == [kind is WindowBlock for kind in kinds]
    assert all(layer.linear for layer in layers)


def test_starts_as_published():
    for kind in ("linear", "window", "conv"):
        block = build(256, 4, block_types=[kind]).block
        linears = [layer for layer in block.modules() if isinstance(layer, torch.nn.Linear)]
        assert len(linears) == (2 if kind == "conv" else 4)
        for layer in linears:
            assert abs(layer.weight.std() - 0.02) < 0.001
            assert (layer.bias is not None) == (kind == "conv") and (layer.bias is None or (layer.bias == 0).all())
    taps = build(256, 4, block_types=["conv"]).block.convolution.weight
    assert 0.99 / math.sqrt(3) < taps.abs().max() <= 1 / math.sqrt(3)
