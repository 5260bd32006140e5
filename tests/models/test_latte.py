"""Latte's family beyond the contract: start, dropout."""

import pytest
import torch
from zoo import build, inputs, run

from models.attention.base import Pattern
from models.attention.latte import Latte


def test_learned_rotations_start_as_the_fixed_ones():
    x, _ = inputs(Pattern.CAUSAL_SELF, 12)
    fixed, learned = (
        run(build("latte", Pattern.CAUSAL_SELF, perturb=False, learn_rotation=learn), x) for learn in (False, True)
    )
    torch.testing.assert_close(learned, fixed, atol=1e-6, rtol=0)


@pytest.mark.parametrize("pattern", sorted(Latte.patterns))
def test_dropout_of_latent_shares_is_causal_alone(pattern):
    """Dropout acts on the window's weights in both forms (D-39)."""
    x, _ = inputs(pattern, 9)
    for name, acts in (("latte", pattern is Pattern.CAUSAL_SELF), ("latte_swa", True)):
        model = build(name, pattern, dropout=0.5).train()
        assert torch.equal(run(model, x), run(model, x)) is not acts
        assert (model.mixture(x) == 0).any() == (pattern is Pattern.CAUSAL_SELF)


def test_weights_start_as_in_the_public_code():
    """LeCun-normal as in flax: truncated at two standard deviations, but with variance 1 / inputs."""
    torch.manual_seed(0)
    model = Latte(512, 4, pattern="noncausal_self", max_length=8, latents=256, window=4)
    for layer in (model.q_proj, model.k_proj, model.v_proj, model.out_proj, model.local.q_proj, model.local.k_proj):
        assert layer.bias is None
        torch.testing.assert_close(layer.weight.std().item(), 512**-0.5, rtol=0.01, atol=0)
        assert 2.2 * 512**-0.5 < layer.weight.abs().max() <= 2 * 512**-0.5 / 0.87962566
