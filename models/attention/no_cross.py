"""No cross attention: the control in tables of cross attention (LAVO Tables 7 and 8).

    y = 0

A layer thus passes its queries on unchanged. CAB's authors report that PoinTr and Informer improve without cross
attention, so tables of cross attention include this row. It has no parameters and no cost.

    B batch, N query length, M context length, D width
"""

from typing import ClassVar

from torch import Tensor

from models.attention.base import Attention, Pattern


class NoCross(Attention):
    """x (B, N, D), context (B, M, D) -> zeros (B, N, D)."""

    patterns: ClassVar[frozenset[Pattern]] = frozenset({Pattern.NONCAUSAL_CROSS, Pattern.CAUSAL_CROSS})
    has_weights: ClassVar[bool] = False

    def mix_tokens(self, x: Tensor, source: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        # both are part of the graph, so that every parameter of a backbone has a gradient, as DDP requires
        return x * 0.0 + source.mean(1, keepdim=True) * 0.0
