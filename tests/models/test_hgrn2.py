"""HGRN2 beyond the contract: lower bounds in a stack, digits of its keys."""

import copy
from itertools import pairwise

import torch
from same import assert_same
from twins import TWINS, trainable

from models.attention.hgrn2 import HGRN2

LAYERS = 3


def build(dim=16, heads=2, **hyper):
    torch.manual_seed(0)
    return HGRN2(dim, heads, pattern="causal_self", max_length=40, **hyper)


def stack(count=LAYERS):
    """Layers in a row, in float64, with drawn rows."""
    layers = joined([build().double() for _ in range(count)])
    torch.nn.init.normal_(layers[0].rows)
    return layers


def joined(layers):
    for previous, layer in pairwise(layers):
        layer.set_previous(previous)
    return layers


def test_every_layer_of_a_stack_equals_its_twin_in_output_and_every_gradient():
    layers = stack()
    x = torch.randn(2, 41, 16, dtype=torch.float64, requires_grad=True)
    padding = torch.arange(41).expand(2, 41) >= 38
    leaves = [x, *torch.nn.ModuleList(layers).parameters()]
    for layer in layers:
        pair = layer(x, key_padding_mask=padding)[0], TWINS["hgrn2"].forward(layer, x, None, padding)
        assert_same(*(y[:, :38] for y in pair), leaves, atol=1e-10)


def test_lower_bounds_grow_from_zero():
    layers = stack(5)
    shares = torch.softmax(layers[0].rows, 0)
    for layer in layers[1:]:
        bound, rest = (x.exp() for x in layer.lower_bound())
        torch.testing.assert_close(bound, shares[1 : layer.index + 1].sum(0))
        torch.testing.assert_close(bound + rest, torch.ones_like(bound))
        forget = layer.project(torch.randn(1, 9, 16, dtype=torch.float64) * 100)[0][-1].exp()
        assert (forget > bound.view(2, 1, 8) - 1e-12).all()
    bounds = torch.stack([layer.lower_bound()[0] for layer in layers[1:]])
    assert (bounds.diff(dim=0) > 0).all()


def test_layer_l_of_n_starts_with_a_bound_of_l_over_n():
    layers = joined([build() for _ in range(4)])
    assert trainable(torch.nn.ModuleList(layers)) == 4 * (4 * 16**2 + 16) + 4 * 16
    for index, layer in enumerate(layers[1:], 1):
        torch.testing.assert_close(layer.lower_bound()[0].exp(), torch.full((16,), index / 4))


def test_keys_keep_their_digits_next_to_a_gate_of_one():
    """1 - f is computed without a difference: in float32 it would be zero."""
    model = build()
    with torch.no_grad():
        model.f_proj.weight.copy_(30 * torch.eye(16))
    _, k, _, decay = model.project(torch.ones(1, 1, 16))[0]
    torch.testing.assert_close(k, torch.full_like(k, 9.3576e-14), atol=0, rtol=1e-4)
    torch.testing.assert_close(-decay, k, atol=0, rtol=1e-5)


def test_a_copied_stack_reads_its_own_rows():
    layers = torch.nn.ModuleList(stack())
    copied = copy.deepcopy(layers)
    torch.nn.init.normal_(copied[0].rows)
    x = torch.randn(2, 9, 16, dtype=torch.float64)
    assert (copied[1](x)[0] - layers[1](x)[0]).abs().max() > 1e-4
