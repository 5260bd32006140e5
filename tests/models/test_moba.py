"""MoBA's limits, ties and decoding state."""

import pytest
import torch

from models.attention.moba import MoBA
from models.attention.vanilla import RotaryVanilla


def layer(**options):
    torch.manual_seed(0)
    return MoBA(8, 2, pattern="causal_self", **{"max_length": 64, "block": 4, "selected": 3} | options).double().eval()


def test_with_all_blocks_it_is_rotary_softmax_attention():
    model, dense = layer(selected=16), RotaryVanilla(8, 2, pattern="causal_self", max_length=64).double()
    dense.load_state_dict(model.state_dict())
    x = torch.randn(2, 64, 8, dtype=torch.float64)
    torch.testing.assert_close(model(x)[0], dense(x)[0], atol=1e-12, rtol=0)
    assert (layer(selected=2)(x)[0] - dense(x)[0]).abs().max() > 1e-3


def test_one_block_is_attention_within_blocks():
    model, x = layer(selected=1), torch.randn(2, 13, 8, dtype=torch.float64)
    changed = torch.cat([torch.randn(2, 4, 8, dtype=torch.float64), x[:, 4:]], 1)
    torch.testing.assert_close(model(changed)[0][:, 4:], model(x)[0][:, 4:], atol=1e-14, rtol=0)


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


def test_head_norm():
    model = layer(head_norm=True)
    y = model.look(
        torch.empty(0), *(torch.randn(2, 2, 9, 4, dtype=torch.float64) for _ in range(3)),
        {"means": torch.zeros(2, 2, 2, 4, dtype=torch.float64)}, None,
    )  # fmt: skip
    torch.testing.assert_close(y.square().mean(-1), torch.ones(2, 2, 9, dtype=torch.float64), atol=1e-3, rtol=0)
