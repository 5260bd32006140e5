"""RFA's gate and its features."""

import torch

from models.attention.rfa import fourier


def test_features_give_the_gaussian_of_the_distance():
    torch.manual_seed(0)
    x, y = torch.nn.functional.normalize(torch.randn(2, 1, 1, 50, 8, dtype=torch.double), dim=-1)
    directions = torch.randn(1, 20_000, 8, dtype=torch.double)
    estimate = (fourier(7 * x, directions) * fourier(0.1 * y, directions)).sum(-1)
    exact = torch.exp(-(x - y).square().sum(-1) / 2)
    assert (estimate - exact).abs().max() < 0.03
