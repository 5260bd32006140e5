"""The strided attention that Long Range Arena's code calls "local attention" (Tay et al., 2021, 2011.04006; D-23).

    o_i = sum_{j mod s = i mod s} softmax_j( <q_i, k_j> E^-1/2 ) v_j,   s = floor(N / b) + 1

Time O(N b D), memory O(N D). The code cuts the sequence into blocks by a reshape to (b, s) and attends along the first
axis: a block consists not of b neighbours but of every s-th token, at most b of them. s exceeds N / b even if b divides
N, because the code always pads. True local attention is a different model (`local`).

Padding: s and the blocks follow from an example's own length, up to its last real token, and padded keys are hidden.
The code uses the padded length and reshapes the mask in a different order than the tokens; this is not reproduced.

    B batch, N length, H heads, E head width, b tokens of a block, s stride, which is the number of blocks
"""

from typing import Any, ClassVar

import torch
from torch import Tensor

from models.attention.base import MultiHead, Pattern
from models.attention.vanilla import softmax_attention
from models.ops.padding import real_lengths


def lra_strided(
    q: Tensor, k: Tensor, v: Tensor, *, block: int, key_padding_mask: Tensor | None = None, dropout: float = 0.0
) -> Tensor:
    """q, k, v (B, H, N, E), mask (B, N) True at padding -> (B, H, N, E)."""
    batch, _, length, _ = q.shape
    if key_padding_mask is None:
        key_padding_mask = torch.zeros(batch, length, dtype=torch.bool, device=q.device)
    token = torch.arange(length, device=q.device)
    stride = (real_lengths(key_padding_mask) // block + 1)[:, None, None]  # (B, 1, 1)
    blocks = length // block + 1  # at least the largest number of any example
    number, slot = torch.arange(blocks, device=q.device)[:, None], torch.arange(block, device=q.device)
    source = slot * stride + number  # (B, blocks, b), the token of each slot
    absent = (number >= stride) | (source >= length)
    source = source.clamp(max=length - 1).flatten(1)
    hidden = absent.flatten(1) | key_padding_mask.gather(1, source)
    q, k, v = (
        x.take_along_dim(source[:, None, :, None], 2).unflatten(2, (blocks, block)).transpose(1, 2).flatten(0, 1)
        for x in (q, k, v)
    )  # (B blocks, H, b, E)
    y = softmax_attention(q, k, v, key_padding_mask=hidden.view(-1, block), dropout=dropout)
    y = y.unflatten(0, (batch, blocks)).transpose(1, 2).flatten(2, 3)  # (B, H, blocks b, E)
    stride = stride[:, 0]  # (B, 1)
    # tokens beyond an example's own length have no slot and take an arbitrary row
    row = (token % stride * block + token // stride).clamp(max=blocks * block - 1)
    return y.take_along_dim(row[:, None, :, None], 2)


class LRAStrided(MultiHead):
    """Multi-head attention to every s-th token. Raises ValueError for blocks below 1."""

    patterns: ClassVar[frozenset[Pattern]] = frozenset({Pattern.NONCAUSAL_SELF})

    def __init__(self, dim: int, heads: int, *, block: int = 50, **options: Any):
        super().__init__(dim, heads, **options)
        self.check_sizes(block=block)
        self.block = block

    @property
    def looks_ahead(self) -> bool:
        return self.block > 1

    def attend(self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        return lra_strided(q, k, v, block=self.block, key_padding_mask=key_padding_mask, dropout=self.active_dropout)
