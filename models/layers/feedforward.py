"""The position-wise half of a Transformer layer.

FFN(x) = W_2 act(W_1 x + b_1) + b_2          (Vaswani et al., 2017, eq. 2)
SwiGLU(x) = W_3 (SiLU(W_1 x) * W_2 x)        (Shazeer, 2020, arXiv 2002.05202, eq. 6)

B batch, N length, D width
"""

from functools import partial

from torch import Tensor, nn

ACTIVATIONS = {
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "gelu_tanh": partial(nn.GELU, approximate="tanh"),  # jax.nn.gelu unless told otherwise
    "silu": nn.SiLU,
}


class FeedForward(nn.Sequential):
    """Linear, activation, dropout, Linear, dropout: (B, N, D) -> (B, N, D)."""

    def __init__(self, dim: int, hidden_dim: int, dropout: float = 0.0, *, activation: str = "gelu", bias: bool = True):
        super().__init__(
            nn.Linear(dim, hidden_dim, bias=bias),
            ACTIVATIONS[activation](),
            nn.Dropout(dropout),
            nn.Linear(hidden_dim, dim, bias=bias),
            nn.Dropout(dropout),
        )


class GatedFeedForward(nn.Module):
    """SwiGLU, three matrices without biases, with dropout as in `FeedForward`: (B, N, D) -> (B, N, D)."""

    def __init__(self, dim: int, hidden_dim: int, dropout: float = 0.0):
        super().__init__()
        self.gate = nn.Linear(dim, hidden_dim, bias=False)
        self.value = nn.Linear(dim, hidden_dim, bias=False)
        self.out = nn.Linear(hidden_dim, dim, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        hidden = nn.functional.silu(self.gate(x)) * self.value(x)
        return self.dropout(self.out(self.dropout(hidden)))
