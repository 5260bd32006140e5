"""MoBA: mixture of block attention (Lu et al., 2025, arXiv 2502.13189).

    o_i = sum_{j in I(i), j <= i} softmax_j( <q_i, k_j> E^-1/2 ) v_j                                          (2)
    I(i) = the tokens of i's own block, and of the s - 1 past blocks with the highest <q_i, mean key>            (4-6)

A past block is complete, so its mean contains no later token, and i's own block is always chosen. The keys are those
after the rotation (RoPE). The authors decode with full attention; here a step reads the same blocks as training does.
The layer of flash-linear-attention also normalises each head's output, which the paper does not (`head_norm`;
D-64).

Time O(N s b D + N^2 / b D): the choice compares each query with N / b means. Memory O(N D). Decoding keeps all keys
and values and the means, (2 N + N / b) D / g numbers for N tokens, and takes O((s b + N / b) D) per token.

    B batch, N length, D width, H heads, g heads per head of keys and values, K = H / g, E head width, b tokens per
    block, s blocks per query, C blocks
"""

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.attention.base import ROOM, MultiHead, Pattern, State
from models.ops.block_summaries import block_means, choose_blocks, hidden_blocks
from models.ops.chosen_blocks import chosen_block_attention
from models.ops.heads import merge_heads, split_heads
from models.ops.positions import apply_rope, rope_frequencies
from models.ops.precision import upcast, upcast_linear
from models.ops.ring import empty_ring

EPSILON = 1e-6


def attend_to_tokens(q: Tensor, k: Tensor, v: Tensor, tokens: Tensor) -> Tensor:
    """One query per head, q (B, H, 1, E), to the keys at `tokens` (B, K or H, L) of k, v (B, K, M, E): (B, H, 1, E)."""
    batch, _, _, width = q.shape
    index = tokens.reshape(batch, k.shape[1], -1, 1)
    k, v = (x.take_along_dim(index, 2).view(batch, tokens.shape[1], -1, width).to(q.dtype) for x in (k, v))
    return F.scaled_dot_product_attention(q.reshape(batch, tokens.shape[1], -1, width), k, v).view(q.shape)


