"""LongNet: a mixture of dilated attentions (Ding et al., 2023, arXiv 2307.02486).

    branch (w, r): segments of w tokens, of which a head takes every r-th, softmax attention among these  (§2.2)
    O = sum_b alpha_b O_b,   alpha_b = s_b / sum_b' s_b',   s_b the softmax sum of branch b                (§2.3)

Time O(N D sum_b w_b / r_b), memory O(N D), decoding state: keys and values of the last max_b w_b tokens. If w and r
grow by the same factor a, each head sees near tokens densely and far ones in wider steps, and time is below
a / (a - 1) N w_1 D.

    B batch, N length, D width, H heads, E head width
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.attention.base import MultiHead, Pattern, State, check_choice
from models.ops.dilated import OFFSETS, Branch, dilated_attention, empty_mixture, mix
from models.ops.heads import merge_heads, split_heads
from models.ops.positions import apply_rope, rope_frequencies, xpos_scale
from models.ops.ring import after_latest, store
from models.ops.softmax_lse import Visible, softmax_lse

XPOS_REACH = 2**16  # in a longer segment xPos' scales, (0.4 / 1.4)^(t / 512) from its middle, exceed float32


class LongNet(MultiHead):
    """Dilated attention with `segments` w and `ratios` r.

    The offset of head h in a branch is floor(h / ceil(H / r)), as in the public code (torchscale), or with
    `offsets="mod"` h mod r, as in the paper (D-13). alpha has no gradient, as in the code; `detach_alpha=False` gives
    the exact gradient (D-14). Segments are clipped to the length. If r does not divide w, the last step of a segment is
    shorter; the code shifts all later segments instead. Padding is hidden; the code's zeros receive weight in its
    noncausal form. Tokens in no branch get zeros before the output projection. `subln` normalises the joint output of
    the heads before that projection. `xpos` rotates and scales queries and keys (Sun et al., 2022, arXiv 2212.10554).
    Its positions count from the middle of the longest segment, because from the start of a long text the scales would
    overflow; it exists only in the causal form (D-45).

    Raises ValueError for lists of different lengths, numbers below 1, unknown `offsets`, and on decoding past
    `max_length` if that cuts a segment. With xPos also for the noncausal form, an odd head width, a segment that does
    not divide the longest one, and a segment that is too long.
    """

    patterns: ClassVar[frozenset[Pattern]] = frozenset({Pattern.NONCAUSAL_SELF, Pattern.CAUSAL_SELF})
    chunked = False  # a chunk rereads the earlier tokens of the longest segment

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        segments: Sequence[int] = (2048, 4096, 8192, 16384, 32768),
        ratios: Sequence[int] = (1, 2, 4, 6, 12),
        offsets: str = "group",
        detach_alpha: bool = True,
        subln: bool = False,
        xpos: bool = False,
        **options: Any,
    ):
        super().__init__(dim, heads, **options)
        if len(segments) != len(ratios) or not segments or min(*segments, *ratios) < 1:
            raise ValueError(
                f"LongNet requires as many ratios as segments, all >= 1, not {[*segments]} and {[*ratios]}"
            )
        check_choice("offsets", offsets, OFFSETS)
        self.longest = max(segments)
        if xpos:
            rope_frequencies(self.head_dim)  # refuses an odd width
            if not self.pattern.causal:
                raise ValueError(
                    "LongNet's xpos requires pattern causal_self: a key after its query would weigh up to "
                    "3.5^(distance / 512) times as much"
                )
            if any(self.longest % segment for segment in segments):
                raise ValueError(f"LongNet's xpos requires segments that divide the longest, not {[*segments]}")
            if min(self.longest, self.max_length) > XPOS_REACH:
                raise ValueError(f"LongNet's xpos requires segments of at most {XPOS_REACH} tokens, not {self.longest}")
        self.offsets = OFFSETS[offsets]
        self.branches = [Branch(w, r, self.offsets(heads, r)) for w, r in zip(segments, ratios, strict=True)]
        self.detach_alpha, self.xpos = detach_alpha, xpos
        self.inner_norm = nn.LayerNorm(dim) if subln else None

    def attend(self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        length = q.shape[2]
        q, k = self.apply_xpos(q, k, torch.arange(length, device=q.device), min(self.longest, length))
        y = dilated_attention(
            q,
            k,
            v,
            self.branches,
            causal=self.pattern.causal,
            detach_alpha=self.detach_alpha,
            key_padding_mask=key_padding_mask,
            dropout=self.active_dropout,
        )
        return self.normalise(y)

    def apply_xpos(self, q: Tensor, k: Tensor, positions: Tensor, block: int) -> tuple[Tensor, Tensor]:
        """Queries and keys (B, H, N, E) at these positions with xPos, which restarts in each block."""
        if not self.xpos:
            return q, k
        scale = xpos_scale(positions % block - block // 2, self.head_dim)
        return apply_rope(q, positions, scale=scale), apply_rope(k, positions, scale=1 / scale)

    def normalise(self, y: Tensor) -> Tensor:
        """(B, H, N, E): normalise the heads of a token together."""
        return y if self.inner_norm is None else split_heads(self.inner_norm(merge_heads(y)), self.head_dim)

    def empty_state(self, batch: int) -> State:
        """Rings of keys and values with the length of the longest segment."""
        return self.empty_cache(batch, min(self.longest, self.max_length))

    def attend_chunk(self, q: Tensor, k: Tensor, v: Tensor, state: State) -> tuple[Tensor, State]:
        seen, size, count = state["seen"], state["k"].shape[2], q.shape[2]
        base = seen - seen % size  # a segment of every branch begins here, if all divide the longest
        if count == 1 or (base and any(size % branch.segment for branch in self.branches)):
            return super().attend_chunk(q, k, v, state)
        self.check_decodes_to(seen + count, size)
        positions = torch.arange(seen, seen + count, device=q.device)
        q, k = self.apply_xpos(q, k, positions, size)
        keys, values = (after_latest(state[name], x, seen, seen - base) for name, x in (("k", k), ("v", v)))
        rows = F.pad(q, (0, 0, seen - base, 0))
        y = dilated_attention(rows, keys, values, self.branches, causal=True, detach_alpha=self.detach_alpha)
        store(state["k"], k, seen)
        store(state["v"], v, seen)
        return self.normalise(y[:, :, seen - base :]), {**state, "seen": seen + count}

    def check_decodes_to(self, length: int, ring: int) -> None:
        if length > self.max_length and ring < self.longest:
            raise ValueError(f"decoding past max_length {self.max_length}, which cuts a segment of {self.longest}")

    def attend_step(self, q: Tensor, k: Tensor, v: Tensor, state: State) -> tuple[Tensor, State]:
        seen, ring = state["seen"], state["k"].shape[2]
        self.check_decodes_to(seen + 1, ring)
        q, k, v = q[:, :, None], k[:, :, None], v[:, :, None]  # (B, H, 1, E)
        q, k = self.apply_xpos(q, k, torch.tensor([seen], device=q.device), ring)
        slot = seen % ring
        state["k"][:, :, slot], state["v"][:, :, slot] = k[:, :, 0], v[:, :, 0]
        out, lse = empty_mixture(q)
        for segment, ratio, lanes in self.branches:
            start = seen - seen % segment
            for offset, heads in lanes:
                if (seen - start) % ratio == offset:
                    keys = torch.arange(start + offset, seen + 1, ratio, device=q.device) % ring
                    past = (state[name][:, heads].index_select(2, keys) for name in ("k", "v"))
                    mix(out[:, heads], lse[:, heads], *softmax_lse(q[:, heads], *past, Visible(causal=False)))
        return self.normalise(out.to(q.dtype))[:, :, 0], {**state, "seen": seen + 1}
