"""Informer's ProbSparse attention: full attention for a few queries only (Zhou et al., 2021, arXiv 2012.07436).

    M(q_i) = max_j <q_i, k_j> - 1/n sum_j <q_i, k_j>,   j over U = c ceil(ln n) sampled keys                 (4)
    o_i    = softmax( q_i K' E^-1/2 ) V  for the u = c ceil(ln n) queries of largest M,  else mean(V)       (3)

c is `factor`. U and u are at least 1 and at most n. Time O(N ln N D), memory O(N (D + ln N)). For a short sequence all
scores of a tile of queries are computed instead, which is faster on a CPU than fetching keys. M only selects queries:
it has no gradient and is never computed in 16 bits. The selection sees the whole sequence, so there is no causal form
(D-27).

    B batch, N length, n real tokens, H heads, E head width, U sampled keys, u chosen queries
"""

import math
from typing import Any, ClassVar

import torch
from torch import Tensor

from models.attention.base import MultiHead, Pattern
from models.attention.vanilla import softmax_attention
from models.ops.heads import merge_heads, split_heads
from models.ops.padding import ranks, real_first
from models.ops.precision import autocast_disabled, upcast, upcast_linear
from models.ops.tiles import TileBudget, spans, tiles

# a product with all keys costs as much as fetching this share of them (measured on one CPU thread)
FETCHED_SHARE = 1 / 32
TILE = TileBudget(2**19, 2**26)  # scores
FETCHED = TileBudget(1, 2**28)  # numbers of keys; on a CPU one key of each query after another


