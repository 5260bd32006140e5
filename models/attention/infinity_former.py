"""The infinity-former: local attention and a long-term memory of fixed size (Martins et al., 2022, arXiv 2109.00301).

    X(t) = B' psi(t), t in [0, 1],  psi_j(t) = N(t; c_j, s_j^2)                a signal of N radial basis functions
    B = (F F' + lambda I)^-1 F Y,  F = [psi(t_1), ..]                          fitted to the tokens of a segment
    Y = X * sigmoid( conv_3(X) )                                               a convolution inside the segment
    later: tokens are X(m / M), m = 1 .. M, at tau m / M, and S new ones at tau + (1 - tau) l / S
    mu = sigmoid( <w_mu, K q> ),  sigma^2 = softplus( <w_sigma, K q> ),  K = B W_K / sqrt(E)
    z = sum_j N(mu; c_j, sigma^2 + s_j^2) (B W_V)_j                            = E[v(t)] for t ~ N(mu, sigma^2)
    y = W_o o + W_R z,  o softmax attention to the last w tokens, turned by RoPE

A token reads the memory of the segments before its own, with the window's query q before its rotation. As in the
published code (D-52), the first fit has its tokens at (l - 1/2) / S, every fit has zeros outside [0, 1], sigma^2 is at
least 1e-4, and no gradient enters the stored tokens or the previous memory. Fit and resampling are constant linear maps
of B and Y: B becomes A B + C Y. K is never formed: <w, K q> is <W_K' B' w, q>.

Time O(n w D + n N D + n N (N + D) D / S), memory O(n D + n N D / S), decoding state 2 w D + S D + 2 N D numbers.

    B batch, n length, D width, H heads, E head width, N bases, S segment, G segments, T of a tile, w window, M samples
"""

import functools
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
LEAST_VARIANCE = 1e-4
TAPS = 3  # of the convolution


def densities(at: Tensor, variance: Tensor, centres: Tensor, widths: Tensor) -> Tensor:
    """N(at; c_j, variance + s_j^2): (..) -> (.., N)."""
    total = variance[..., None] + widths.square()
    return (-(at[..., None] - centres).square() / (2 * total)).exp() * (2 * math.pi * total).rsqrt()


