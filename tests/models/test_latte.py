"""Latte's family beyond the contract: sizes of the decoding state, positions, refusals."""

import pytest
import torch
from torch.utils._pytree import tree_flatten
from zoo import DIM, HEADS, SELF, build, inputs, run

from models.attention.base import Pattern
from models.attention.latte import Latte

LATENTS, WINDOW, TAPS = 8, 4, 3  # in the tests' size
SOFTMAX, CONV, RECURRENCE, RING = LATENTS + LATENTS * DIM // HEADS, (TAPS - 1) * DIM, DIM, 2 * WINDOW * DIM
STATES = {
    "latte": SOFTMAX,
    "latte_swa": SOFTMAX + RING,
    "latte_conv": SOFTMAX + CONV,
    "latte_conv_swa": SOFTMAX + CONV + RING,
    "latte_rglru": SOFTMAX + RECURRENCE,
    "latte_rglru_swa": SOFTMAX + RECURRENCE + RING,
    "rglru_swa": RECURRENCE + RING,
}
FAMILY = [case for case in SELF if case[0] in STATES]


@pytest.mark.parametrize("name", STATES)
def test_size_of_the_decoding_state(name):
    model = build(name, Pattern.CAUSAL_SELF)
    state = model.init_state(3)
    for x_t in torch.randn(2 * WINDOW, 3, DIM):
        _, state = model.step(x_t, state)
    numbers = sum(leaf.numel() for leaf in tree_flatten(state)[0] if isinstance(leaf, torch.Tensor))
    assert numbers == 3 * STATES[name]


@pytest.mark.parametrize(
    ("name", "vapor", "told_apart"),
    [("latte", False, False), ("latte", True, True), ("latte_conv", False, True), ("latte_rglru", False, True)],
)
def test_what_tells_positions_apart(name, vapor, told_apart):
    model = build(name, Pattern.CAUSAL_SELF, vapor=vapor).double()
    x, _ = inputs(Pattern.CAUSAL_SELF, 12, dtype=torch.float64)
    last, shuffled = (run(model, torch.cat([past, x[:, 9:]], 1))[:, -1] for past in (x[:, :9], x[:, :9].flip(1)))
    assert (last - shuffled).abs().max().item() > 1e-3 if told_apart else torch.allclose(last, shuffled)


def test_learned_rotations_start_as_the_fixed_ones():
    x, _ = inputs(Pattern.CAUSAL_SELF, 12)
    fixed, learned = (
        run(build("latte", Pattern.CAUSAL_SELF, perturb=False, learn_rotation=learn), x) for learn in (False, True)
    )
    torch.testing.assert_close(learned, fixed, atol=1e-6, rtol=0)


def test_the_window_of_the_noncausal_form_reaches_half_of_it_to_either_side():
    model = build("latte_swa", Pattern.NONCAUSAL_SELF, window=6).local
    x = torch.randn(1, 20, DIM)
    v = torch.randn(1, HEADS, 20, DIM // HEADS, requires_grad=True)
    (gradient,) = torch.autograd.grad(model(x, v)[:, :, 10].sum(), v)
    assert gradient.abs().sum((0, 1, 3)).nonzero().flatten().tolist() == list(range(7, 14))


def test_vapor_leaves_the_values_of_the_window_as_they_are():
    """If the window's state has all weight, a window of one token returns that token's value."""
    model = build("latte_swa", Pattern.CAUSAL_SELF, window=1).double()
    x, _ = inputs(Pattern.CAUSAL_SELF, 9, dtype=torch.float64)
    x[..., 0] = 1.0
    with torch.no_grad():
        model.q_proj.weight.zero_()
        model.q_proj.weight[:: model.states, 0] = 100.0
    torch.testing.assert_close(run(model, x), model.out_proj(model.v_proj(x)))


@pytest.mark.parametrize("pattern", sorted(Latte.patterns))
def test_dropout_of_latent_shares_is_causal_alone(pattern):
    """Dropout acts on the window's weights in both forms (D-39)."""
    x, _ = inputs(pattern, 9)
    for name, acts in (("latte", pattern is Pattern.CAUSAL_SELF), ("latte_swa", True)):
        model = build(name, pattern, dropout=0.5).train()
        assert torch.equal(run(model, x), run(model, x)) is not acts
        assert (model.mixture(x) == 0).any() == (pattern is Pattern.CAUSAL_SELF)


@pytest.mark.parametrize("rope", [True, False])
def test_only_rope_tells_the_window_where_its_keys_are(rope):
    """Without rotation, a window that sees all tokens does not depend on the order of the earlier ones."""
    model = build("latte_swa", Pattern.NONCAUSAL_SELF, window=40, rope=rope).local.double()
    x, v = torch.randn(1, 12, DIM), torch.randn(1, HEADS, 12, DIM // HEADS)
    order = torch.tensor([*range(10, -1, -1), 11])
    last, shuffled = (model(x[:, i].double(), v[:, :, i].double())[:, :, -1] for i in (torch.arange(12), order))
    assert torch.allclose(last, shuffled) is not rope


def test_weights_start_as_in_the_public_code():
    """LeCun-normal as in flax: truncated at two standard deviations, but with variance 1 / inputs."""
    torch.manual_seed(0)
    model = Latte(512, 4, pattern="noncausal_self", max_length=8, latents=256, window=4)
    for layer in (model.q_proj, model.k_proj, model.v_proj, model.out_proj, model.local.q_proj, model.local.k_proj):
        assert layer.bias is None
        torch.testing.assert_close(layer.weight.std().item(), 512**-0.5, rtol=0.01, atol=0)
        assert 2.2 * 512**-0.5 < layer.weight.abs().max() <= 2 * 512**-0.5 / 0.87962566
