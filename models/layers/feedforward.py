"""The position-wise half of a Transformer layer."""

from torch import nn


class FeedForward(nn.Sequential):
    """Linear, GELU, dropout, Linear, dropout: (B, N, D) -> (B, N, D)."""

    def __init__(self, dim: int, hidden_dim: int, dropout: float = 0.0):
        super().__init__(
            nn.Linear(dim, hidden_dim), nn.GELU(), nn.Dropout(dropout), nn.Linear(hidden_dim, dim), nn.Dropout(dropout)
        )
