"""MoBA's ties, its choices in 16 bits, and its decoding state."""

import torch
from zoo import in_chunks

from models.attention.moba import MoBA


def layer(**options):
    torch.manual_seed(0)
    return MoBA(8, 2, pattern="causal_self", **{"max_length": 64, "block": 4, "selected": 3} | options).double().eval()


def test_equal_scores_choose_the_same_blocks_in_training_and_decoding():
    """Without queries all blocks score zero, so the first are chosen."""
    model, x = layer(), torch.randn(2, 61, 8, dtype=torch.float64)
    with torch.no_grad():
        model.q_proj.weight.zero_()
        whole, (rows, _) = model(x)[0], in_chunks(model, x, model.init_state(2), (1,) * 61)
        torch.testing.assert_close(rows, whole, atol=1e-12, rtol=0)
        x[:, 8:40] = 0  # neither among the first two blocks nor in the last token's own
        torch.testing.assert_close(model(x)[0][:, 60], whole[:, 60], atol=1e-12, rtol=0)


def test_choices_do_not_change_in_sixteen_bits():
    model, x = layer().float(), torch.randn(2, 64, 8)
    with torch.autocast("cpu", torch.bfloat16):
        y = model(x)[0]
    assert (y.float() - model(x)[0]).abs().max() <= 0.02
