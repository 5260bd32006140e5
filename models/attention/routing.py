"""Routing Transformer: local heads, and heads that attend within clusters (Roy et al., 2021, arXiv 2003.05997).

    q = LN(W_q x E^-1/2),  k = LN(W_k x),  LN without gain and bias                  the routing heads
    Q_c, K_c: the w tokens with the largest mu_c' q_i, and those with the largest mu_c' k_j
    o_i = sum over the clusters c with i in Q_c of  sum_{j in K_c} softmax_j( q_i' k_j ) v_j,  by their number + 0.01
    s_c <- lambda s_c + (1 - lambda) sum of the q_i nearest to mu_c, then the k_j     in training, without gradient
    n_c <- lambda n_c + (1 - lambda) number of them,  mu_c <- s_c / n~_c,  n~_c = (n_c + e) / (n + C e) n,  n = sum n_c
    L = beta (mean (q_i - mu)^2 + mean (k_j - mu)^2),  mu the nearest, a constant     in training, for W_q and W_k

These are the equations of the authors' code (D-49): LN absorbs the factor E^-1/2 up to its epsilon, so scores are
sqrt(E) times those of softmax attention. A token in no cluster gets zeros. The local heads attend to a window with one
bias per distance. In the causal form q also serve as the keys, and a query sees its cluster's tokens up to itself. The
whole sequence determines the clusters, so even then information from later tokens leaks: the causal form is refused
unless `strict` is off (D-27), and it does not decode.

Time O(N (w + C) D), memory O(N (D + C H)), for C w about N as in the paper: N^1.5 with w = sqrt(N).

    B batch, N length, D width, H heads, E head width, C clusters, w window
"""

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from models.attention.base import INPUT_GAIN, Attention, Pattern, projection, without_biases
from models.ops.attached_loss import AttachedLoss
from models.ops.attention import attention
from models.ops.banded import banded_attention
from models.ops.heads import merge_heads, split_heads
from models.ops.padding import real_tokens
from models.ops.precision import autocast_disabled, upcast, upcast_linear

NORM_EPSILON = 1e-6
COUNT_OFFSET = 1e-2  # added to the number of clusters that hold a token
SMOOTHING = 1e-5  # e


def gather_rows(x: Tensor, index: Tensor) -> Tensor:
    """Rows index (B, H, C, w) of x (B, H, N, E): (B, H, C, w, E)."""
    rows = index.flatten(2)[..., None].expand(-1, -1, -1, x.shape[-1])
    return x.gather(2, rows).unflatten(2, index.shape[2:])


def sum_rows(y: Tensor, index: Tensor, length: int) -> Tensor:
    """y (B, H, C, w, E) summed into the rows in `index`: (B, H, N, E).

    Deterministic under `torch.use_deterministic_algorithms`, and always on CUDA, where `index_put_` sorts the rows.
    """
    out = upcast(y).new_zeros(*y.shape[:2], length, y.shape[-1])
    pair = torch.arange(y.shape[0] * y.shape[1], device=y.device).view(*y.shape[:2], 1, 1)
    rows = out.flatten(0, 2).index_put_(((pair * length + index).flatten(),), y.flatten(0, 3).to(out.dtype), True)
    return rows.view_as(out).to(y.dtype)


class TakeRows(torch.autograd.Function):
    """`gather_rows`, with `sum_rows` as its backward pass."""

    @staticmethod
    def forward(ctx, x: Tensor, index: Tensor) -> Tensor:
        ctx.save_for_backward(index)
        ctx.length = x.shape[2]
        return gather_rows(x, index)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None]:
        return sum_rows(grad, *ctx.saved_tensors, ctx.length), None


class AddRows(torch.autograd.Function):
    """`sum_rows`, with `gather_rows` as its backward pass."""

    @staticmethod
    def forward(ctx, y: Tensor, index: Tensor, length: int) -> Tensor:
        ctx.save_for_backward(index)
        return sum_rows(y, index, length)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None, None]:
        return gather_rows(grad, *ctx.saved_tensors), None, None


