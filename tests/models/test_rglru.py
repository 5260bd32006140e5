"""RG-LRU against published numbers and its own steps."""

import pytest
import torch
from drawn import leaf
from golden import check, fill, golden, leaves_of, needs_golden

from models.layers.rglru import RGLRU, NormalisedRGLRU

ROLES = {
    "a_param": "decay",
    "w_input_gate": "input_gate.weight",
    "b_input_gate": "input_gate.bias",
    "w_rec_gate": "recurrence_gate.weight",
    "b_rec_gate": "recurrence_gate.bias",
}


def layer(dim=6, blocks=2, seed=0):
    torch.manual_seed(seed)
    return RGLRU(dim, blocks).double()


@needs_golden
def test_published_numbers():
    meta, a = golden("rglru_n63")
    model = RGLRU(meta["hyper"]["width"], meta["hyper"]["blocks"]).double()
    assert set(dict(model.named_parameters())) == set(ROLES.values())
    leaves = leaves_of(a, "x") | fill(model, a, ROLES)
    check(meta, a, model(leaves["x"]), leaves)


@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
def test_gradcheck(padded):
    model, mask = layer(), None
    if padded:
        mask = torch.rand(2, 23, generator=torch.Generator().manual_seed(1)) < 0.4
    names, parameters = zip(*model.named_parameters(), strict=True)

    def run(x, *parameters):
        weights = dict(zip(names, parameters, strict=True))
        return torch.func.functional_call(model, weights, x, {"key_padding_mask": mask})

    assert torch.autograd.gradcheck(run, (leaf(2, 23, 6), *parameters), fast_mode=True)


@pytest.mark.parametrize("causal", [True, False], ids=["past", "past and future"])
def test_padding_anywhere_is_as_if_it_were_not_there(causal):
    torch.manual_seed(0)
    model, x = NormalisedRGLRU(6, 2, causal=causal).double(), leaf(2, 80, 6)
    mask = torch.rand(2, 80, generator=torch.Generator().manual_seed(1)) < 0.4
    mask[:, :3] = mask[:, -3:] = True  # neither the first token nor the last is one
    y = model(x, key_padding_mask=mask)
    for row in range(2):
        kept = x[row : row + 1, ~mask[row]]
        torch.testing.assert_close(y[row : row + 1, ~mask[row]], model(kept))


def test_the_sum_of_two_directions_is_normalised():
    torch.manual_seed(0)
    model = NormalisedRGLRU(6, 2, causal=False).double()
    x = leaf(2, 9, 6)
    y = model.past(x) + model.future(x.flip(1)).flip(1)
    expected = y * (y.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * model.norm.weight
    torch.testing.assert_close(model(x), expected)


def test_a_closed_gate_has_a_bounded_slope():
    """a = 1: the square root has no derivative at 0."""
    model = layer().float()
    with torch.no_grad():
        model.recurrence_gate.bias.fill_(-1e4)
    x = torch.randn(1, 50, 6, requires_grad=True)
    model(x).sum().backward()
    assert torch.isfinite(x.grad).all()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())


def test_a_radius_close_to_one_keeps_its_digits_in_float32():
    """With a^2 = 1 - 2e-7, the result of 1 - a^2 has one significant bit."""
    model = layer(dim=1, blocks=1)
    with torch.no_grad():
        model.decay.fill_(-18.0)  # softplus: 1.5e-8
    x = leaf(1, 40, 1)
    exact, y = model(x), model.float()(x.float())
    torch.testing.assert_close(y.double(), exact, atol=0, rtol=1e-5)


def test_refusal():
    with pytest.raises(ValueError, match="6 is not a multiple of 4 blocks"):
        RGLRU(6, 4)
