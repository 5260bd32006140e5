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
