"""Sparse Transformer: a query's block and summary columns (Child et al., 2019, arXiv 1904.10509; fixed, merged).

    o_i = sum_{j in S(i)} softmax_j( <q_i, k_j> E^-1/2 ) v_j
    S(i) = { j : floor(j / b) = floor(i / b) }  and  { j : j mod b = 0 or j mod b >= b - c },   causally only j <= i

The paper counts the columns b - c, ..., b; as in LRA's code, the last of them is 0. Time O(N (b + N (c + 1) / b) D),
which is O(N sqrt(N) D) for b near sqrt(N); memory O(N D). Decoding keeps all keys and values.

The pattern has two parts without common keys, merged by their softmax sums. Noncausal: the query's block without its
columns, and all columns. Causal: the query's block, and the columns of earlier blocks.

LRA's code is lower triangular even in its bidirectional encoders; `lra_compat` reproduces that in noncausal_self.
Otherwise the pattern above holds in both directions. If LRA's classifier reads the first position, that position sees
all and is seen by all, and the pattern covers the others: `open_first` (D-23). In a lower triangular pattern without it
the first position sees only itself.

    B batch, N length, H heads, E head width, b tokens of a block, c summary columns, G blocks, M summary keys
    F globally visible positions: 1 with `open_first`, else 0
"""

from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from models.attention.base import MultiHead, Pattern, State
from models.attention.vanilla import softmax_attention
from models.ops.dilated import empty_mixture, mix
from models.ops.dropout import draw_seed
from models.ops.precision import autocast_disabled
from models.ops.softmax_lse import Visible, softmax_lse, softmax_lse_backward


def is_summary(positions: Tensor, block: int, columns: int) -> Tensor:
    """True at the positions that later blocks see, or, in the noncausal form, all blocks."""
    return (positions % block == 0) | (positions % block >= block - columns)


def fixed_pattern(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    block: int,
    columns: int,
    causal: bool,
    open_first: bool = False,
    key_padding_mask: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """q, k, v (B, H, N, E), mask (B, N) True at padding -> (B, H, N, E), zeros for a query that sees nothing.

    With `open_first` the first position sees all and is seen by all, and blocks start at the second position.
    """
    first, (batch, _, length, _) = int(open_first), q.shape
    rest = (first - length) % block
    hidden = key_padding_mask
    if hidden is None:
        hidden = torch.zeros(batch, length, dtype=torch.bool, device=q.device)
    hidden = F.pad(hidden, (0, rest), value=True)
    padded = (F.pad(x, (0, 0, 0, rest)) for x in (q[:, :, first:], k, v))
    masked = key_padding_mask is not None or rest > 0
    plan = _FixedLayout(block, columns, causal, first, masked, dropout, draw_seed(dropout))
    y = _Fixed.apply(*padded, hidden, plan)[:, :, : length - first]
    if not open_first:
        return y
    row = softmax_attention(q[:, :, :1], k, v, key_padding_mask=key_padding_mask, dropout=dropout)
    return torch.cat([row, y], 2)


class _FixedLayout(NamedTuple):
    block: int
    columns: int
    causal: bool
    first: int
    masked: bool  # whether any key is hidden
    dropout: float
    seed: int

    def blocks(self, x: Tensor) -> Tensor:
        """(B, H, N, ...) -> (B G, H, b, ...)."""
        return x.unflatten(2, (-1, self.block)).transpose(1, 2).flatten(0, 1)

    def join(self, x: Tensor, batch: int) -> Tensor:
        """(B G, H, b, ...) -> (B, H, N, ...)."""
        return x.unflatten(0, (batch, -1)).transpose(1, 2).flatten(2, 3)

    def summary(self, hidden: Tensor) -> Tensor:
        """Positions (F + M) of the globally visible keys, then of the summary keys; hidden (B, F + N)."""
        device, blocks = hidden.device, (hidden.shape[1] - self.first) // self.block
        # those of a block at which `is_summary` is True
        inside = F.pad(torch.arange(max(1, self.block - self.columns), self.block, device=device), (1, 0))
        starts = torch.arange(blocks, device=device)[:, None] * self.block + self.first
        return torch.cat([torch.arange(self.first, device=device), (starts + inside).flatten()])

    def own_block(self, hidden: Tensor) -> tuple[Visible, Tensor]:
        """Visible keys of each block, and which of its queries see none (B G, b); hidden (B, F + N)."""
        hidden = hidden[:, self.first :].unflatten(1, (-1, self.block)).flatten(0, 1)
        if not self.causal:
            hidden = hidden | is_summary(torch.arange(self.block, device=hidden.device), self.block, self.columns)
            return Visible(False, hidden, self.dropout, self.seed), hidden.all(1, keepdim=True).expand_as(hidden)
        first = torch.where(hidden.all(1), self.block, (~hidden).int().argmax(1))  # (B G), the first visible key
        blind = torch.arange(self.block, device=hidden.device) < first[:, None]
        return Visible(True, hidden, self.dropout, self.seed), blind

    def parts(self, length: int, columns: int) -> list[tuple[slice, slice]]:
        """Slices of queries, and of the F + M keys that they see."""
        if not self.causal:
            return [(slice(0, length), slice(0, self.first + columns))]
        per_block = columns * self.block // length
        return [
            (slice(g * self.block, (g + 1) * self.block), slice(0, self.first + g * per_block))
            for g in range(1 - self.first, length // self.block)
        ]

    def seen(self, number: int, hidden: Tensor) -> Visible:
        """Summary keys (B, M') that part `number` sees."""
        return Visible(False, hidden if self.masked else None, self.dropout, self.seed + ((number + 1) << 20))


class _Fixed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, hidden, plan):
        batch, _, length, _ = q.shape
        with autocast_disabled(q):
            visible, blind = plan.own_block(hidden)
            rows = (plan.blocks(x) for x in (q, k[:, :, plan.first :], v[:, :, plan.first :]))
            near, near_lse = softmax_lse(*rows, visible)
            out, lse = empty_mixture(q)
            near_lse = near_lse.masked_fill(blind[:, None], float("-inf"))
            mix(out, lse, plan.join(near, batch), plan.join(near_lse, batch))
            where = plan.summary(hidden)
            short_k, short_v, short_hidden = k[:, :, where], v[:, :, where], hidden[:, where]
            for number, (queries, keys) in enumerate(plan.parts(length, len(where) - plan.first)):
                visible = plan.seen(number, short_hidden[:, keys])
                part, part_lse = softmax_lse(q[:, :, queries], short_k[:, :, keys], short_v[:, :, keys], visible)
                if visible.hidden is not None:
                    part_lse = part_lse.masked_fill(visible.hidden.all(1)[:, None, None], float("-inf"))
                mix(out[:, :, queries], lse[:, :, queries], part, part_lse)
            out = out.to(q.dtype)
        ctx.plan = plan
        ctx.save_for_backward(q, k, v, hidden, out, lse)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        q, k, v, hidden, out, lse = ctx.saved_tensors
        plan, (batch, _, length, _) = ctx.plan, q.shape
        # a query that sees nothing gave zeros: with an infinite sum it has no gradient either
        lse = lse.masked_fill(lse == float("-inf"), torch.finfo(lse.dtype).max)
        with autocast_disabled(q):
            rows = (plan.blocks(x) for x in (grad, q, k[:, :, plan.first :], v[:, :, plan.first :], out, lse))
            grads = softmax_lse_backward(*rows, plan.own_block(hidden)[0])
            dq, dk, dv = (plan.join(x, batch).to(lse.dtype) for x in grads)
            dk, dv = (F.pad(x, (0, 0, plan.first, 0)) for x in (dk, dv))
            where = plan.summary(hidden)
            short_k, short_v, short_hidden = k[:, :, where], v[:, :, where], hidden[:, where]
            short_dk, short_dv = (torch.zeros_like(x, dtype=lse.dtype) for x in (short_k, short_v))
            for number, (queries, keys) in enumerate(plan.parts(length, len(where) - plan.first)):
                grads = softmax_lse_backward(
                    grad[:, :, queries],
                    q[:, :, queries],
                    short_k[:, :, keys],
                    short_v[:, :, keys],
                    out[:, :, queries],
                    lse[:, :, queries],
                    plan.seen(number, short_hidden[:, keys]),
                )
                dq[:, :, queries] += grads[0]
                short_dk[:, :, keys] += grads[1]
                short_dv[:, :, keys] += grads[2]
            dk[:, :, where] += short_dk
            dv[:, :, where] += short_dv
        return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype), None, None


