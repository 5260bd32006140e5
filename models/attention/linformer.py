"""Linformer: keys and values projected along the sequence (Wang et al., 2020, arXiv 2006.04768).

    head_i = softmax( Q (E_i' K)' / sqrt(E) ) (F_i' V),   E_i, F_i in R^(n x r)                   (7)

Time O(N r D), memory O(N (D + H r)). The length n is built into E and F. There is no causal form and no decoding,
because every slot of the projection mixes all positions.

Skyformer's code creates the maps with `nn.Parameter(..).to("cuda")`, which yields a plain tensor: they are never
trained. `freeze_maps` reproduces that (X72).

The paper (§4) leaves open which matrices are shared, and the tables differ. `share` uses one matrix for keys and
values; `per_head` gives every head its own. Skyformer's code, and hence LAVO Table 11, does both. LRA's code shares one
matrix among all heads, keys and values. The linformer package does neither. `one_kv_head` projects to one key head and
one value head that all queries read.

A sequence shorter than `max_length` uses the first rows. Padded keys and values are zeroed before the projection; LRA's
code includes them.

    B batch, N length, n longest length, H heads, E head width, r rank
"""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from models.attention.base import MultiHead, Pattern
from models.ops.attention import attention


def linformer(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    key_map: Tensor,
    value_map: Tensor,
    *,
    key_padding_mask: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """q (B, H, N, E), k and v (B, H or 1, N, E), maps (H or 1, N, r), mask (B, N) True at padding -> (B, H, N, E)."""
    if key_padding_mask is not None:
        hidden = key_padding_mask[:, None, :, None]
        k, v = k.masked_fill(hidden, 0.0), v.masked_fill(hidden, 0.0)
    if value_map is key_map:
        kv = project(key_map, torch.cat([k, v], -1))  # (B, H or 1, r, 2 E)
        k, v = kv.chunk(2, -1)
    else:
        k, v = project(key_map, k), project(value_map, v)  # (B, H or 1, r, E)
    heads = q.shape[1]
    return attention(q, k.expand(-1, heads, -1, -1), v.expand(-1, heads, -1, -1), dropout=dropout)


def project(matrix: Tensor, x: Tensor) -> Tensor:
    """matrix (H or 1, N, r)' x (B, H or 1, N, F) -> (B, H or 1, r, F).

    All examples, and all heads that share a map, are columns of one product: each map is read once, and its gradient is
    summed within the backward product.
    """
    batch, heads, _, width = x.shape
    if len(matrix) > 1:
        y = matrix.mT @ x.permute(1, 2, 0, 3).flatten(2)  # (H, r, B F)
        return y.unflatten(-1, (batch, width)).permute(2, 0, 1, 3)
    y = matrix[0].mT @ x.permute(2, 0, 1, 3).flatten(1)  # (r, B H F)
    return y.unflatten(-1, (batch, heads, width)).permute(1, 2, 0, 3)


class Linformer(MultiHead):
    """Multi-head Linformer; its maps are drawn from N(0, 0.02^2), as in Skyformer's code.

    With `freeze_maps` they are buffers: saved with the weights, but neither trained nor counted as parameters.

    Raises ValueError for a rank below 1, and for a sequence longer than `max_length`.
    """

    patterns: ClassVar[frozenset[Pattern]] = frozenset({Pattern.NONCAUSAL_SELF})
    fixed_length: bool = True

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        rank: int = 128,
        per_head: bool = False,
        share: bool = True,
        one_kv_head: bool = False,
        freeze_maps: bool = False,
        **options: Any,
    ):
        kv_dim = dim // heads if one_kv_head else None
        super().__init__(dim, heads, **options, kv_dim=kv_dim)
        self.check_sizes(rank=rank)
        size = (heads if per_head else 1, self.max_length, rank)
        for name in ("key_map",) if share else ("key_map", "value_map"):
            weights = torch.empty(size).normal_(std=0.02)  # (H or 1, n, r)
            if freeze_maps:
                self.register_buffer(name, weights)
            else:
                self.register_parameter(name, nn.Parameter(weights))
        if share:
            self.value_map = None

    def attend(self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        length = k.shape[2]
        self.check_length(length)
        key_map = self.key_map[:, :length]
        value_map = key_map if self.value_map is None else self.value_map[:, :length]
        return linformer(q, k, v, key_map, value_map, key_padding_mask=key_padding_mask, dropout=self.active_dropout)