class Routing(Attention):
    """4 D^2 parameters plus the biases of the local heads; causal, D E less per routing head. Projections have no bias.

    The last `routing_heads` heads route; None means half of all heads, rounded up. A local head has 2 w + 1 biases, in
    the causal form w. `window` is w for both kinds of heads. `clusters` is C; None means max_length / w, rounded up.
    `decay` is lambda, `commitment` beta. mu and s start as random vectors with the norm of q and k, n at zero; all
    three are saved with the weights. Neither q and k nor the cluster assignment are computed in 16 bits. Padding is in
    no cluster and no mean. `scale_scores` multiplies the scores of the routing heads by E^-1/2, as in softmax
    attention.

    Raises ValueError for causal_self unless `strict` is off, for a head width of 1, for a window or a number of
    clusters below 1, for routing heads outside 1 to `heads`, for a decay outside [0, 1), and for a negative
    `commitment`.
    """

    patterns: ClassVar[frozenset[Pattern]] = frozenset({Pattern.NONCAUSAL_SELF})
    linear: bool = False

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        pattern: Pattern | str,
        window: int = 512,
        clusters: int | None = None,
        routing_heads: int | None = None,
        decay: float = 0.999,
        commitment: float = 1e-4,
        scale_scores: bool = False,
        strict: bool = True,
        **options: Any,
    ):
        if pattern == Pattern.CAUSAL_SELF:
            if strict:
                raise ValueError(
                    "Routing has no causal_self form without information from later tokens; strict=false permits it"
                )
            self.patterns = self.patterns | {Pattern.CAUSAL_SELF}
        super().__init__(dim, heads, pattern=pattern, **options)
        routing_heads = (heads + 1) // 2 if routing_heads is None else routing_heads
        if self.head_dim == 1:
            raise ValueError("Routing requires a head width of 2 or more: LN makes queries and keys of width 1 zero")
        if window < 1 or not 0 < routing_heads <= heads or not 0 <= decay < 1 or commitment < 0:
            sizes = f"{window=}, {routing_heads=}, {decay=}, {commitment=}"
            limits = f"window >= 1, 1 to {heads} routing heads, a decay in [0, 1), a commitment >= 0"
            raise ValueError(f"Routing requires {limits}, not {sizes}")
        clusters = -(-self.max_length // window) if clusters is None else clusters
        self.check_sizes(clusters=clusters)
        self.window, self.decay, self.commitment = window, decay, commitment
        self.score_scale = self.head_dim**-0.5 if scale_scores else 1.0
        self.shared = self.pattern.causal
        self.local_heads = heads - routing_heads
        local_dim, routing_dim = self.local_heads * self.head_dim, routing_heads * self.head_dim
        self.local_q = projection(dim, local_dim, INPUT_GAIN) if local_dim else None
        self.local_k = projection(dim, local_dim, INPUT_GAIN) if local_dim else None
        self.routing_q = projection(dim, routing_dim, INPUT_GAIN)
        self.routing_k = None if self.shared else projection(dim, routing_dim, INPUT_GAIN)
        self.v_proj, self.out_proj = projection(dim, dim, INPUT_GAIN), projection(dim, dim, 1.0)
        keys = window if self.pattern.causal else 2 * window + 1
        self.position_bias = nn.Parameter(torch.zeros(self.local_heads, keys)) if local_dim else None
        without_biases(self.local_q, self.local_k, self.routing_q, self.routing_k, self.v_proj, self.out_proj)
        self.register_buffer("centroids", self.normed(torch.randn(routing_heads, clusters, self.head_dim)))  # mu
        self.register_buffer("sums", self.centroids.clone())  # s
        self.register_buffer("counts", torch.zeros(routing_heads, clusters, 1))  # n_c

    def normed(self, x: Tensor) -> Tensor:
        """LN over the last axis, without parameters."""
        return F.layer_norm(x, (self.head_dim,), eps=NORM_EPSILON)

    def mix_tokens(self, x: Tensor, source: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        v = split_heads(self.v_proj(x), self.head_dim)  # (B, H, N, E)
        y = self.route(x, v[:, self.local_heads :], key_padding_mask)
        if self.local_heads:
            y = torch.cat([self.attend_locally(x, v[:, : self.local_heads], key_padding_mask).to(y.dtype), y], 1)
        return self.out_proj(merge_heads(y))

    def attend_locally(self, x: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        """x (B, N, D), v (B, h, N, E) of the local heads -> (B, h, N, E)."""
        q, k = (split_heads(linear(x), self.head_dim) for linear in (self.local_q, self.local_k))
        left, right = (self.window - 1, 0) if self.pattern.causal else (self.window, self.window)
        options = {"bias": self.position_bias, "key_padding_mask": key_padding_mask, "dropout": self.active_dropout}
        return banded_attention(q, k, v, left=left, right=right, **options)

    def route(self, x: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        """x (B, N, D), v (B, h, N, E) of the routing heads -> (B, h, N, E)."""
        real = real_tokens(key_padding_mask, v)[:, None]  # (B or 1, 1, N)
        with autocast_disabled(x):
            q = k = self.normed(split_heads(upcast_linear(self.routing_q, x), self.head_dim) * self.head_dim**-0.5)
            if self.routing_k is not None:
                k = self.normed(split_heads(upcast_linear(self.routing_k, x), self.head_dim))
            with torch.no_grad():
                matches = [self.centroids.to(y.dtype) @ y.mT for y in ((q,) if self.shared else (q, k))]  # (B, h, C, N)
                ask, *others = (self.choose(match, key_padding_mask) for match in matches)
                answer = ask if self.shared else others[0]
                nearest = [match.argmax(2) for match in matches] if self.training else []  # (B, h, N)
            loss = None
            if self.training and self.commitment and torch.is_grad_enabled():
                # the code adds the loss of the keys to that of the queries even where they are the same
                pairs = zip((q, k), nearest * 2 if self.shared else nearest, strict=True)
                loss = self.commitment * sum(self.distance(*pair, real) for pair in pairs)
            if self.training:
                self.follow([q] if self.shared else [q, k], nearest, real)
        if key_padding_mask is None:
            taken = torch.ones_like(ask, dtype=v.dtype)
        else:
            taken = real.expand(*q.shape[:3])[..., None].to(v.dtype)
            taken = gather_rows(taken, ask)[..., 0]  # (B, h, C, w): 0 at padding
        hidden = None if key_padding_mask is None or self.shared else self.hidden_keys(real, answer)
        q, k, v = TakeRows.apply(q.to(v.dtype), ask), TakeRows.apply(k.to(v.dtype), answer), TakeRows.apply(v, answer)
        y = self.attend_in_clusters(q, k, v, hidden) * taken[..., None]
        length = x.shape[1]
        held = sum_rows(taken[..., None], ask, length)  # number of clusters that hold the token
        y = AddRows.apply(y, ask, length) / (held + COUNT_OFFSET)
        return y if loss is None else AttachedLoss.apply(y, loss)

    def choose(self, match: Tensor, padding: Tensor | None) -> Tensor:
        """mu_c' x_i (B, h, C, N) -> tokens of each cluster (B, h, C, min(w, N)) in sequence order, padding last."""
        batch, heads, _, length = match.shape
        if padding is None:
            return match.topk(min(self.window, length), dim=-1).indices.sort(dim=-1).values
        hidden = padding[:, None]
        index = match.masked_fill(hidden[:, :, None], float("-inf")).topk(min(self.window, length), dim=-1).indices
        behind = gather_rows(hidden.expand(batch, heads, length)[..., None].long(), index)[..., 0] * length
        return (index + behind).sort(dim=-1).values % length

    def hidden_keys(self, real: Tensor, index: Tensor) -> Tensor:
        """True at padding, (B, h, C, w); all False in an all-padding row, which not every kernel survives."""
        hidden = gather_rows((~real).expand(*index.shape[:2], -1)[..., None], index)[..., 0]
        return hidden & ~hidden.all(-1, keepdim=True)

    def attend_in_clusters(self, q: Tensor, k: Tensor, v: Tensor, hidden: Tensor | None) -> Tensor:
        """q, k, v (B, h, C, w, E), hidden (B, h, C, w) -> (B, h, C, w, E)."""
        mask = None
        if self.shared:
            mask = torch.ones(q.shape[3], q.shape[3], dtype=torch.bool, device=q.device).tril()
        elif hidden is not None:
            mask = ~hidden.flatten(1, 2)[:, :, None]
        flat = (x.flatten(1, 2) for x in (q, k, v))
        y = attention(*flat, mask=mask, dropout=self.active_dropout, scale=self.score_scale)
        return y.unflatten(1, q.shape[1:3])

    def distance(self, x: Tensor, nearest: Tensor, real: Tensor) -> Tensor:
        """Mean squared distance of the real rows of x (B, h, N, E) from the centroids `nearest` (B, h, N), a scalar."""
        heads = torch.arange(x.shape[1], device=x.device)[:, None]
        error = (x - self.centroids.to(x.dtype)[heads, nearest]).square().mean(-1) * real
        return error.sum() / real.expand_as(error).sum().clamp(min=1)

    @torch.no_grad()
    def follow(self, rows: list[Tensor], nearest: list[Tensor], real: Tensor) -> None:
        """Move the centroids towards the `rows` (B, h, N, E) that are `nearest` to them, (B, h, N)."""
        for x, index in zip(rows, nearest, strict=True):
            members = F.one_hot(index, self.centroids.shape[1]).to(x.dtype) * real[..., None]  # (B, h, N, C)
            total = torch.einsum("bhnc,bhne->hce", members, x)
            self.sums.lerp_(total.to(self.sums.dtype), 1 - self.decay)
            self.counts.lerp_(members.sum((0, 2))[..., None].to(self.counts.dtype), 1 - self.decay)
        tokens, clusters = self.counts.sum(1, keepdim=True), self.counts.shape[1]  # (h, 1, 1)
        smoothed = (self.counts + SMOOTHING) / (tokens + clusters * SMOOTHING) * tokens
        # without any real token there is nothing to follow
        self.centroids.copy_(torch.where(tokens > 0, self.sums / smoothed, self.centroids))
