"""LLP: Perceiver AR on overlapping pairs of half segments (Mahmood & Huang, 2024, arXiv 2412.06106, §4.4).

Half segments ("blocks") of c = s/2 tokens; block 0 attends to itself, block b >= 1 to blocks b - 1 and b:

    o_i = sum_j softmax_j( E^-1/2 <q_i, k_j> ) v_j,   j <= i,  floor(j/c) >= floor(i/c) - 1      (22-29)
    q = W_q x,  v = W_kv x,  k = LayerNorm_E(v) for the queries of blocks >= 1, k = v for those of block 0
    y_i = W_o0 o_i + b_o0 in block 0,  W_o o_i + b_o in the others

A query sees c + 1 to 2 c keys. Time O(n s d), memory O(n d) with torch's fused kernels (weight dropout, where they lack
it: O(n s h)). Decoding keeps one vector per token of two blocks: s d numbers per layer.

    B batch, N length, H heads, E head width, c half segment, G blocks after the first
"""

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.attention.base import Attention, Pattern, State, projection
from models.attention.vanilla import softmax_attention
from models.ops import flex
from models.ops.attention import attention
from models.ops.heads import merge_heads, split_heads
from models.ops.padding import see_something
from models.ops.positions import apply_rope, rope_frequencies


def paired_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    half: int,
    causal: bool,
    key_padding_mask: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Attention of all blocks but the first: q (B, H, N - half, E), k and v (B, H, N, E) -> (B, H, N - half, E).

    If `causal`, a block reads the previous block and, causally, itself. Otherwise it reads the previous block, itself
    and the next block in full.
    `key_padding_mask` (B, N) is True at padding.
    """
    if flex.chosen(q, dropout):
        span = flex.Span(0, (2 if causal else 3) * half - 1, block=half, limit=half if causal else None)
        return flex.span_attention(q, k, v, span, hidden=key_padding_mask)[0]
    batch, blocks = len(q), -(-q.shape[2] // half)
    reach = 2 if causal else 3  # blocks that each block reads

    def near(x: Tensor, reach: int) -> Tensor:
        """(B, N, ...) -> (B, G, reach c, ...): for block g, the `reach` blocks of x from the g-th on."""
        fill = (blocks + reach - 1) * half - x.shape[1]
        x = F.pad(x, [0, 0] * (x.ndim - 2) + [0, fill]).unflatten(1, (-1, half))
        return torch.cat([x[:, i : i + blocks] for i in range(reach)], 2)

    def cut(x: Tensor, reach: int) -> Tensor:
        """(B, H, N, E) -> (B G, H, reach c, E)."""
        return near(x.transpose(1, 2), reach).transpose(2, 3).flatten(0, 1)

    row, column = torch.arange(half, device=q.device)[:, None], torch.arange(reach * half, device=q.device)
    visible = column <= row + (half if causal else reach * half)  # (c, reach c)
    if key_padding_mask is not None or not causal:  # in the causal form the filler of the last block lies in the future
        valid = k.new_ones(batch, k.shape[2], dtype=torch.bool) if key_padding_mask is None else ~key_padding_mask
        visible = visible & near(valid, reach)[:, :, None]  # (B, G, c, reach c)
        visible = see_something(visible).flatten(0, 1)[:, None]
    # (B G, H, c, E)
    y = attention(cut(q, 1), cut(k, reach), cut(v, reach), mask=visible, dropout=dropout)
    return y.unflatten(0, (batch, blocks)).transpose(1, 2).flatten(2, 3)[:, :, : q.shape[2]]


class LLP(Attention):
    """Multi-head LLP: 4 D^2 + 2 D + 2 E parameters.

    The equations give each block its own W_k and W_v. The listing (Fig. 5) and the printed parameter counts have one
    W_kv for keys, values and all blocks, the norm, and two output projections; this class follows them. Scale and
    rotary positions come from the code that the listing builds on: q and W_kv x are rotated, and thus the values;
    `rotate_values=False` rotates only the keys, `rotary=False` nothing (D-17). A segment is the key span of the
    equations; `listing_segment` takes the listing's `segment_len`, which is half of it (D-18). The noncausal form of
    Table 9 is the causal layer or, with `bidirectional`, the blocks b - 1 to b + 1 without a mask (D-19). Raises
    ValueError for an odd `segment`.
    """

    patterns: ClassVar[frozenset[Pattern]] = frozenset({Pattern.NONCAUSAL_SELF, Pattern.CAUSAL_SELF})

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        segment: int = 256,
        listing_segment: bool = False,
        rotary: bool = True,
        rotate_values: bool = True,
        bidirectional: bool = False,
        **options: Any,
    ):
        super().__init__(dim, heads, **options)
        if segment < 2 or segment % 2:
            raise ValueError(f"LLP requires an even segment >= 2, not {segment}")
        if rotary:
            rope_frequencies(self.head_dim)  # refuses an odd width
        self.half_segment = segment if listing_segment else segment // 2
        self.causal = self.pattern.causal or not bidirectional
        self.rotary, self.rotate_values = rotary, rotate_values
        self.q_proj = nn.Linear(dim, dim, bias=False)
        self.kv_proj = nn.Linear(dim, dim, bias=False)
        self.key_norm = nn.LayerNorm(self.head_dim)
        self.out_proj = projection(dim, dim, 1.0)
        self.first_out_proj = projection(dim, dim, 1.0)

    @property
    def looks_ahead(self) -> bool:
        return not self.causal

    def forward(
        self, x: Tensor, context: Tensor | None = None, *, key_padding_mask: Tensor | None = None, carry: Any = None
    ) -> tuple[Tensor, Any]:
        x = self.source(x, context)
        positions = torch.arange(x.shape[1], device=x.device)
        q = self.rotate(split_heads(self.q_proj(x), self.head_dim), positions)  # (B, H, N, E)
        values = split_heads(self.kv_proj(x), self.head_dim)  # (B, H, N, E)
        keys = self.rotate(values, positions)
        if self.rotate_values:
            values = keys
        return self.mix(q, keys, values, key_padding_mask), carry

    def mix(self, q: Tensor, keys: Tensor, values: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        """q, keys, values (B, H, N, E), mask (B, N) -> (B, N, D)."""
        half, options = self.half_segment, {"causal": self.causal, "dropout": self.active_dropout}
        near = slice(0, half if self.causal else 2 * half)  # the keys that the first block sees
        mask = None if key_padding_mask is None else key_padding_mask[:, near]
        y = softmax_attention(q[:, :, :half], keys[:, :, near], values[:, :, near], key_padding_mask=mask, **options)
        y = self.first_out_proj(merge_heads(y))
        if q.shape[2] > half:
            keys = self.key_norm(keys).to(q.dtype)
            rest = paired_attention(
                q[:, :, half:], keys, values, half=half, key_padding_mask=key_padding_mask, **options
            )
            y = torch.cat([y, self.out_proj(merge_heads(rest))], 1)
        return y

    def rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        """x (B, H, N, E) rotated by its positions (N,)."""
        return apply_rope(x, positions) if self.rotary else x

    def empty_state(self, batch: int) -> State:
        """The keys of the previous and the current block. The values are the same vectors, possibly rotated back."""
        keys = self.q_proj.weight.new_zeros(batch, self.heads, 2 * self.half_segment, self.head_dim)
        return {"keys": keys, "seen": 0}

    def step(self, x_t: Tensor, state: State) -> tuple[Tensor, State]:
        keys, seen, half = state["keys"], state["seen"], self.half_segment
        block, slot = divmod(seen, half)
        if block and not slot:
            keys[:, :, :half] = keys[:, :, half:]
        position = torch.tensor([seen], device=x_t.device)
        q, kv = (split_heads(linear(x_t)[:, None], self.head_dim) for linear in (self.q_proj, self.kv_proj))
        q = self.rotate(q, position)  # (B, H, 1, E)
        keys[:, :, half + slot] = self.rotate(kv, position)[:, :, 0]
        near = slice(0 if block else half, half + slot + 1)
        keys = values = keys[:, :, near]
        if self.rotary and not self.rotate_values:
            positions = torch.arange(keys.shape[2], device=x_t.device) + seen + 1 - keys.shape[2]
            values = apply_rope(keys, positions, inverse=True)
        if block:
            keys = self.key_norm(keys).to(q.dtype)
        y = F.scaled_dot_product_attention(q, keys, values)[:, :, 0].flatten(1)
        return (self.out_proj if block else self.first_out_proj)(y), {**state, "seen": seen + 1}

    def chunk(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        if x.shape[1] == 1:
            return super().chunk(x, state)
        seen, half = state["seen"], self.half_segment
        base = max(0, seen // half - 1) * half  # start of the block before the chunk's first block
        positions = torch.arange(seen, seen + x.shape[1], device=x.device)
        q = self.rotate(split_heads(self.q_proj(x), self.head_dim), positions)
        q = F.pad(q, (0, 0, seen - base, 0))
        keys = self.rotate(split_heads(self.kv_proj(x), self.head_dim), positions)
        end = half + (seen - 1) % half + 1 if seen else half  # end of the tokens in the state
        keys = torch.cat([state["keys"][:, :, end - (seen - base) : end].to(q.dtype), keys], 2)
        values = keys
        if self.rotary and not self.rotate_values:
            values = apply_rope(keys, torch.arange(base, seen + x.shape[1], device=x.device), inverse=True)
        y = self.mix(q, keys, values, None)[:, seen - base :]
        seen += x.shape[1]
        filled = (seen - 1) % half + 1  # tokens in the last block
        last = keys[:, :, -(filled + half) :]
        state["keys"][:, :, half + filled - last.shape[2] : half + filled] = last
        return y, {**state, "seen": seen}