class Regularised(torch.autograd.Function):
    """mu and sigma^2 unchanged; their gradients also include that of weight * sum KL( N(mu, sigma^2) || N(m, std^2) ).

    m is `centre`, or mu if that is None.
    """

    @staticmethod
    def forward(
        ctx, mean: Tensor, variance: Tensor, centre: float | None, std: float, weight: float
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(mean, variance)
        ctx.centre, ctx.std, ctx.weight = centre, std, weight
        return mean.view_as(mean), variance.view_as(variance)

    @staticmethod
    @once_differentiable
    def backward(ctx, to_mean: Tensor, to_variance: Tensor) -> tuple[Tensor | None, ...]:
        mean, variance = ctx.saved_tensors
        if ctx.centre is not None:
            to_mean = to_mean + ctx.weight * ctx.std**-2 * (mean - ctx.centre)
        return to_mean, to_variance + ctx.weight / 2 * (ctx.std**-2 - 1 / variance), None, None, None


class Signal:
    """Constant maps of the memory, in float64: `first` (N, S), `keep` A (N, N), `write` C (N, S), c and s (N,)."""

    def __init__(
        self, bases: int, segment: int, widths: Sequence[float], tau: float, samples: int, ridge: float, padded: bool
    ):
        self.padded, self.copies = padded, {}
        # on the CPU, whichever device the parameters are created on
        options = {"dtype": torch.float64, "device": "cpu"}
        per_width = bases // len(widths)
        self.centres = torch.linspace(0, 1, per_width, **options).repeat(len(widths))
        self.widths = torch.tensor(list(widths), **options).repeat_interleave(per_width)
        new = torch.arange(1, segment + 1, **options) / segment
        old = torch.arange(1, samples + 1, **options) / samples
        first, around, around_both = new, new[:0], new[:0]  # times of tokens, and of zeros
        if padded:
            first, half = new - 0.5 / segment, segment // 2
            around = torch.cat([first[segment - half :] - 1, first[:half] + 1])
            total = segment + samples
            margin = 1 / (segment + total)  # the published code's; half a step would be 1 / (2 total)
            grid = torch.linspace(-0.5 + margin, 1.5 - margin, 2 * total, **options)
            around_both = grid[(grid < 0) | (grid > 1)]

        def fit(at: Tensor, zeros: Tensor) -> Tensor:
            """(N, L): the map to B from L tokens at these times, with zeros at others."""
            times = torch.cat([at, zeros])
            values = densities(times, torch.zeros_like(times), self.centres, self.widths)  # F'
            return torch.linalg.solve(values.mT @ values + ridge * torch.eye(bases, **options), values[: len(at)].mT)

        both = fit(torch.cat([tau * old, tau + (1 - tau) * new]), around_both)
        self.first = fit(first, around)
        self.keep = both[:, :samples] @ densities(old, torch.zeros_like(old), self.centres, self.widths)
        self.write = both[:, samples:]

    def on(self, device: torch.device, dtype: torch.dtype) -> "Maps":
        """The constants on a device and in a type, copied there once."""
        if (device, dtype) not in self.copies:
            constants = (self.first, self.keep, self.write, self.centres, self.widths)
            with torch.inference_mode(False):  # training also reads them
                self.copies[device, dtype] = Maps(*(x.to(device, dtype) for x in constants))
        return self.copies[device, dtype]


@functools.lru_cache(maxsize=8)
def signal_of(*arguments: Any) -> Signal:
    """Layers of the same settings share a `Signal`, which takes tens of milliseconds."""
    with torch.inference_mode(False):  # training also reads it
        return Signal(*arguments)


class Maps(NamedTuple):
    first: Tensor
    keep: Tensor
    write: Tensor
    centres: Tensor
    widths: Tensor

    def update(self, memory: Tensor | None, tokens: Tensor) -> Tensor:
        """B (.., N, D) after a segment of tokens (.., S, D), from the previous B, None at the start."""
        return self.first @ tokens if memory is None else self.keep @ memory + self.write @ tokens

    def memories(self, segments: Tensor, detach: bool) -> Tensor:
        """B after each of the segments (B, G, S, D): (B, G, N, D). `detach` lets no gradient into earlier segments."""
        added = torch.cat([self.first @ segments[:, :1], self.write @ segments[:, 1:]], 1)
        past, keep, reach = added.detach() if detach else added, self.keep, 1
        while reach < past.shape[1]:  # segments double the span of their memories log2 G times
            past = torch.cat([past[:, :reach], past[:, reach:] + keep @ past[:, :-reach]], 1)
            keep, reach = keep @ keep, 2 * reach
        return past + (added - added.detach()) if detach else past  # the gradient is that of `added`


class InfinityFormer(MultiHead):
    """10 D^2 + 5 D + 2 N parameters: four window projections with biases, three of the memory without, the mask, two w.

    `bases` is N, divided equally among the `widths` s, with centres from 0 to 1. `segment` is S, `tau` the share of
    [0, 1] that the past occupies after an update, `samples` M, `ridge` lambda. `mask=False` has no convolution, so
    3 D^2 + D parameters less, and `padded_fit=False` fits the first segment at l / S and no zeros: the plain form.
    `detach_memory=False` lets gradients into the memory.

    The memory stores the layer's inputs, in float32 at least; a padded token counts as zeros there and is hidden in the
    window. The last, unfinished segment enters no memory. In training the gradient of `kl_weight` times the mean
    divergence of N(mu, sigma^2) from N(`kl_mean`, `kl_std`^2), over heads and tokens that read a memory, is added,
    whatever factor the loss has; `kl_mean=None` takes mu itself for the second mean, so that only sigma^2 counts.
    Sampling is uniform; the paper's sticky memories are not implemented.

    Raises ValueError for a size below 1, `bases` that are no multiple of the number of widths, widths, a ridge or a
    `kl_std` that are not positive, a `tau` outside (0, 1), a negative `kl_weight`, and an odd head width.
    """

    patterns: ClassVar[frozenset[Pattern]] = frozenset({Pattern.CAUSAL_SELF})

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        window: int = 512,
        segment: int = 512,
        bases: int = 512,
        widths: Sequence[float] = (0.005, 0.01),
        tau: float = 0.5,
        samples: int = 512,
        ridge: float = 0.5,
        padded_fit: bool = True,
        mask: bool = True,
        kl_weight: float = 1e-6,
        kl_mean: float | None = -1.0,
        kl_std: float = 0.05,
        detach_memory: bool = True,
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
        self.kl_mean, self.kl_std, self.kl_weight, self.detach_memory = kl_mean, kl_std, kl_weight, detach_memory
        self.signal = signal_of(bases, segment, tuple(widths), tau, samples, ridge, padded_fit)
        gain = 2**-0.5
        self.ltm_k, self.ltm_v = projection(dim, dim, gain), projection(dim, dim, gain)
        self.ltm_out = projection(dim, dim, 1.0)
        self.to_mean, self.to_variance = nn.Linear(bases, 1), nn.Linear(bases, 1)
        without_biases(self.ltm_k, self.ltm_v, self.ltm_out, self.to_mean, self.to_variance)
        self.mask = nn.Conv1d(dim, dim, TAPS, padding=TAPS // 2) if mask else None

    def mix_tokens(self, x: Tensor, source: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        q, *turned = self.project_window(x, 0)
        options = {"key_padding_mask": key_padding_mask, "dropout": self.active_dropout}
        y = self.out_proj(merge_heads(banded_attention(*turned, left=self.window - 1, right=0, **options)))
        return y + self.remember_all(x, q, key_padding_mask)

    def project_window(self, x: Tensor, first: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Queries, turned queries and keys, and values (B, H, n, E), from x (B, n, D) at positions from `first` on."""
        q, k, v = (self.project(layer, x) for layer in (self.q_proj, self.k_proj, self.v_proj))
        positions = torch.arange(first, first + x.shape[1], device=x.device)
        return q, *apply_rope(torch.stack([q, k]), positions).unbind(0), v

    def weigh(self, segments: Tensor) -> Tensor:
        """Y of the tokens in segments (B, G, S, D)."""
        if self.mask is None:
            return upcast(segments)
        rows = segments.to(self.mask.weight.dtype).flatten(0, 1).mT  # (B G, D, S)
        return upcast(segments) * upcast(self.mask(rows)).sigmoid().mT.unflatten(0, segments.shape[:2])

    def remember_all(self, x: Tensor, q: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        """What the tokens x (B, n, D) with queries q (B, H, n, E) read from earlier segments, (B, n, D)."""
        length, size = x.shape[1], self.segment
        count = -(-length // size)  # G
        tokens = x if key_padding_mask is None else x.masked_fill(key_padding_mask[..., None], 0.0)
        if self.detach_memory:
            tokens = tokens.detach()
        parts = self.weigh(tokens[:, : (count - 1) * size].unflatten(1, (count - 1, size)))
        with autocast_disabled(x):
            memories = self.signal.on(parts.device, parts.dtype).memories(parts, self.detach_memory)
        memories = torch.cat([memories.new_zeros(len(x), 1, self.bases, self.dim), memories], 1)
        q = F.pad(q, (0, 0, 0, count * size - length)).unflatten(2, (count, size)).transpose(1, 2)  # (B, G, H, S, E)
        weight = self.kl_weight / (len(x) * self.heads * max(1, length - size))
        tile = TILE.fit(x, len(x) * self.heads * size * self.bases)  # T
        pairs = zip(q.split(tile, 1), memories.split(tile, 1), strict=True)
        if count <= tile:
            z = [self.read_and_recall(queries, memory, weight) for queries, memory in pairs]
        else:
            z = [checkpoint(self.read_and_recall, *pair, weight, use_reentrant=False) for pair in pairs]
        return self.ltm_out(torch.cat(z, 1).flatten(1, 2)[:, :length])

    def read_and_recall(self, q: Tensor, memory: Tensor, weight: float) -> Tensor:
        return self.recall(q, *self.read(memory), weight)

    def read(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of B (.., N, D): W_K' B' w for both w, (.., 2, D), and B W_V, (.., N, D)."""
        weights = torch.cat([self.to_mean.weight, self.to_variance.weight])  # (2, N)
        # coefficients of overlapping bases cancel, so 16-bit products are too coarse
        with autocast_disabled(memory):
            return upcast_linear(self.ltm_k, upcast(weights) @ memory), upcast_linear(self.ltm_v, memory)

    def recall(self, q: Tensor, keys: Tensor, values: Tensor, weight: float = 0.0) -> Tensor:
        """q (.., H, S, E) and the keys and values from `read` -> z (.., S, D); `weight` of each divergence."""
        keys, values = (y.unflatten(-1, (self.heads, -1)).transpose(-2, -3) for y in (keys, values))  # (.., H, rows, E)
        with autocast_disabled(q):
            logits = upcast(q) @ (keys * self.head_dim**-0.5).mT  # (.., H, S, 2)
            mean, variance = logits[..., 0].sigmoid(), F.softplus(logits[..., 1]).clamp(min=LEAST_VARIANCE)
            if self.training and weight:
                mean, variance = Regularised.apply(mean, variance, self.kl_mean, self.kl_std, weight)
            maps = self.signal.on(mean.device, mean.dtype)
            z = densities(mean, variance, maps.centres, maps.widths) @ values  # (.., H, S, E)
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
        q, *turned = self.project_window(x, state["seen"])
        y, window = attend_to_ring(*turned, state["window"])
        rows, seen, end = [], state["seen"], state["seen"] + x.shape[1]
        while seen < end:  # one segment at a time
            start = seen % self.segment
            size = min(end - seen, self.segment - start)
            now, q = q.tensor_split([size], 2)
            tokens, x = x.tensor_split([size], 1)
            rows.append(self.recall(now, state["keys"], state["values"]))
            state["tokens"][:, start : start + size] = tokens
            if start + size == self.segment:
                part = self.weigh(state["tokens"][:, None])[:, 0]
                with autocast_disabled(x):
                    before = state["memory"] if seen >= self.segment else None
                    memory = self.signal.on(part.device, state["memory"].dtype).update(before, part)
                keys, values = self.read(memory)
                state = {**state, "memory": memory, "keys": keys, "values": values}
            seen += size
        y = self.out_proj(merge_heads(y)) + self.ltm_out(torch.cat(rows, 1))
        return y, {**state, "window": window, "seen": end}
