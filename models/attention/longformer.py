"""Longformer: a sliding window and, optionally, global tokens (Beltagy et al., 2020, arXiv 2004.05150).

    o_i = sum_{j in S(i)} softmax_j( <q_i, k_j> E^-1/2 ) v_j
    S(i) = { j : |i - j| <= w / 2 }  and the first g tokens;  all tokens if i < g

Time O(N (w + g) D), memory O(N D), with global tokens O(N (3 D + w + g)). Long Range Arena has no global tokens and
w = 512. Its code uses the w keys from i - w/2 + 1 to i + w/2; this module uses the symmetric window of w + 1 keys, as
transformers does. Global tokens share the projections of the other tokens; in the paper they have a second set.

    B batch, N length, H heads, E head width, w window, g global tokens, G blocks, c = w / 2 queries of a block
"""

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from models.attention.base import MultiHead, Pattern
from models.attention.vanilla import softmax_attention
from models.ops import flex
from models.ops.attention import attention
from models.ops.banded import banded_attention
from models.ops.padding import see_something


def longformer(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    window: int,
    global_tokens: int = 0,
    key_padding_mask: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """q, k, v (B, H, N, E), mask (B, N) True at padding -> (B, H, N, E)."""
    half, shared = window // 2, {"key_padding_mask": key_padding_mask, "dropout": dropout}
    if not global_tokens:
        return banded_attention(q, k, v, left=half, right=half, **shared)
    first = softmax_attention(q[:, :, :global_tokens], k, v, **shared)
    if q.shape[2] <= global_tokens:
        return first
    others = _window_and_global(q, k, v, half, global_tokens, key_padding_mask, dropout)
    return torch.cat([first, others[:, :, global_tokens:]], 2)


def _window_and_global(
    q: Tensor, k: Tensor, v: Tensor, half: int, shared: int, padding: Tensor | None, dropout: float
) -> Tensor:
    """Every query sees its window and the first `shared` keys, in one softmax."""
    if flex.chosen(q, dropout):
        return flex.span_attention(q, k, v, flex.Span(half, half, shared=shared), hidden=padding)[0]
    batch, heads, length, width = q.shape
    size = max(1, half)
    blocks = -(-length // size)
    rest = blocks * size - length
    if padding is None:
        padding = torch.zeros(1, length, dtype=torch.bool, device=q.device)
    # the window contains global keys as well, where they are hidden
    outside = F.pad(padding, (0, rest + size), value=True)
    outside = outside | (torch.arange(outside.shape[1], device=q.device) < shared)
    outside = F.pad(outside, (size, 0), value=True).unfold(1, 3 * size, size)[:, :, None]  # (B or 1, G, 1, 3 c)
    distance = torch.arange(3 * size, device=q.device) - size - torch.arange(size, device=q.device)[:, None]
    near = (distance.abs() <= half) & ~outside  # (B or 1, G, c, 3 c)
    visible = torch.cat([near, ~padding[:, None, None, :shared].expand(-1, blocks, size, -1)], -1)

    def keys(x: Tensor) -> Tensor:
        """(B, H, N, E) -> (B G, H, 3 c + g, E)."""
        windows = F.pad(x, (0, 0, size, rest + size)).unfold(2, 3 * size, size).mT  # (B, H, G, 3 c, E)
        joined = torch.cat([windows, x[:, :, None, :shared].expand(-1, -1, blocks, -1, -1)], 3)
        return joined.transpose(1, 2).flatten(0, 1)

    q = F.pad(q, (0, 0, 0, rest)).unflatten(2, (blocks, size)).transpose(1, 2).flatten(0, 1)  # (B G, H, c, E)
    mask = see_something(visible).expand(batch, -1, -1, -1).flatten(0, 1)[:, None]  # (B G, 1, c, 3 c + g)
    y = attention(q, keys(k), keys(v), mask=mask, dropout=dropout)
    return y.unflatten(0, (batch, blocks)).transpose(1, 2).reshape(batch, heads, -1, width)[:, :, :length]


class Longformer(MultiHead):
    """Multi-head attention to a window and to global tokens. Raises ValueError if either number is negative."""

    patterns: ClassVar[frozenset[Pattern]] = frozenset({Pattern.NONCAUSAL_SELF})

    def __init__(self, dim: int, heads: int, *, window: int = 512, global_tokens: int = 0, **options: Any):
        super().__init__(dim, heads, **options)
        if window < 0 or global_tokens < 0:
            raise ValueError(f"Longformer requires window and global_tokens >= 0, not {window} and {global_tokens}")
        self.window, self.global_tokens = window, global_tokens

    @property
    def looks_ahead(self) -> bool:
        return super().looks_ahead and (self.window > 1 or self.global_tokens > 0)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        sizes = {"window": self.window, "global_tokens": self.global_tokens}
        return longformer(q, k, v, **sizes, key_padding_mask=key_padding_mask, dropout=self.active_dropout)
