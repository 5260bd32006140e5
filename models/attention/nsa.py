"""NSA: native sparse attention (Yuan et al., 2025, arXiv 2502.11089).

    o_t = g^cmp_t o^cmp_t + g^slc_t o^slc_t + g^win_t o^win_t,   g_t = sigmoid(W_g x_t), three per head       (5)
    o^cmp_t: softmax attention to one key and one value per block of b tokens that is complete at t           (7)
    o^slc_t: softmax attention to all tokens j <= t of s blocks: t's own, the first, the one before t's own, and those
             with the highest probabilities in o^cmp_t, summed over the heads that share keys           (8, 10, 11, 12)
    o^win_t: softmax attention to the last w tokens

A block's key and value are the means over its tokens, as in flash-linear-attention, or `compression: mlp`, an MLP of
the block's tokens with a vector per position in the block, as in the paper. As in flash-linear-attention, blocks of the
compression do not overlap and are those of the choice, the branches share keys and values, which rotate (RoPE) before
the compression, and W_g has one layer. The public reading of lucidrains compresses before the rotation, reads a learned
key where no block is complete, and starts with the window's gate open (D-63). The choice has no gradient; the
compression learns through o^cmp.

Time O(N (s b + w + N / b) D): the compression reads N / b blocks. Memory O(N D). Decoding keeps all keys and values and
the blocks' summaries, 2 (N + N / b) D / g numbers for N tokens, and takes O((s b + w + N / b) D) per token.

    B batch, N length, D width, H heads, g heads per head of keys and values, K = H / g, E head width, b tokens per
    block, s blocks per query, w window, C blocks
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.attention.base import check_choice
from models.attention.moba import ChosenBlocks
from models.ops.banded import banded_attention
from models.ops.block_summaries import block_means, hidden_blocks, summary_attention

BRANCHES = 3
POSITION_STD = 0.02


def window_attention(
    q: Tensor, k: Tensor, v: Tensor, window: int, key_padding_mask: Tensor | None, dropout: float
) -> Tensor:
    """q (B, H, n, E) of the last n of M tokens, k, v (B, K, M, E), mask (B, M) -> (B, H, n, E)."""
    count, group = q.shape[2], q.shape[1] // k.shape[1]
    before = min(k.shape[2] - count, window - 1)
    first = k.shape[2] - count - before
    k, v = (x[:, :, first:].repeat_interleave(group, 1) for x in (k, v))
    if count == 1 and key_padding_mask is None:
        return F.scaled_dot_product_attention(q, k, v)
    mask = None if key_padding_mask is None else key_padding_mask[:, first:]
    # zero queries stand for the keys before the chunk
    rows = F.pad(q, (0, 0, before, 0))
    y = banded_attention(rows, k, v, left=window - 1, right=0, key_padding_mask=mask, dropout=dropout)
    return y[:, :, before:]


class BlockMLP(nn.Module):
    """Blocks (B, K, M, E) -> (B, K, M // b, E): W_2 GELU( W_1 [x_1 + p_1, .., x_b + p_b] ), the same for all heads.

    The hidden width is E: b E^2 + E^2 + b E + 2 E parameters. A token at which the mask is True counts as zero.
    """

    def __init__(self, width: int, block: int):
        super().__init__()
        self.positions = nn.Parameter(POSITION_STD * torch.randn(block, width))
        self.hidden, self.out = nn.Linear(block * width, width), nn.Linear(width, width)

    def forward(self, x: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        block = len(self.positions)
        complete = x.shape[2] // block * block
        x = x[:, :, :complete].unflatten(2, (-1, block)).to(self.positions.dtype) + self.positions
        if key_padding_mask is not None:
            padding = key_padding_mask[:, :complete].unflatten(1, (-1, block))
            x = x.masked_fill(padding[:, None, ..., None], 0.0)
        return self.out(F.gelu(self.hidden(x.flatten(3))))


class NSA(ChosenBlocks):
    """Compressed, chosen and nearby keys, each with a gate per head: 3 D H parameters more than `ChosenBlocks`.

    `compression` is mean or mlp. Raises ValueError for another one.
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        block: int = 64,
        selected: int = 16,
        window: int = 512,
        group: int = 1,
        compression: str = "mean",
        **options: Any,
    ):
        super().__init__(dim, heads, block=block, selected=selected, group=group, **options)
        self.check_sizes(window=window)
        check_choice("compression", compression, ("mean", "mlp"))
        self.window, learned = window, compression == "mlp"
        self.compress_keys, self.compress_values = (
            BlockMLP(self.head_dim, block) if learned else None for _ in range(2)
        )
        self.gate_proj = nn.Linear(dim, BRANCHES * heads, bias=False)

    def summaries(self, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> dict[str, Tensor]:
        networks = {"keys": (self.compress_keys, k), "values": (self.compress_values, v)}
        return {
            name: block_means(x, self.block, key_padding_mask) if network is None else network(x, key_padding_mask)
            for name, (network, x) in networks.items()
        }

    def look(
        self, x: Tensor, q: Tensor, k: Tensor, v: Tensor, kept: dict[str, Tensor], key_padding_mask: Tensor | None
    ) -> Tensor:
        gates = torch.sigmoid(self.gate_proj(x)).unflatten(2, (self.heads, BRANCHES)).transpose(1, 2)  # (B, H, n, 3)
        compressed, chosen = summary_attention(
            q, kept["keys"], kept["values"], hidden_blocks(key_padding_mask, self.block), block=self.block,
            selected=self.selected - 1, first=k.shape[2] - q.shape[2], dropout=self.active_dropout,
        )  # fmt: skip
        q, k = q.to(v.dtype), k.to(v.dtype)
        selected = self.attend_to_blocks(q, k, v, chosen, key_padding_mask)
        near = window_attention(q, k, v, self.window, key_padding_mask, self.active_dropout)
        return sum(gates[..., i, None] * y.to(v.dtype) for i, y in enumerate((compressed, selected, near)))
