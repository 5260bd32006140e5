"""Synthesizer: attention weights that are parameters, not token products (Tay et al., 2021, arXiv 2005.00743).

    A = softmax( R ),   R = R_1 R_2',   y = A V                                                 (§3.4)

Factorised random variant with R_1, R_2 in R^(n x r) per head; `rank=0` learns the full R in R^(n x n). `dot_product`
adds Q K' / sqrt(E) to R (§3.5). The length n is built in: a shorter sequence uses the first rows and columns. Time
O(N^2 D). Memory O(N D) without a full R and without dropout, otherwise O(N^2 H) per sequence, because torch's fused
attention does not accept a mask with a gradient. There is no causal form.

Long Range Arena's attention class defaults to rank 32 without dot product, but its encoder uses the full R with dot
product, which is what its tables show. Without dot product that code attends to padding; here padding is hidden.
Linear layers have biases here but not there.

    B batch, N length, n longest length, H heads, E head width, r rank
"""

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.attention.base import INPUT_GAIN, Attention, Pattern, projection, without_biases
from models.ops.attention import attention
from models.ops.heads import merge_heads, split_heads
from models.ops.padding import see_something


class Synthesizer(Attention):
    """Multi-head random Synthesizer; R_1, R_2 and R are Glorot-uniform with heads in the fans, as in LRA's code.

    2 D^2 + 2 D + 2 h n r parameters; with rank 0, h n^2 instead of 2 h n r; with dot product, 2 D^2 + 2 D more. Raises
    ValueError for a negative rank, and for a sequence longer than `max_length`.
    """

    patterns: ClassVar[frozenset[Pattern]] = frozenset({Pattern.NONCAUSAL_SELF})
    fixed_length: bool = True
    linear: bool = False

    def __init__(self, dim: int, heads: int, *, rank: int = 32, dot_product: bool = False, **options: Any):
        super().__init__(dim, heads, **options)
        if rank < 0:
            raise ValueError(f"Synthesizer requires rank >= 0, not {rank}")
        self.q_proj = projection(dim, dim, INPUT_GAIN) if dot_product else None
        self.k_proj = projection(dim, dim, INPUT_GAIN) if dot_product else None
        self.v_proj = projection(dim, dim, INPUT_GAIN)
        self.out_proj = projection(dim, dim, 1.0)
        bound = (6 / (heads * (self.max_length + (rank or self.max_length)))) ** 0.5
        sizes = {"left": rank, "right": rank} if rank else {"random": self.max_length}  # R_1 and R_2, or R
        for name in ("left", "right", "random"):
            weight = nn.Parameter(torch.empty(heads, self.max_length, sizes[name])) if name in sizes else None
            self.register_parameter(name, weight if weight is None else nn.init.uniform_(weight, -bound, bound))

    def drop_biases(self) -> None:
        without_biases(self.q_proj, self.k_proj, self.v_proj, self.out_proj)

    def logits(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """(q, k, bias) for x (B, N, D), with logits q k' + bias: (B, H, N, .), (B, H, N, .), (H, N, N) or None."""
        (batch, length), q, k = x.shape[:2], [], []
        if self.q_proj is not None:
            q.append(split_heads(self.q_proj(x), self.head_dim) * self.head_dim**-0.5)
            k.append(split_heads(self.k_proj(x), self.head_dim))
        if self.random is None:
            q.append(self.left[:, :length].expand(batch, -1, -1, -1))
            k.append(self.right[:, :length].expand(batch, -1, -1, -1))
        elif not q:
            q = k = [x.new_zeros(batch, self.heads, length, 1)]
        return torch.cat(q, -1), torch.cat(k, -1), None if self.random is None else self.random[:, :length, :length]

    def mix_tokens(self, x: Tensor, source: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        self.check_length(x.shape[1])
        v = split_heads(self.v_proj(x), self.head_dim)  # (B, H, N, E)
        q, k, mask = self.logits(x)
        if key_padding_mask is not None:
            visible = see_something(~key_padding_mask[:, None, None])  # (B, 1, 1, N)
            mask = visible if mask is None else mask.masked_fill(~visible, float("-inf"))
        if mask is not None and mask.is_floating_point():
            mask = mask.to(v.dtype)
        width = max(q.shape[-1], v.shape[-1])  # fused kernels require one common width
        q, k, v = (F.pad(y.to(v.dtype), (0, width - y.shape[-1])) for y in (q, k, v))
        y = attention(q, k, v, mask=mask, dropout=self.active_dropout, scale=1.0)
        return self.out_proj(merge_heads(y[..., : self.head_dim]))