def probsparse(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    draws: Tensor,
    *,
    factor: int,
    key_padding_mask: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """q, k, v (B, H, N, E), draws (n_max, U_max) in [0, n_max), mask (B, N) True at padding -> (B, H, N, E).

    q and k may have a wider type than v: they choose the queries in their own type, which then attend in v's type. The
    i-th real query samples the real keys floor(draws_i n / n_max).
    """
    length = q.shape[2]
    largest = most(length, factor)
    drawn = draws[:length, :largest].long()[None]  # (1, N, U)
    if key_padding_mask is None:
        lengths = torch.full((1,), length, device=q.device)  # (B or 1,)
        sample = drawn * length // len(draws)  # (B or 1, N, U)
        mean = upcast(v).mean(2, keepdim=True)
    else:
        real = ~key_padding_mask
        lengths = real.sum(1).clamp(min=1)
        # (B, N, U), ranks among the real keys
        sampled = drawn[0, ranks(real).clamp(min=0)] * lengths[:, None, None] // len(draws)
        sample = real_first(key_padding_mask).gather(1, sampled.flatten(1)).view_as(sampled)
        mean = upcast(v.masked_fill(key_padding_mask[:, None, :, None], 0.0)).sum(2, keepdim=True)
        mean = mean / lengths[:, None, None, None]
    budget = logarithmic(lengths, factor)  # (B or 1,), U and u
    with torch.no_grad(), autocast_disabled(q):
        measure = sparsity(upcast(q), upcast(k), sample, budget, lengths)  # (B, H, N)
        if key_padding_mask is not None:
            measure = measure.masked_fill(key_padding_mask[:, None], float("-inf"))
        chosen = measure.topk(largest, sorted=True)[1][..., None].expand(-1, -1, -1, q.shape[-1])  # (B, H, u, E)
    queries, k = q.gather(2, chosen).to(v.dtype), k.to(v.dtype)
    attended = softmax_attention(queries, k, v, key_padding_mask=key_padding_mask, dropout=dropout)
    mean = mean.to(attended.dtype)
    if key_padding_mask is not None:  # a shorter example has fewer chosen queries
        kept = torch.arange(largest, device=q.device) < budget[:, None]  # (B, u)
        attended = torch.where(kept[:, None, :, None], attended, mean)
    return mean.expand_as(q).scatter(2, chosen, attended)


def logarithmic(lengths: Tensor, factor: int) -> Tensor:
    """U or u of each length n: factor ceil(ln n), at least 1 and at most n."""
    return (lengths.double().log().ceil().long() * factor).clamp(min=1).minimum(lengths)


def most(length: int, factor: int) -> int:
    """U or u of an example without padding, for a CPU that reads no tensor."""
    return min(max(1, factor * math.ceil(math.log(length))), length)


def sparsity(q: Tensor, k: Tensor, sample: Tensor, budget: Tensor, lengths: Tensor) -> Tensor:
    """M of q (B, H, N, E) over the first `budget` (B or 1) keys of each sample (B or 1, N, U): (B, H, N)."""
    batch, heads, queries, _ = q.shape
    keys, sampled = k.shape[2], sample.shape[-1]
    used = torch.arange(sampled, device=q.device) < budget[:, None]  # (B or 1, U)
    highest = q.new_full((batch, heads, queries), float("-inf"))
    total = torch.zeros_like(highest)
    if sampled >= FETCHED_SHARE * keys:
        rows = TILE.fit(q, heads * queries * keys)  # whole examples, or part of one
        step = TILE.fit(q, heads * keys)
        for _, (examples, part) in tiles(spans(0, batch, rows), spans(0, queries, step)):
            sampled_rows = examples if len(sample) > 1 else slice(None)
            scores = q[examples, :, part] @ k[examples].mT  # (rows, H, step, N)
            index = sample[sampled_rows, None, part].expand(*scores.shape[:3], -1)
            scores = scores.gather(3, index)  # (rows, H, step, U)
            unused = ~used[sampled_rows, None, None]
            highest[examples, :, part] = scores.masked_fill(unused, float("-inf")).amax(-1)
            total[examples, :, part] = scores.masked_fill_(unused, 0.0).sum(-1)
    else:
        offset = torch.arange(batch, device=q.device)[:, None] * keys
        table = k.transpose(1, 2).flatten(2).flatten(0, 1)  # (B N, H E): all heads fetch the same keys
        for part in spans(0, sampled, FETCHED.fit(q, q.numel())):
            fetched = table[sample[..., part] + offset[..., None]].unflatten(-1, (heads, -1))  # (B, N, s, H, E)
            score = (q[..., None, :] * fetched.permute(0, 3, 1, 2, 4)).sum(-1)  # (B, H, N, s)
            unused = ~used[:, None, None, part]
            highest = torch.maximum(highest, score.masked_fill(unused, float("-inf")).amax(-1))
            total += score.masked_fill_(unused, 0.0).sum(-1)
    return highest - total / lengths[:, None, None]


class ProbSparse(MultiHead):
    """Multi-head ProbSparse attention.

    As in the code of Informer, CAB and Skyformer, each query has its own sample, drawn with replacement and shared by
    all heads and examples; the sum in M is divided by n, not by U; M is not scaled by E^-1/2. That code draws a new
    sample at every call, including evaluation. Here the sample is drawn once and saved with the weights, so that
    evaluation is deterministic; `redraw` draws a new one at every training step. That code ignores padding (D-20); here
    n is the number of real tokens, and only these are sampled as keys, averaged, and chosen as queries.

    Raises ValueError for a factor below 1, and for a sequence longer than `max_length`.
    """

    patterns: ClassVar[frozenset[Pattern]] = frozenset({Pattern.NONCAUSAL_SELF})
    fixed_length: bool = True

    def __init__(self, dim: int, heads: int, *, factor: int = 5, redraw: bool = False, **options: Any):
        super().__init__(dim, heads, **options)
        self.check_sizes(factor=factor)
        self.factor, self.redraw = factor, redraw
        draws = torch.randint(self.max_length, (self.max_length, most(self.max_length, factor)), dtype=torch.int32)
        self.register_buffer("draws", draws)  # (n_max, U_max)

    def mix_tokens(self, x: Tensor, source: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        q, k = (split_heads(upcast_linear(layer, x), self.head_dim) for layer in (self.q_proj, self.k_proj))
        v = split_heads(self.v_proj(x), self.head_dim)  # (B, H, N, E)
        return self.out_proj(self.merge(self.attend(q, k, v, key_padding_mask)))

    def merge(self, y: Tensor) -> Tensor:
        """Heads (B, H, N, E) -> (B, N, D)."""
        return merge_heads(y)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        self.check_length(q.shape[2])
        options = {"factor": self.factor, "key_padding_mask": key_padding_mask, "dropout": self.active_dropout}
        return probsparse(q, k, v, self.sample(), **options)

    def sample(self) -> Tensor:
        """The draws for this call, as `probsparse` expects them."""
        return torch.randint_like(self.draws, self.max_length) if self.redraw and self.training else self.draws
