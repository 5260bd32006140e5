"""LAVO's memory over several tiles, and the effect of its options."""

import pytest
import torch
from memory import saved_for_backward

from models.attention.lavo import LAVO, past_memory, read


def layer(pattern="causal_self", **options):
    torch.manual_seed(0)
    options = {"bases": 8, "window": 4} | options
    return LAVO(16, 2, pattern=pattern, max_length=64, **options)


@pytest.mark.parametrize("bases", [3, 8])
def test_lavo_bases_start_orthonormal_and_may_be_frozen(bases):
    model = layer(bases=bases, freeze_bases=True)
    for base in model.bases:
        torch.testing.assert_close(base @ base.T, torch.eye(bases), atol=1e-6, rtol=0)
    model(torch.randn(2, 19, 16))[0].sum().backward()
    assert model.bases.grad is None and layer().bases.requires_grad


def test_the_position_bias_starts_at_zero():
    x, without = torch.randn(2, 19, 16), layer(epe=False)
    without.load_state_dict({key: value for key, value in layer().state_dict().items() if key != "position_bias"})
    torch.testing.assert_close(layer()(x)[0], without(x)[0])


def test_nothing_as_large_as_the_logits_is_kept():
    """n r numbers per head are computed tile by tile: forward keeps only q and the memory for backward."""
    q, bases = torch.randn(1, 2, 4096, 8, requires_grad=True), torch.randn(2, 8, 8)
    memory = past_memory(q.detach(), bases, window=64)
    kept = [x.numel() for x in saved_for_backward(lambda: read(q, memory, bases, window=64))]
    assert sorted(kept, reverse=True)[:2] == [q.numel(), memory.numel()] and sum(kept) < 1.1 * q.numel()


@pytest.mark.parametrize("window", [300, 3000])  # of a tile that begins within a window as well
def test_each_window_reads_its_own_memory(window):
    shapes = (1, 1, 7000, 4), (1, 1, -(-7000 // window), 3), (1, 3, 4)
    q, memory, bases = (torch.randn(shape, dtype=torch.double, requires_grad=True) for shape in shapes)
    h = memory.repeat_interleave(window, 2)[:, :, :7000]
    expected = (((q @ bases.mT) * h / 2).softmax(-1) * h) @ bases
    out = read(q, memory, bases, window=window)
    torch.testing.assert_close(out, expected)
    grads = (torch.autograd.grad(y.square().sum(), (q, memory, bases)) for y in (out, expected))
    torch.testing.assert_close(*grads)