class SparseTransformer(MultiHead):
    """Multi-head attention of the merged fixed pattern.

    Raises ValueError unless 1 <= columns <= block, and when decoding past `max_length`. Neither `lra_compat` nor
    `open_first` affects causal attention.
    """

    patterns: ClassVar[frozenset[Pattern]] = frozenset({Pattern.NONCAUSAL_SELF, Pattern.CAUSAL_SELF})
    linear: bool = False

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        block: int = 128,
        columns: int = 32,
        lra_compat: bool = False,
        open_first: bool = False,
        **options: Any,
    ):
        super().__init__(dim, heads, **options)
        if not 1 <= columns <= block:
            raise ValueError(f"SparseTransformer requires 1 <= columns <= block, not {columns} and {block}")
        self.block, self.columns = block, columns
        self.open_first = open_first and not self.pattern.causal
        self.triangular = lra_compat or self.pattern.causal

    @property
    def looks_ahead(self) -> bool:
        return self.open_first or not self.triangular

    def attend(self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        return fixed_pattern(
            q,
            k,
            v,
            block=self.block,
            columns=self.columns,
            causal=self.triangular,
            open_first=self.open_first,
            key_padding_mask=key_padding_mask,
            dropout=self.active_dropout,
        )

    def empty_state(self, batch: int) -> State:
        return self.growing_cache(batch)

    def attend_chunk(self, q: Tensor, k: Tensor, v: Tensor, state: State) -> tuple[Tensor, State]:
        seen, state = state["seen"], self.remember(k, v, state)
        end = state["seen"]
        key = torch.arange(end, device=q.device)
        # queries of the chunk see only the summaries and the keys from its first block on
        key = key[is_summary(key, self.block, self.columns) | (key >= seen - seen % self.block)]
        visible = None  # a single query sees all of them
        if end - seen > 1:
            query = torch.arange(seen, end, device=q.device)[:, None]
            near = key // self.block == query // self.block
            visible = (near | is_summary(key, self.block, self.columns)) & (key <= query)  # (n, keys)
        y = F.scaled_dot_product_attention(q, state["k"][:, :, key], state["v"][:, :, key], attn_mask=visible)
        return y, state
