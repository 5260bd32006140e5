"""RWKV-7 beyond the contract: its start and sizes, the first layer's values in a stack, decoding of a stack."""

from itertools import pairwise

import pytest
import torch
from drawn import draw
from twins import trainable

from models.attention.rwkv7 import RWKV7


def stack(layers, dim=8, heads=2, **hyper):
    torch.manual_seed(0)
    models = [RWKV7(dim, heads, pattern="causal_self", max_length=8, **hyper) for _ in range(layers)]
    for previous, layer in pairwise(models):
        layer.set_previous(previous)
    return models


def perturbed(model):
    model = model.double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return model


def test_starts_as_published():
    """Channels 0, 63 and 255 of layers 0 and 2 of 4; four heads of 64."""
    for index, exponent in ((0, 1.0), (2, 0.5)):
        layer = stack(4, 256, 4)[index]
        channel = torch.arange(256) / 256
        for mu, share in zip(layer.shift.shares, (0.2, 0.9, 0.7, 0.7, 0.9, 0.2), strict=True):
            torch.testing.assert_close(mu, channel ** (share * exponent))
        depth = (index / 3) ** 0.3
        decay = [-6 + 0.5 - 2.5, 6 * (63 / 255) ** (1 + depth) - 5.5 + 2.5, 3.0]
        torch.testing.assert_close(layer.decay_map.outer.bias[[0, 63, 255]], torch.tensor(decay))
        torch.testing.assert_close(layer.norm_weight, torch.full((256,), ((index + 1) / 4) ** 0.7))
        rate = [-0.19 - 0.3 - 0.2, -0.19 + 0.3 + 0.2]
        torch.testing.assert_close(layer.rate_map.outer.bias[[0, 255]], torch.tensor(rate))
        torch.testing.assert_close(layer.removal_weight[[0, 255]], torch.tensor([0.76, 0.66]))
        assert (layer.rate_weight == 1.02).all() and (layer.bonus == -0.04).all()
        assert (layer.out_proj.weight == 0).all() and (layer.norm_bias == 0).all()
        for name, gain in {"r": 0.5, "k": 0.05, "v": 0.5}.items():
            bound = gain / 16
            assert 0.97 * bound < getattr(layer, f"{name}_proj").weight.abs().max() <= bound
    torch.testing.assert_close(layer.value_map.outer.bias[[0, 255]], torch.tensor([0.93, 0.53]))


@pytest.mark.parametrize(("dim", "rank"), [(8, 12), (12, 8)])
def test_low_rank_maps_start_at_zero_with_orthogonal_outputs(dim, rank):
    layer = stack(1, dim, decay_rank=rank)[0].decay_map
    assert (layer.inner.weight == 0).all()
    smaller, gain = min(dim, rank), max(1.0, rank / dim) ** 0.5
    w = layer.outer.weight if dim < rank else layer.outer.weight.mT
    torch.testing.assert_close(w @ w.mT, 0.01 * gain**2 * torch.eye(smaller), atol=1e-6, rtol=0)


def test_later_layers_have_more_parameters():
    first, second = stack(2, 8, value_rank=3)
    assert trainable(second) - trainable(first) == 8 * (2 * 3 + 1)


def test_values_of_the_first_layer_reach_later_ones():
    """Each layer hands on v of the first one, mixed into its own v by a share per channel."""
    first, second, third = (perturbed(layer) for layer in stack(3))
    x = draw(1, 5, 8)
    _, carry = first(x)
    to_v = first.shift(x, torch.zeros(1, 8).double())[0][3]
    torch.testing.assert_close(carry, first.v_proj(to_v))
    _, handed = second(x, carry=carry)
    assert handed is carry
    with torch.no_grad():
        third.value_map.outer.bias.fill_(-100.0)  # a share of zero
    torch.testing.assert_close(third(x, carry=carry)[0], third(x, carry=100 * carry)[0])
    with torch.no_grad():
        third.value_map.outer.bias.fill_(100.0)  # a share of one
        expected = third(x, carry=carry)[0]
        third.v_proj.weight.zero_()
    torch.testing.assert_close(third(x, carry=carry)[0], expected)
