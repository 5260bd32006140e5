"""LAVO: attention to an orthogonal memory of fixed size, and to a local window (Zhang et al., 2023, arXiv 2312.11135).

Per head, with directions b_1 .. b_r, orthonormal at first (Table 1: r = 64, w = 16; Table 11: r = 32, w = 256):

    F_local,i  = sum_j softmax_j( s <q_i, k_j> + P[j - i + w - 1] ) v_j                      (§3.2, §3.3)
                 causal: -w < j - i <= 0; noncausal: |j - i| < w
    H          = mean_j ( <b_1, F_local,j>, .., <b_r, F_local,j> )                           (3, 4)
                 causal: j in the windows before the query's own; noncausal: all j
    F_global,i = sum_r p_ir H_r b_r,   p_i = softmax_r( s H_r <q_i, b_r> )                   (3)
    y          = W_o (F_local + F_global) / 2                                                (§3.2)
    cross: y   = W_o F_global with H = mean_j B x_j over the source                          (5, 6)

The memory is r numbers per head: softmax(q X~') X~ with rows X~_r = H_r b_r is two products with B, so neither X~ nor
anything of n r E numbers is made. Time O(n (w + r) D), memory O(n (D + h r)), decoding state O(w D + h r).

Where the paper is silent: bases per head, trainable, not re-orthogonalised, r <= E (D-1); P per head, from zero (D-2);
s = E^-1/2 in both halves, 1 in the global one with `global_scale` off (D-3); noncausal queries share one H over all
tokens (D-4); the cross source is taken as it is, or through W_v with `cross_source="value"` (D-5); in the first causal
window H = 0 and the local half is still halved (D-1b); padding is left out of sums and counts. Ablations of Table 9:
`epe=False` drops P; `dissection=False` takes H over all j <= i (all j) of x itself and keeps the local half.

    B batch, N length, M source length, H heads, E head width, R bases, W windows
"""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from models.attention.base import (
    INPUT_GAIN,
    Attention,
    Pattern,
    State,
    merge_heads,
    projection,
    split_heads,
)
from models.layers.banded import banded_attention
from models.layers.precision import widen, without_autocast

CROSS_SOURCES = ("raw", "value")


def lavo(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bases: Tensor,
    bias: Tensor | None = None,
    *,
    window: int,
    causal: bool,
    raw: Tensor | None = None,
    key_padding_mask: Tensor | None = None,
    dropout: float = 0.0,
    scale: float | None = None,
) -> Tensor:
    """Self-attention: q, k, v (B, H, N, E), bases (H, R, E), bias (H, 2 window - 1) -> (B, H, N, E).

    `raw` (B, H, N, E) is remembered token by token in place of the local features ("w/o cd" of Table 9). `scale` is the
    global one, E^-1/2 unless given. `key_padding_mask` (B, N) is True at padding.
    """
    right = 0 if causal else window - 1
    local = banded_attention(
        q,
        k,
        v,
        left=window - 1,
        right=right,
        bias=None if bias is None else bias[:, : window + right],
        key_padding_mask=key_padding_mask,
        dropout=dropout,
    )
    remembered = local if raw is None else raw
    if causal:
        memory = past_memory(remembered, bases, key_padding_mask, window=window if raw is None else None)
    else:
        memory = mean_memory(remembered, bases, key_padding_mask)
    return (local + read(q, memory, bases, dropout=dropout, scale=scale)) / 2


def read(q: Tensor, memory: Tensor, bases: Tensor, *, dropout: float = 0.0, scale: float | None = None) -> Tensor:
    """softmax(q X~') X~ of q (B, H, N, E), memory H (B, H, N or 1, R) and bases (H, R, E): (B, H, N, E)."""
    if scale is None:
        scale = q.shape[-1] ** -0.5
    memory = memory.to(q.dtype)
    logits = (q @ bases.mT.to(q.dtype)) * memory * scale  # (B, H, N, R)
    weights = nn.functional.dropout(widen(logits).softmax(-1), dropout).to(q.dtype)
    return (weights * memory) @ bases.to(q.dtype)


