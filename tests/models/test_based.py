"""Based: the kinds of a stack, the states' sizes, the start."""

import math
from itertools import pairwise

import pytest
import torch
from torch.utils._pytree import tree_leaves

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


@pytest.mark.parametrize(("kind", "numbers"), [("linear", 15 * (16 + 2)), ("window", 2 * 6 * 16), ("conv", 2 * 32)])
def test_sizes_of_the_states(kind, numbers):
    """m (D + H), 2 w D and (taps - 1) W numbers."""
    state = build(block_types=[kind], feature_dim=4, window=6).init_state(1)
    assert sum(leaf.numel() for leaf in tree_leaves(state) if isinstance(leaf, torch.Tensor)) == numbers


def test_weights_of_the_linear_layer_are_nearly_those_of_softmax_for_small_products():
    model = build(32, 1, block_types=["linear"]).double().eval()
    x = 0.3 * torch.randn(1, 40, 32, dtype=torch.float64)
    q, k, v = model.block.project(x)
    softmax = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    largest = (q @ k.mT).abs().max() / 4
    y, _ = model.block.attend(q, k, v, model.block.empty_state(1)["sums"])
    assert (y - softmax).abs().max() <= largest**3 * v.abs().max()
    assert largest > 1e-4  # and not merely a mean
    assert (y - softmax).abs().max() < 0.1 * (v.cumsum(2) / torch.arange(1, 41)[:, None] - softmax).abs().max()


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
