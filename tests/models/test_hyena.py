"""Hyena: the filters' window and reach, memory."""

import math

import torch
from memory import LargestStorage

from models.attention.hyena import Hyena


def build(dim=8, *, max_length=64, **hyper):
    torch.manual_seed(0)
    return Hyena(dim, 1, pattern="causal_self", max_length=max_length, **hyper)


@torch.no_grad()
def window(shift=0.0):
    """The window of a layer for 101 tokens whose network is 1 everywhere, for 151 distances: (C, 151)."""
    filters = build(max_length=101, filter_width=16, shift=shift).double().filters
    filters.hidden[-1].weight.zero_()
    filters.hidden[-1].bias.copy_(math.pi / 2 / filters.frequency)
    filters.out.weight.fill_(1 / 16)
    filters.skip.zero_()
    return filters(151)


def test_the_window_falls_to_one_percent_at_30_to_150_percent_of_the_length():
    taps = window()
    torch.testing.assert_close(taps[-1, 30], torch.tensor(0.01, dtype=torch.float64))
    torch.testing.assert_close(taps[0, 150], torch.tensor(0.01, dtype=torch.float64))
    assert (taps[:, 0] == 1).all() and (taps.diff(dim=0)[:, 1:] < 0).all()
    torch.testing.assert_close(window(shift=0.05), taps + 0.05)


def test_a_longer_sequence_reads_the_same_filters():
    model = build().double()
    torch.testing.assert_close(model.filters(200)[:, :64], model.filters(64), atol=1e-10, rtol=0)
    x = torch.randn(1, 200, 8, dtype=torch.float64)
    torch.testing.assert_close(model(x)[0][:, :64], model(x[:, :64])[0], atol=1e-10, rtol=0)


def test_memory_of_training_grows_as_the_length():
    sizes = []
    for length in (1024, 2048):
        model, x = build(max_length=length, filter_width=8), torch.randn(1, length, 8, requires_grad=True)
        with LargestStorage() as largest:
            model(x)[0].sum().backward()
        sizes.append(largest.numbers)
    assert sizes[1] <= 2.05 * sizes[0] and sizes[1] < 2048 * 40
