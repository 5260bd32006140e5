"""LAVO's memory over several tiles, and the effect of its options."""

import pytest
import torch

from models.attention.lavo import LAVO, past_memory, read


def test_nothing_as_large_as_the_logits_is_kept():
    """n r numbers per head are computed tile by tile: forward keeps only q and the memory for backward."""
    q = torch.randn(1, 2, 4096, 8, requires_grad=True)
    bases = torch.randn(2, 8, 8)
    memory = past_memory(q.detach(), bases, window=64)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t):
        read(q, memory, bases, window=64)
    assert sorted(kept, reverse=True)[:2] == [q.numel(), memory.numel()]
    assert sum(kept) < 1.1 * q.numel()


def layer(pattern="causal_self", **options):
    torch.manual_seed(0)
    options = {"bases": 8, "window": 4} | options
    return LAVO(16, 2, pattern=pattern, max_length=64, **options)


@pytest.mark.parametrize("dissection", [True, False])
@pytest.mark.parametrize("window", [1, 4])
def test_tokens_and_chunks_are_the_rows_of_forward(window, dissection):
    """Single tokens, and chunks that begin and end within windows and at their ends."""
    model = layer(window=window, dissection=dissection).double().eval()
    torch.nn.init.normal_(model.position_bias)
    x = torch.randn(2, 23, 16, dtype=torch.double)
    with torch.no_grad():
        whole = model(x)[0]
        for sizes in ([1] * 23, [3, 1, 4, 1, 8, 1, 1, 4], [8, 4, 11], [23]):
            state, rows = model.init_state(2), []
            for part in x.split(sizes, 1):
                y, state = model.chunk(part, state)
                rows.append(y)
            torch.testing.assert_close(torch.cat(rows, 1), whole, atol=1e-12, rtol=0)


def test_lavo_bases_are_orthonormal_at_the_start():
    for base in layer().bases:
        torch.testing.assert_close(base @ base.T, torch.eye(8), atol=1e-6, rtol=0)
    for base in layer(bases=3).bases:
        torch.testing.assert_close(base @ base.T, torch.eye(3), atol=1e-6, rtol=0)


def test_lavo_without_its_position_bias():
    with_bias, without = layer(), layer(epe=False)
    without.load_state_dict({key: value for key, value in with_bias.state_dict().items() if key != "position_bias"})
    x = torch.randn(2, 19, 16)
    torch.testing.assert_close(with_bias(x)[0], without(x)[0])  # it starts at zero
    assert without.position_bias is None


def test_lavo_freezes_its_bases():
    model = layer(freeze_bases=True)
    model(torch.randn(2, 19, 16))[0].sum().backward()
    assert model.bases.grad is None
    assert layer().bases.requires_grad
