import pytest
import torch
from twins.landmarks import segment_means as means_of

from models.ops.padding import ranks, real_lengths, real_tokens, segment_means


def test_lengths_reach_the_last_real_token():
    mask = torch.tensor([[0, 0, 0, 0], [0, 1, 0, 1], [1, 1, 1, 0], [1, 1, 1, 1]], dtype=torch.bool)
    assert real_lengths(mask).tolist() == [4, 3, 4, 0]


def test_ranks_count_the_real_tokens():
    mask = torch.tensor([[0, 1, 0, 0], [1, 0, 1, 0]], dtype=torch.bool)
    real, x = real_tokens(mask, torch.zeros(2, 3, 4, 5)), torch.zeros(2, 3, 4, 5)
    assert [row[tokens].tolist() for row, tokens in zip(ranks(real), real, strict=True)] == [[0, 1, 2], [0, 1]]
    assert ranks(real_tokens(None, x)).tolist() == [[0, 1, 2, 3]]


@pytest.mark.parametrize("tokens", [3, 8, 11, 24])
def test_segments_are_of_the_real_tokens(tokens):
    """Padding at any position: black pixels are scattered among the others."""
    real = torch.zeros(1, 24, dtype=torch.bool)
    real[0, torch.randperm(24, generator=torch.Generator().manual_seed(0))[:tokens]] = True
    x = torch.randn(24, 5, dtype=torch.double)
    means = segment_means(real, 8, torch.double)[0, 0] @ x
    theirs = means_of(x[real[0]], 8)
    torch.testing.assert_close(means, theirs.nan_to_num(), atol=1e-14, rtol=0)
