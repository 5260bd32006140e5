"""MoBA's ties, its choices in 16 bits, and its decoding state."""

import pytest
import torch

from models.attention.moba import MoBA


def layer(**options):
    torch.manual_seed(0)
    return MoBA(8, 2, pattern="causal_self", **{"max_length": 64, "block": 4, "selected": 3} | options).double().eval()


def test_equal_scores_choose_the_same_blocks_in_training_and_decoding():
    """Without queries all blocks score zero, so the first are chosen."""
    model, x = layer(), torch.randn(2, 61, 8, dtype=torch.float64)
    with torch.no_grad():
        model.q_proj.weight.zero_()
        state, rows = model.init_state(2), []
        for token in x.unbind(1):
            y, state = model.step(token, state)
            rows.append(y)
        whole = model(x)[0]
        torch.testing.assert_close(torch.stack(rows, 1), whole, atol=1e-12, rtol=0)
        x[:, 8:40] = 0  # neither among the first two blocks nor in the last token's own
        torch.testing.assert_close(model(x)[0][:, 60], whole[:, 60], atol=1e-12, rtol=0)


def test_choices_do_not_change_in_sixteen_bits():
    model, x = layer().float(), torch.randn(2, 64, 8)
    with torch.autocast("cpu", torch.bfloat16):
        y = model(x)[0]
    assert (y.float() - model(x)[0]).abs().max() <= 0.02


@pytest.mark.parametrize("group", [1, 2])
def test_state_holds_keys_values_and_means(group):
    model = layer(group=group, max_length=100)
    _, state = model.chunk(torch.randn(3, 61, 8, dtype=torch.float64), model.init_state(3))
    assert state["seen"] == 61
    assert state["summaries"]["means"].shape == (3, 2 // group, 15, 4)
    assert state["k"].shape == state["v"].shape == (3, 2 // group, 64, 4)
