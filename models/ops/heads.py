"""Conversion between channels and heads.

B batch, N length, H heads, E head width
"""

from torch import Tensor


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """(B, N, H E) -> (B, H, N, E); a head is a contiguous slice of the channels."""
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """(B, H, N, E) -> (B, N, H E)."""
    return x.transpose(1, 2).flatten(2)
