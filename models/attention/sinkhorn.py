"""Sinkhorn attention in LRA's form: to a query's block and to sorted blocks (Tay et al., 2020, arXiv 2002.11296).

    P_g  = softmax( W sum_{j in block g} k_j + b )                over the blocks of the sequence    (§3.1)
    K'_g = sum_f P_gf K_f,   V'_g = sum_f P_gf V_f                slot by slot
    o_i  = softmax( q_i K_g' E^-1/2 ) V_g + softmax( q_i K'_g' E^-1/2 ) V'_g,   i in block g         (§3.2)

All heads share W (blocks, E) and b. Time O(N (c + N / c) D), memory O(N D + H (N / c)^2) with blocks of c. The sort
reads all blocks, so there is no causal form.

    B batch, N length, H heads, E head width, G blocks, c slots of a block
"""

from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from models.attention.base import MultiHead, Pattern, projection
from models.attention.vanilla import softmax_attention
from models.ops.padding import ranks, real_tokens
from models.ops.precision import autocast_disabled, upcast


class BlockLayout(NamedTuple):
    """Each slot's token (B or 1, G c), whether it has one, each token's slot (B or 1, N), and G (B or 1)."""

    token: Tensor
    filled: Tensor
    slot: Tensor
    count: Tensor


def cut_blocks(real: Tensor, block: int, *, strided: bool) -> BlockLayout:
    """Blocks of the tokens at which `real` (B or 1, N) is True."""
    rows, length = real.shape
    slots = -(-length // block) * block
    rank = ranks(real)
    count = (-(-real.sum(1) // block)).clamp(min=1)
    slot = rank
    if strided:
        slot = rank % count[:, None] * block + rank // count[:, None]
    slot = slot.masked_fill(~real, slots)  # a slot beyond the last one, for all tokens that are not real
    position = torch.arange(length, device=real.device).expand(rows, -1)
    token = slot.new_zeros(rows, slots + 1).scatter_(1, slot, position)[:, :slots]
    filled = torch.zeros_like(token, dtype=torch.bool)
    filled = torch.cat([filled, filled[:, :1]], 1).scatter_(1, slot, True)[:, :slots]
    return BlockLayout(token, filled, slot.clamp(max=slots - 1), count)


def pick(x: Tensor, index: Tensor) -> Tensor:
    """Rows `index` (B or 1, S) of x (B, N, D): (B, S, D)."""
    if len(index) == 1:
        return x[:, index[0]]
    return x.gather(1, index[..., None].expand(-1, -1, x.shape[-1]))


class Sinkhorn(MultiHead):
    """Multi-head Sinkhorn attention: 4 D^2 + 4 D parameters, and (E + 1) ceil(max_length / block) of W and b.

    As in LRA's code, the sort is a softmax without Sinkhorn iterations, and two softmaxes are added; the paper balances
    P and takes one softmax over both blocks. That code departs from the equations in two ways, which `lra_compat`
    reproduces. First, blocks are strided: block g of G holds the tokens g, g + G, g + 2 G, .. (D-23). Second, the
    product with P sums over the blocks and over the columns of P separately, so K'_g is the sum of all blocks whatever
    P is; W and b have no gradient there and are omitted.

    Blocks are cut from the real tokens. Empty slots in a shorter last block are mixed in as zeros, and queries attend
    to such slots only if another block fills them. Padded queries get zeros.

    Raises ValueError for a block below 1, and for a sequence longer than `max_length`.
    """

    patterns: ClassVar[frozenset[Pattern]] = frozenset({Pattern.NONCAUSAL_SELF})
    fixed_length: bool = True
    linear: bool = False

    def __init__(self, dim: int, heads: int, *, block: int = 50, lra_compat: bool = False, **options: Any):
        super().__init__(dim, heads, **options)
        self.check_sizes(block=block)
        self.block, self.lra_compat = block, lra_compat
        self.sort_map = None if lra_compat else projection(self.head_dim, -(-self.max_length // block), 1.0)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        batch, heads, length, width = q.shape
        self.check_length(length)
        blocks = cut_blocks(real_tokens(key_padding_mask, q), self.block, strided=self.lra_compat)

        def cut(x: Tensor) -> Tensor:
            """(B, H, N, E) -> (B, G, c, H, E)."""
            rows = pick(x.transpose(1, 2).flatten(2), blocks.token)
            return rows.view(batch, -1, self.block, heads, width)

        q = cut(q)
        k, v = (cut(x) * blocks.filled.view(-1, *q.shape[1:3], 1, 1) for x in (k, v))
        empty = ~blocks.filled.view(-1, *q.shape[1:3]).expand(batch, -1, -1)  # (B, G, c)
        unfilled = empty.all(1, keepdim=True).expand_as(empty)  # slots that every block leaves empty

        def read(k: Tensor, v: Tensor, hidden: Tensor) -> Tensor:
            """Attention within blocks: (B G, H, c, E)."""
            mask = hidden.flatten(0, 1) if key_padding_mask is not None or length % self.block else None
            block_q, block_k, block_v = (x.flatten(0, 1).transpose(1, 2) for x in (q, k, v))
            return softmax_attention(block_q, block_k, block_v, key_padding_mask=mask, dropout=self.active_dropout)

        y = read(k, v, empty) + read(*self.sorted(k, v, blocks.count), unfilled)
        y = y.transpose(1, 2).reshape(batch, -1, heads * width)  # (B, G c, D)
        y = pick(y, blocks.slot).unflatten(2, (heads, width)).transpose(1, 2)
        return y if key_padding_mask is None else y.masked_fill(key_padding_mask[:, None, :, None], 0.0)

    def sorted(self, k: Tensor, v: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
        """The sorted counterpart of each block of k and v (B, G, c, H, E); the first `count` blocks are real."""
        if self.sort_map is None:
            return k.sum(1, keepdim=True).expand_as(k), v.sum(1, keepdim=True).expand_as(v)
        blocks = k.shape[1]
        with autocast_disabled(k):
            weight, bias = upcast(self.sort_map.weight)[:blocks], upcast(self.sort_map.bias)[:blocks]
            logits = F.linear(upcast(k).sum(2), weight, bias)  # (B, G, H, G)
            unreal = torch.arange(blocks, device=k.device) >= count[:, None, None, None]
            p = logits.masked_fill(unreal, float("-inf")).softmax(-1).to(k.dtype)
            return torch.einsum("bghf,bfche->bgche", p, k), torch.einsum("bghf,bfche->bgche", p, v)
