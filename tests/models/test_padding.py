import torch

from models.layers.padding import real_lengths


def test_lengths_reach_the_last_real_token():
    mask = torch.tensor([[0, 0, 0, 0], [0, 1, 0, 1], [1, 1, 1, 0], [1, 1, 1, 1]], dtype=torch.bool)
    assert real_lengths(mask).tolist() == [4, 3, 4, 0]
