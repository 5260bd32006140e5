"""The infinity-former: local attention and a long-term memory of fixed size (Martins et al., 2022, arXiv 2109.00301).

    X(t) = B' psi(t), t in [0, 1],  psi_j(t) = N(t; c_j, s_j^2)                a signal of N radial basis functions
    B = (F F' + lambda I)^-1 F X,  F = [psi(t_1), ..]                          fitted to the tokens of a segment
    later: tokens are X(m / M), m = 1 .. M, at tau m / M, and S new ones at tau + (1 - tau) l / S
    mu = sigmoid( <w_mu, K q> ),  sigma^2 = softplus( <w_sigma, K q> ),  K = B W_K / sqrt(E)
    z = sum_j N(mu; c_j, sigma^2 + s_j^2) (B W_V)_j                            = E[v(t)] for t ~ N(mu, sigma^2)
    y = W_o o + W_R z,  o softmax attention to the last w tokens, turned by RoPE

A token reads the memory of the segments before its own. Fit and resampling are constant linear maps of B and X: with Y
the tokens of a segment, B becomes A B + C Y. K is never formed: <w, K q> is <W_K' B' w, q>. The published code detaches
memories between batches; here a sequence is one batch, and its gradient passes through all memories.

Time O(n w D + n N D + n N (N + D) D / S), memory O(n D + n N D / S), decoding state 2 w D + S D + 2 N D numbers.

    B batch, n length, D width, H heads, E head width, N bases, S segment, G segments, T of a tile, w window, M samples
"""

import math
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from models.attention.base import MultiHead, Pattern, State, projection, without_biases
from models.ops.banded import banded_attention
from models.ops.heads import merge_heads
from models.ops.positions import apply_rope, rope_frequencies
from models.ops.precision import autocast_disabled, upcast, upcast_linear
from models.ops.ring import attend_to_ring
from models.ops.tiles import TileBudget

TILE = TileBudget(2**20, 2**26)  # densities of one tile


def densities(at: Tensor, variance: Tensor, centres: Tensor, widths: Tensor) -> Tensor:
    """N(at; c_j, variance + s_j^2): (..) -> (.., N)."""
    total = variance[..., None] + widths.square()
    return (-(at[..., None] - centres).square() / (2 * total)).exp() * (2 * math.pi * total).rsqrt()


class Regularised(torch.autograd.Function):
    """sigma^2 unchanged; its gradient also includes that of weight * mean KL( N(mu, sigma^2) || N(mu, std^2) )."""

    @staticmethod
    def forward(ctx, variance: Tensor, std: float, weight: float) -> Tensor:
        ctx.save_for_backward(variance)
        ctx.std, ctx.weight = std, weight
        return variance.view_as(variance)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None, None]:
        (variance,) = ctx.saved_tensors
        slope = (ctx.std**-2 - 1 / variance.clamp(min=torch.finfo(variance.dtype).tiny)) / 2
        return grad + ctx.weight / variance.numel() * slope, None, None


class Signal:
    """Constant maps of the memory, in float64: `first` (N, S), `keep` A (N, N), `write` C (N, S), c and s (N,)."""

    def __init__(self, bases: int, segment: int, widths: Sequence[float], tau: float, samples: int, ridge: float):
        # on the CPU, whichever device the parameters are created on
        options = {"dtype": torch.float64, "device": "cpu"}
        per_width = bases // len(widths)
        self.centres = torch.linspace(0, 1, per_width, **options).repeat(len(widths))
        self.widths = torch.tensor(list(widths), **options).repeat_interleave(per_width)
        new = torch.arange(1, segment + 1, **options) / segment
        old = torch.arange(1, samples + 1, **options) / samples

        def fit(at: Tensor) -> Tensor:
            """(N, L): the map from L tokens at these times to B."""
            values = densities(at, torch.zeros_like(at), self.centres, self.widths)  # F', (L, N)
            return torch.linalg.solve(values.mT @ values + ridge * torch.eye(bases, **options), values.mT)

        both = fit(torch.cat([tau * old, tau + (1 - tau) * new]))
        self.first = fit(new)
        self.keep = both[:, :samples] @ densities(old, torch.zeros_like(old), self.centres, self.widths)
        self.write = both[:, samples:]

    def maps(self, like: Tensor) -> "Maps":
        """The maps for `update`, on the device and in the type of `like`."""
        return Maps(*(matrix.to(like) for matrix in (self.first, self.keep, self.write)))