def mean_memory(x: Tensor, bases: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
    """Mean of B x over the tokens of x (B, H, M, E): (B, H, 1, R), zero where all are padding."""
    with without_autocast(x):
        if key_padding_mask is None:
            mean = widen(x).mean(2, keepdim=True)
        else:
            x = x.masked_fill(key_padding_mask[:, None, :, None], 0.0)
            count = (~key_padding_mask).sum(1).clamp(min=1)
            mean = widen(x).sum(2, keepdim=True) / count[:, None, None, None]
        return mean @ widen(bases).mT


def past_memory(x: Tensor, bases: Tensor, key_padding_mask: Tensor | None = None, *, window: int | None) -> Tensor:
    """Mean of B x over what each query may remember of x (B, H, N, E): (B, H, N, R), zero where that is nothing.

    That is the windows before the query's own, or with `window=None` all tokens up to it.
    """
    length = x.shape[2]
    with without_autocast(x):
        valid = x.new_ones(1, length) if key_padding_mask is None else (~key_padding_mask).to(x.dtype)  # (B or 1, N)
        x = widen(x * valid[:, None, :, None])
        valid = widen(valid)[:, None, :, None]
        if window is None:
            return (x @ widen(bases).mT).cumsum(2) / valid.cumsum(2).clamp(min=1)
        total = windows_before(x, window) @ widen(bases).mT  # (B, H, W, R)
        memory = total / windows_before(valid, window).clamp(min=1)
        return memory.repeat_interleave(window, 2)[:, :, :length]


def windows_before(x: Tensor, window: int) -> Tensor:
    """(B, H, N, F) -> (B, H, W, F): for each window, the next one to begin included, the sum over all before it."""
    full = x.shape[2] // window  # windows; a last, incomplete one is before none
    sums = x[:, :, : full * window].unflatten(2, (full, window)).sum(3).cumsum(2)
    return nn.functional.pad(sums, (0, 0, 1, 0))


class LAVO(Attention):
    """Multi-head LAVO. Self: 4 D^2 + 4 D + r D + h (2 w - 1) parameters; cross: 2 D^2 + 2 D + r D, + D^2 + D for W_v.

    Raises ValueError for more bases than the head width has dimensions, a window below 1, or an unknown `cross_source`.
    """

    patterns: ClassVar[frozenset[Pattern]] = frozenset(Pattern)

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        pattern: Pattern | str,
        max_length: int,
        dropout: float = 0.0,
        bases: int = 64,
        window: int = 16,
        epe: bool = True,
        dissection: bool = True,
        freeze_bases: bool = False,
        global_scale: bool = True,
        cross_source: str = "raw",
    ):
        super().__init__(dim, heads, pattern=pattern, max_length=max_length, dropout=dropout)
        if not 1 <= bases <= self.head_dim:
            raise ValueError(f"LAVO needs bases <= head width: {bases} bases, head width {self.head_dim}")
        if window < 1:
            raise ValueError(f"LAVO needs window >= 1, not {window}")
        if cross_source not in CROSS_SOURCES:
            raise ValueError(f"cross_source is one of {', '.join(CROSS_SOURCES)}, not {cross_source}")
        self.window, self.dissection = window, dissection
        self.global_scale = self.head_dim**-0.5 if global_scale else 1.0
        self.q_proj = projection(dim, dim, INPUT_GAIN)
        self.k_proj = None if self.pattern.cross else projection(dim, dim, INPUT_GAIN)
        raw_source = self.pattern.cross and cross_source == "raw"
        self.v_proj = None if raw_source else projection(dim, dim, INPUT_GAIN)
        self.out_proj = projection(dim, dim, 1.0)
        self.bases = nn.Parameter(torch.empty(heads, bases, self.head_dim), requires_grad=not freeze_bases)
        for base in self.bases.detach():
            nn.init.orthogonal_(base)
        local = epe and not self.pattern.cross
        self.position_bias = nn.Parameter(torch.zeros(heads, 2 * window - 1)) if local else None

    def forward(
        self, x: Tensor, context: Tensor | None = None, *, key_padding_mask: Tensor | None = None, carry: Any = None
    ) -> tuple[Tensor, Any]:
        source = self.source(x, context)
        q = split_heads(self.q_proj(x), self.head_dim)  # (B, H, N, E)
        v = split_heads(source if self.v_proj is None else self.v_proj(source), self.head_dim)  # (B, H, M, E)
        options = {"dropout": self.active_dropout, "scale": self.global_scale}
        if self.k_proj is None:
            y = read(q, mean_memory(v, self.bases, key_padding_mask), self.bases, **options)
        else:
            k = split_heads(self.k_proj(source), self.head_dim)
            raw = None if self.dissection else split_heads(x, self.head_dim)
            y = lavo(
                q,
                k,
                v,
                self.bases,
                self.position_bias,
                window=self.window,
                causal=self.pattern.causal,
                raw=raw,
                key_padding_mask=key_padding_mask,
                **options,
            )
        return self.out_proj(merge_heads(y)), carry

    def init_state(self, batch: int, *, context: Tensor | None = None) -> State:
        """Rings of the last `window` keys and values, sums of B x over the finished windows and over this one."""
        if self.pattern is not Pattern.CAUSAL_SELF:
            raise ValueError(f"LAVO decodes with pattern causal_self, not {self.pattern}")
        ring = self.bases.new_zeros(2, batch, self.heads, self.window, self.head_dim)
        sums = widen(self.bases.new_zeros(2, batch, self.heads, self.bases.shape[1]))
        return {"k": ring[0], "v": ring[1], "past": sums[0], "current": sums[1], "seen": 0}

    def step(self, x_t: Tensor, state: State) -> tuple[Tensor, State]:
        q, k, v = (linear(x_t).unflatten(-1, (-1, self.head_dim)) for linear in (self.q_proj, self.k_proj, self.v_proj))
        seen, window = state["seen"], self.window  # q, k, v (B, H, E)
        slot = seen % window
        state["k"][:, :, slot], state["v"][:, :, slot] = k, v
        filled = min(seen + 1, window)
        bias = None
        if self.position_bias is not None:
            age = (slot - torch.arange(filled, device=q.device)) % window  # of each slot, 0 for this token
            bias = self.position_bias[:, window - 1 - age][:, None].to(q.dtype)  # (H, 1, filled)
        local = nn.functional.scaled_dot_product_attention(
            q[:, :, None], state["k"][:, :, :filled], state["v"][:, :, :filled], attn_mask=bias
        )  # (B, H, 1, E)
        past, current = state["past"], state["current"]
        remembered = local if self.dissection else x_t.unflatten(-1, (-1, self.head_dim))[:, :, None]
        z = (remembered @ self.bases.mT)[:, :, 0]  # (B, H, R)
        if self.dissection:
            count = seen - slot
            if slot == 0:
                past, current = past + current, torch.zeros_like(current)
            current = current + z
        else:
            count = seen + 1
            past = past + z
        memory = (past / max(count, 1))[:, :, None]  # (B, H, 1, R)
        y = (local + read(q[:, :, None], memory, self.bases, scale=self.global_scale)) / 2
        return self.out_proj(y.flatten(1)), {**state, "past": past, "current": current, "seen": seen + 1}
