"""Latte's family beyond the contract: start, dropout."""

import pytest
import torch
from zoo import build, inputs, run

from harness.config.compose import compose
from models.attention.base import Pattern
from models.attention.latte import Latte


def test_learned_rotations_start_as_the_fixed_ones():
    x, _ = inputs(Pattern.CAUSAL_SELF, 12)
    fixed, learned = (
        run(build("latte", Pattern.CAUSAL_SELF, perturb=False, learn_rotation=learn), x) for learn in (False, True)
    )
    torch.testing.assert_close(learned, fixed, atol=1e-6, rtol=0)


def test_the_papers_budget_learns_the_rotation():
    """As the paper says (D-6), wherever there is one."""
    made = {
        (model, task, budget): compose([f"model={model}", f"task={task}", f"budget={budget}", "protocol=latte"]).model
        for model in ("latte", "latte_swa")
        for task, budget in (("lm/openwebtext", "paper"), ("lm/openwebtext", "reduced"))
    }
    assert {key[2] for key, model in made.items() if model.vapor and model.learn_rotation} == {"paper"}
    assert not Latte(16, 2, pattern="causal_self", max_length=8, latents=8, vapor=False, learn_rotation=True).vapor


@pytest.mark.parametrize("pattern", sorted(Latte.patterns))
def test_dropout_of_latent_shares_is_causal_alone(pattern):
    """Dropout acts on the window's weights in both forms (D-39)."""
    x, _ = inputs(pattern, 9)
    for name, acts in (("latte", pattern is Pattern.CAUSAL_SELF), ("latte_swa", True)):
        model = build(name, pattern, dropout=0.5).train()
        assert torch.equal(run(model, x), run(model, x)) is not acts
        assert (model.mixture(x) == 0).any() == (pattern is Pattern.CAUSAL_SELF)