def tokens_of(chosen: Tensor, block: int, seen: int) -> Tensor:
    """Blocks (B, K, S) -> the tokens of these and of the last of `seen` tokens' own block: (B, K, L)."""
    past = (chosen[..., None] * block + torch.arange(block, device=chosen.device)).flatten(2)
    latest = torch.arange((seen - 1) // block * block, seen, device=chosen.device)
    return torch.cat([past, latest.expand(*past.shape[:2], -1)], 2)


class ChosenBlocks(MultiHead):
    """Rotary attention to `selected` blocks of `block` tokens per query, among them its own.

    Heads share keys and values in groups of `group`. A method defines how queries `look` at keys, values and the
    summaries of complete blocks. 2 D^2 (1 + 1 / g) parameters and biases. Raises ValueError for an odd head width, for
    heads that are no multiple of the group, and for sizes below 1.
    """

    patterns: ClassVar[frozenset[Pattern]] = frozenset({Pattern.CAUSAL_SELF})
    linear: bool = False

    def __init__(self, dim: int, heads: int, *, block: int, selected: int, group: int = 1, **options: Any):
        if group < 1 or heads % group:
            raise ValueError(f"{heads} heads are not a multiple of group {group}")
        super().__init__(dim, heads, kv_dim=dim // group, **options)
        self.check_sizes(block=block, selected=selected)
        rope_frequencies(self.head_dim)  # refuses an odd width
        self.block, self.selected, self.key_heads = block, selected, heads // group

    def summaries(self, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> dict[str, Tensor]:
        """k, v (B, K, M, E), mask (B, M) -> what is kept of each complete block: (B, K, M // b, E) each."""
        raise NotImplementedError

    def look(
        self, x: Tensor, q: Tensor, k: Tensor, v: Tensor, kept: dict[str, Tensor], key_padding_mask: Tensor | None
    ) -> Tensor:
        """Queries q (B, H, n, E), of the last n of M tokens with inputs x (B, n, D), keys and values (B, K, M, E) and
        summaries (B, K, M // b, E) -> (B, H, n, E)."""
        raise NotImplementedError

    def attend_to_blocks(
        self, q: Tensor, k: Tensor, v: Tensor, chosen: Tensor, key_padding_mask: Tensor | None
    ) -> Tensor:
        """Queries and keys as for `look` to the blocks `chosen` (B, K or H, n, S), -1 for none: (B, H, n, E)."""
        if q.shape[2] == 1 and key_padding_mask is None:
            seen = k.shape[2]
            chosen = chosen[:, :, 0, : (seen - 1) // self.block]
            return attend_to_tokens(q, k, v, tokens_of(chosen, self.block, seen))
        chosen = chosen.repeat_interleave(self.heads // chosen.shape[1], 1)
        options = {"block": self.block, "key_padding_mask": key_padding_mask, "dropout": self.active_dropout}
        return chosen_block_attention(q, k, v, chosen, **options)

    def rotated(self, x: Tensor, first: int) -> tuple[Tensor, Tensor, Tensor]:
        """q (B, H, N, E), k and v (B, K, N, E) of x (B, N, D) at the positions from `first` on.

        q and k are in float32 or float64, so that 16 bits do not change a choice.
        """
        positions = torch.arange(first, first + x.shape[1], device=x.device)
        q, k = (split_heads(upcast_linear(layer, x), self.head_dim) for layer in (self.q_proj, self.k_proj))
        return apply_rope(q, positions), apply_rope(k, positions), self.project(self.v_proj, x)

    def mix_tokens(self, x: Tensor, source: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        q, k, v = self.rotated(x, 0)
        y = self.look(x, q, k, v, self.summaries(k, v, key_padding_mask), key_padding_mask)
        return self.out_proj(merge_heads(y))

    def empty_state(self, batch: int) -> State:
        cache = empty_ring(self.q_proj.weight, batch, self.key_heads, min(ROOM, self.max_length), self.head_dim)
        return {**cache, "summaries": self.summaries(cache["k"][:, :, :0], cache["v"][:, :, :0], None)}

    def chunk(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        first, kept = state["seen"], state["summaries"]
        q, k, v = self.rotated(x, first)
        state = self.remember(k, v, state)
        end = state["seen"]
        k, v = state["k"][:, :, :end], state["v"][:, :, :end]
        complete = first // self.block, end // self.block
        if complete[0] < complete[1]:
            tokens = slice(complete[0] * self.block, complete[1] * self.block)
            new = self.summaries(k[:, :, tokens], v[:, :, tokens], None)
            kept = {name: torch.cat([kept[name], new[name]], 2) for name in kept}
        y = self.look(x, q, k, v, kept, None)
        return self.out_proj(merge_heads(y)), {**state, "summaries": kept}


class MoBA(ChosenBlocks):
    """Attention to the own block and to the past blocks whose mean keys fit the query best.

    `head_norm` normalises each head's output (RMSNorm with E weights), as flash-linear-attention does.
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        block: int = 512,
        selected: int = 3,
        group: int = 1,
        head_norm: bool = False,
        **options: Any,
    ):
        super().__init__(dim, heads, block=block, selected=selected, group=group, **options)
        self.head_norm = nn.RMSNorm(self.head_dim, eps=EPSILON) if head_norm else nn.Identity()

    def summaries(self, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> dict[str, Tensor]:
        return {"means": block_means(k, self.block, key_padding_mask)}

    def look(
        self, x: Tensor, q: Tensor, k: Tensor, v: Tensor, kept: dict[str, Tensor], key_padding_mask: Tensor | None
    ) -> Tensor:
        chosen = choose_blocks(
            q, kept["means"], hidden_blocks(key_padding_mask, self.block),
            block=self.block, selected=self.selected - 1, first=k.shape[2] - q.shape[2],
        )  # fmt: skip
        y = self.attend_to_blocks(q.to(v.dtype), k, v, chosen, key_padding_mask)
        return self.head_norm(upcast(y)).to(v.dtype)