class Maps(NamedTuple):
    first: Tensor
    keep: Tensor
    write: Tensor

    def update(self, memory: Tensor | None, tokens: Tensor) -> Tensor:
        """B (.., N, D) after a segment of tokens (.., S, D), from the previous B, None at the start."""
        return self.first @ tokens if memory is None else self.keep @ memory + self.write @ tokens


class InfinityFormer(MultiHead):
    """8 D^2 + 4 D + 2 N parameters: four window projections with biases, four memory projections without, two w.

    `bases` is N, divided equally among the `widths` s, with centres from 0 to 1. `segment` is S, `tau` the share of
    [0, 1] that the past occupies after an update, `samples` M, `ridge` lambda. The memory stores the layer's inputs, in
    float32 at least; a padded token counts as zeros there and is hidden in the window. The last, unfinished segment
    enters no memory. In training the gradient of `kl_weight` times the mean divergence of sigma^2 from `kl_std`^2 is
    added, whatever factor the loss has. Sampling is uniform; the paper's sticky memories are not implemented.

    Raises ValueError for a size below 1, `bases` that are no multiple of the number of widths, widths, a ridge or a
    `kl_std` that are not positive, a `tau` outside (0, 1), a negative `kl_weight`, and an odd head width.
    """

    patterns: ClassVar[frozenset[Pattern]] = frozenset({Pattern.CAUSAL_SELF})

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        window: int = 150,
        segment: int = 150,
        bases: int = 150,
        widths: Sequence[float] = (0.005, 0.01),
        tau: float = 0.5,
        samples: int = 512,
        ridge: float = 0.5,
        kl_weight: float = 0.0,
        kl_std: float = 0.05,
        **options: Any,
    ):
        super().__init__(dim, heads, **options)
        self.check_sizes(window=window, segment=segment, bases=bases, samples=samples)
        if not widths or bases % len(widths):
            raise ValueError(f"{bases} bases are not a multiple of {len(widths)} widths")
        if min(*widths, ridge, kl_std) <= 0 or not 0 < tau < 1 or kl_weight < 0:
            sizes = f"widths={list(widths)}, ridge={ridge}, kl_std={kl_std}, tau={tau}, kl_weight={kl_weight}"
            raise ValueError(f"widths, ridge and kl_std > 0, 0 < tau < 1 and kl_weight >= 0 are required, not {sizes}")
        rope_frequencies(self.head_dim)  # refuses an odd width now, not at the first batch
        self.window, self.segment, self.bases = window, segment, bases
        self.kl_std, self.kl_weight = kl_std, kl_weight
        self.signal = Signal(bases, segment, widths, tau, samples, ridge)
        gain = 2**-0.5
        self.ltm_q, self.ltm_k, self.ltm_v = (projection(dim, dim, gain) for _ in range(3))
        self.ltm_out = projection(dim, dim, 1.0)
        self.to_mean, self.to_variance = nn.Linear(bases, 1), nn.Linear(bases, 1)
        without_biases(self.ltm_q, self.ltm_k, self.ltm_v, self.ltm_out, self.to_mean, self.to_variance)

    def forward(
        self, x: Tensor, context: Tensor | None = None, *, key_padding_mask: Tensor | None = None, carry: Any = None
    ) -> tuple[Tensor, Any]:
        x = self.source(x, context)
        q, k, v = self.project_window(x, 0)
        options = {"key_padding_mask": key_padding_mask, "dropout": self.active_dropout}
        y = self.out_proj(merge_heads(banded_attention(q, k, v, left=self.window - 1, right=0, **options)))
        return y + self.remember_all(x, key_padding_mask), carry

    def project_window(self, x: Tensor, first: int) -> list[Tensor]:
        """Queries, keys and values of the window (B, H, n, E), from x (B, n, D) at the positions from `first` on."""
        q, k, v = (self.project(layer, x) for layer in (self.q_proj, self.k_proj, self.v_proj))
        positions = torch.arange(first, first + x.shape[1], device=x.device)
        return [apply_rope(q, positions), apply_rope(k, positions), v]

    def remember_all(self, x: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        """What the tokens x (B, n, D) read from the memories before their segments, (B, n, D)."""
        length, size = x.shape[1], self.segment
        count = -(-length // size)  # G
        tokens = x if key_padding_mask is None else x.masked_fill(key_padding_mask[..., None], 0.0)
        memories, memory = [x.new_zeros(len(x), self.bases, self.dim, dtype=upcast(x).dtype)], None
        with autocast_disabled(x):
            maps = self.signal.maps(memories[0])
            for part in upcast(tokens)[:, : (count - 1) * size].split(size, 1)[: count - 1]:
                memory = maps.update(memory, part)
                memories.append(memory)
        q = F.pad(self.ltm_q(x), (0, 0, 0, count * size - length)).unflatten(1, (count, size))  # (B, G, S, D)
        tile = TILE.fit(x, len(x) * self.heads * size * self.bases)  # T
        parts = zip(q.split(tile, 1), torch.stack(memories, 1).split(tile, 1), strict=True)
        if count <= tile:
            z = [self.recall(queries, *self.read(memory)) for queries, memory in parts]
        else:
            z = [checkpoint(self.read_and_recall, queries, memory, use_reentrant=False) for queries, memory in parts]
        return self.ltm_out(torch.cat(z, 1).flatten(1, 2)[:, :length])

    def read_and_recall(self, q: Tensor, memory: Tensor) -> Tensor:
        return self.recall(q, *self.read(memory))

    def read(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of B (.., N, D): W_K' B' w for both w, (.., 2, D), and B W_V, (.., N, D)."""
        weights = torch.cat([self.to_mean.weight, self.to_variance.weight])  # (2, N)
        # coefficients of overlapping bases cancel, so 16-bit products are too coarse
        with autocast_disabled(memory):
            return upcast_linear(self.ltm_k, upcast(weights) @ memory), upcast_linear(self.ltm_v, memory)

    def recall(self, q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """q (.., S, D) and the keys and values from `read` -> z (.., S, D)."""
        # (.., H, rows, E)
        q, keys, values = (y.unflatten(-1, (self.heads, -1)).transpose(-2, -3) for y in (q, keys, values))
        with autocast_disabled(q):
            logits = upcast(q) @ (keys * self.head_dim**-0.5).mT  # (.., H, S, 2)
            mean, variance = logits[..., 0].sigmoid(), F.softplus(logits[..., 1])
            if self.training and self.kl_weight:
                variance = Regularised.apply(variance, self.kl_std, self.kl_weight)
            centres, widths = self.signal.centres.to(mean), self.signal.widths.to(mean)
            z = densities(mean, variance, centres, widths) @ values  # (.., H, S, E)
        return z.transpose(-2, -3).flatten(-2).to(q.dtype)

    def empty_state(self, batch: int) -> State:
        """Rings of the window, the tokens of the open segment, B with its keys and values, and the tokens seen."""
        new = self.q_proj.weight.new_zeros
        wide = upcast(new(0)).new_zeros
        return {
            "window": self.empty_cache(batch, self.window),
            "tokens": wide(batch, self.segment, self.dim),
            "memory": wide(batch, self.bases, self.dim),
            "keys": wide(batch, 2, self.dim),
            "values": wide(batch, self.bases, self.dim),
            "seen": 0,
        }

    def chunk(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        y, window = attend_to_ring(*self.project_window(x, state["seen"]), state["window"])
        q, rows, seen, end = self.ltm_q(x), [], state["seen"], state["seen"] + x.shape[1]
        while seen < end:  # one segment at a time
            start = seen % self.segment
            size = min(end - seen, self.segment - start)
            (now, q), (tokens, x) = (part.tensor_split([size], 1) for part in (q, x))
            rows.append(self.recall(now, state["keys"], state["values"]))
            state["tokens"][:, start : start + size] = tokens
            if start + size == self.segment:
                with autocast_disabled(x):
                    before = state["memory"] if seen >= self.segment else None
                    memory = self.signal.maps(state["memory"]).update(before, state["tokens"])
                keys, values = self.read(memory)
                state = {**state, "memory": memory, "keys": keys, "values": values}
            seen += size
        y = self.out_proj(merge_heads(y)) + self.ltm_out(torch.cat(rows, 1))
        return y, {**state, "window": window, "seen": end}
