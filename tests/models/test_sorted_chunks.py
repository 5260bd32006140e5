"""Attention among neighbours in sorted orders: tiles, dropout, gradients, bounds."""

import pytest
import torch

from models.ops import sorted_chunks
from models.ops.sorted_chunks import Neighbours, sorted_chunk_attention
from models.ops.tiles import TileBudget

B, H, R, N, E = 2, 2, 2, 13, 4


def arguments(lengths=(N,)):
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(B, H, N, E, generator=generator, dtype=torch.float64).requires_grad_() for _ in range(3))
    order = torch.rand(B, H, R, N, generator=generator).argsort(-1)
    return q, k, v, order, torch.tensor(lengths)


@pytest.mark.parametrize("lengths", [(N,), (N, 7)])
@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_gradients_are_those_of_the_output(dropout, lengths):
    q, k, v, order, lengths = arguments(lengths)
    neighbours = Neighbours(3, before=1, after=1, dropout=dropout, seed=5)
    real = torch.zeros(B, N, dtype=torch.bool)
    for b, length in enumerate(lengths.expand(B).tolist()):
        # a token is real in every round or in none
        order[b] = torch.cat(
            [order[b][order[b] < length].view(H, R, -1), order[b][order[b] >= length].view(H, R, -1)], -1
        )
        real[b, :length] = True

    def attend(q, k, v):
        return sorted_chunk_attention(q, k, v, order, lengths, neighbours)

    assert ((attend(q, k, v) != 0).all(-1) == real[:, None]).all() or dropout
    assert torch.autograd.gradcheck(attend, (q, k, v), fast_mode=True)


@pytest.mark.parametrize("tile", [1, 30, 70, 200])
def test_tiles_change_nothing(monkeypatch, tile):
    q, k, v, order, lengths = arguments()
    reference = sorted_chunk_attention(q, k, v, order, lengths, Neighbours(3))
    gradients = torch.autograd.grad(reference.square().sum(), (q, k, v))
    monkeypatch.setattr(sorted_chunks, "TILE", TileBudget(tile, tile))
    y = sorted_chunk_attention(q, k, v, order, lengths, Neighbours(3))
    torch.testing.assert_close(y, reference, atol=1e-12, rtol=0)
    for ours, theirs in zip(torch.autograd.grad(y.square().sum(), (q, k, v)), gradients, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=0)


@pytest.mark.parametrize(
    ("neighbours", "alone"), [(Neighbours(1, before=0), N), (Neighbours(N), 0), (Neighbours(2, before=0), 1)]
)
def test_a_token_meets_itself_only_where_there_is_no_other(neighbours, alone):
    order, lengths = arguments()[3:]
    order = order[:, :, :1]
    q = torch.randn(2, B, H, N, N, dtype=torch.float64)
    weights = sorted_chunk_attention(q[0], q[1], torch.eye(N).expand(B, H, N, N).double(), order, lengths, neighbours)
    torch.testing.assert_close(weights.sum(-1), torch.ones(B, H, N).double(), atol=1e-12, rtol=0)
    self_weights = weights.diagonal(dim1=-2, dim2=-1)
    assert ((self_weights == 1).sum(-1) == alone).all()
    assert ((self_weights == 0).sum(-1) == N - alone).all()
