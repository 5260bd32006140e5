"""Mega: attention gated by an exponential moving average (Ma et al., 2023, arXiv 2209.10655).

    h_t = (1 - p a) h_{t-1} + p b x_t,  o_t = <g, h_t> n^-1/2,  m = SiLU(o + w x),  p, a in (0, 1)
    v = SiLU(W_v x),  [u, z, r, s] = W_m m,  u <- sigmoid(u),  z <- SiLU(z),  r <- SiLU(r)
    q = z * gamma_0 + beta_0,  k = z * gamma_1 + beta_1
    A_i = sum_j softmax_j( <q_i, k_j> Z^-1/2 + P[j - i] ) v_j,  or sum_j f( <q_i, k_j> / seen_i + P[j - i] ) v_j
    f(s) = (1 + erf((s - mu) / (sigma sqrt 2))) / 2,  mu = sqrt(1/2),  sigma = sqrt(1 / (4 pi))           (Laplace)
    x + y = x + u * ( SiLU(s + W_h (r * A)) - x )

Time O(N log N D + N^2 (Z + V)), in chunks O(N log N D + N c (Z + V)). Memory O(N (D + Z + V)), plus one tile of scores,
plus P for all pairs once per batch, O(N^2) or O(c^2). Decoding state: D n + (Z + V) times L or c numbers.

    B batch, N length, n modes, Z width of q and k, V width of v, c chunk, G chunks, T queries of a tile
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from models.attention.base import Attention, Pattern, State, check_choice
from models.ops.dropout import drop
from models.ops.exponential_kernel import exponential_kernel, exponential_sums
from models.ops.fft_convolution import fft_convolution
from models.ops.precision import upcast
from models.ops.tiles import TileBudget

STD = 0.02  # initial standard deviation of weights
# scores per tile: few large tiles, because backward accumulates the gradients of all keys once per tile (measured)
TILE, KEPT = TileBudget(2**21, 2**28), TileBudget(2**21, 2**26)


def laplace(scores: Tensor) -> Tensor:
    """f in the module docstring, a bounded relu(s)^2: 0 where nothing is visible."""
    return (1 + ((scores - math.sqrt(0.5)) * math.sqrt(2 * math.pi)).erf()) / 2


class WeightFunction(NamedTuple):
    weigh: Callable[[Tensor], Tensor]  # scores (.., keys) -> weights
    by_count: bool  # products are divided by the number of visible keys, not by sqrt(Z)


FUNCTIONS = {
    "softmax": WeightFunction(partial(torch.softmax, dim=-1), by_count=False),
    "laplace": WeightFunction(laplace, by_count=True),
}


def biased_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    table: Tensor,
    *,
    chunk: int,
    causal: bool,
    function: WeightFunction = FUNCTIONS["softmax"],
    key_padding_mask: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Attention inside chunks: q and k (B, N, Z), v (B, N, V), table (2 L - 1), L >= chunk -> (B, N, V).

    Products <q, k> are not divided by sqrt(Z). P[j - i] is entry L - 1 + j - i of the table. Scores are computed tile
    by tile, and recomputed in the backward pass if there are more than `KEPT`.
    """
    batch, length, _ = q.shape
    chunk = min(chunk, length)
    count = -(-length // chunk)  # G
    missing = count * chunk - length
    hidden = key_padding_mask
    if missing and hidden is None:
        hidden = torch.zeros(1, length, dtype=torch.bool, device=q.device)
    if hidden is not None:
        hidden = F.pad(hidden, (0, missing), value=True).unflatten(1, (count, chunk))[:, :, None]  # (B or 1, G, 1, c)
    if missing:
        q, k, v = (F.pad(x, (0, 0, 0, missing)) for x in (q, k, v))
    q, k, v = (x.unflatten(1, (count, chunk)) for x in (q, k, v))  # (B, G, c, ..)
    if function.by_count:
        q = q / keys_seen(hidden, chunk, causal=causal, device=q.device)
    bias = upcast(toeplitz(table, chunk))
    if causal:
        future = torch.ones(chunk, chunk, dtype=torch.bool, device=q.device).triu(1)
        bias = bias.masked_fill(future, float("-inf"))

    def attend(q: Tensor, bias: Tensor) -> Tensor:
        """q (B, G, T, Z) to the first keys of each chunk, with their bias (T, keys)."""
        keys = slice(0, bias.shape[1])
        scores = upcast(q @ k[:, :, keys].mT) + bias  # (B, G, T, keys)
        if hidden is not None:
            # finite, so that a query that sees nothing gets a finite mean, which has no meaning
            scores = scores.masked_fill(hidden[..., keys], torch.finfo(scores.dtype).min)
        return drop(function.weigh(scores), dropout).to(v.dtype) @ v[:, :, keys]

    size = TILE.fit(q, batch * count * chunk)  # T
    if KEPT.fit(q, batch * count * chunk) >= chunk:
        out = attend(q, bias)
    else:
        ends = range(size, chunk + size, size)
        tiles = [
            checkpoint(attend, rows, near[:, : end if causal else chunk], use_reentrant=False)
            for rows, near, end in zip(q.split(size, 2), bias.split(size), ends, strict=True)
        ]
        out = torch.cat(tiles, 2)
    return out.flatten(1, 2)[:, :length]


def keys_seen(hidden: Tensor | None, chunk: int, *, causal: bool, device: torch.device) -> Tensor | int:
    """Number of keys that each query sees, at least 1; hidden (B or 1, G, 1, c) or None -> (.., c or 1, 1)."""
    if causal:  # padding is on the right, after all real tokens
        return torch.arange(1, chunk + 1, device=device)[:, None]
    if hidden is None:
        return chunk
    return (~hidden).sum(-1, keepdim=True).clamp(min=1)


def toeplitz(table: Tensor, size: int) -> Tensor:
    """(2 L - 1,) -> (size, size), entry L - 1 + j - i of the table at (i, j)."""
    middle = len(table) // 2
    near = F.pad(table[middle - size + 1 : middle + size], (0, 1))  # j - i from 1 - size to size - 1, and a filler
    # rows are one entry shorter than the repeated sequence, so each starts one entry earlier
    return near.repeat(size)[:-size].view(size, 2 * size - 1)[:, size - 1 :]


class MovingAverage(nn.Module):
    """SiLU(EMA(x) + w x) with n modes per channel: 4 n D + D parameters, 8 n D + D if not `causal`.

    The average excludes tokens at a distance of `truncation` or more. Without modes it is SiLU(w x).
    """

    def __init__(self, dim: int, modes: int, *, causal: bool, truncation: int | None = None):
        super().__init__()
        self.dim, kernels = dim, dim if causal else 2 * dim
        self.truncation = truncation
        self.delta = nn.Parameter(torch.empty(kernels, modes).normal_(std=0.2))
        self.alpha = nn.Parameter(torch.empty(kernels, modes).normal_(std=0.2))
        signs = 1.0 - 2.0 * (torch.arange(modes) % 2)  # 1, -1, 1, ..
        self.beta = nn.Parameter(signs + torch.empty(kernels, modes).normal_(std=STD))
        self.gamma = nn.Parameter(torch.randn(kernels, modes))
        self.omega = nn.Parameter(torch.randn(dim))

    def coefficients(self) -> tuple[Tensor, Tensor, Tensor]:
        """p b, g / sqrt(n), and log(1 - p a); (kernels, n) each."""
        p = upcast(self.delta).sigmoid()
        remembered = torch.log1p(-p * upcast(self.alpha).sigmoid())
        return p * upcast(self.beta), upcast(self.gamma) * max(1, self.gamma.shape[1]) ** -0.5, remembered

    def forward(self, x: Tensor, *, key_padding_mask: Tensor | None = None) -> Tensor:
        """x (B, N, D) -> (B, N, D)."""
        if key_padding_mask is not None:
            x = x.masked_fill(key_padding_mask[..., None], 0.0)
        enter, leave, rates = self.coefficients()
        taps = x.shape[1] if self.truncation is None else min(self.truncation, x.shape[1])
        past, *future = exponential_kernel(enter * leave, rates, taps).split(self.dim)
        averages = fft_convolution(x.mT, past, *(kernel[:, 1:] for kernel in future)).mT
        current = self.omega + sum(kernel[:, 0] for kernel in future)
        return F.silu(averages + current.to(x.dtype) * x)

    def chunk(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        """The next n tokens x (B, n, D), h (B, D, modes) -> (B, n, D), equal to rows of the causal `forward`, and h."""
        enter, leave, rates = self.coefficients()
        length = x.shape[1]
        if length == 1:
            h = rates.exp() * h + enter * upcast(x[:, 0])[..., None]
            return F.silu((h * leave).sum(-1).to(x.dtype) + self.omega * x[:, 0])[:, None], h
        averages = fft_convolution(x.mT, exponential_kernel(enter * leave, rates, length))  # (B, D, n)
        left = exponential_kernel(leave * rates.exp() * h, rates, length).to(x.dtype)
        h = (rates * length).exp() * h + enter * exponential_sums(upcast(x).mT, rates)
        return F.silu((averages + left).mT + self.omega.to(x.dtype) * x), h


class Mega(Attention):
    """Mega over chunks of `chunk` tokens; None means `max_length`, the whole sequence. `hdim` is V; None means 2 D.

    2 D (D + V) + (D + 1) (Z + V) + 3 D + V + 4 Z parameters, plus those of the average, plus P, the table of the
    published code's "simple" bias: 2 L - 1 numbers, or 2 c - 1. There is one head: `heads` is accepted but has no
    effect.

    The average crosses chunks. The noncausal pattern has a second average with its own weights, from the end to the
    token; both include the token itself, as in the published code. `attention` is softmax or laplace, which divides by
    the number of keys that a query sees: the real tokens of its chunk, in the causal pattern up to its own (D-29). Mega
    gates its own residual, so the layer returns y = u * (.. - x), which is added to it. In a post-LN backbone LN(x + y)
    is Mega's layer. In a pre-LN backbone the last equation gates x, which the backbone passes as `residual`, and all
    other equations read LN(x) (D-28). Padding, on the right, is zero for the average and hidden as a key. `dropout`
    drops attention weights; Mega's dropouts on v, m and the output are left to the backbone.

    `truncation` cuts the kernels of the average; the code of Mega's LRA results does so at 1,024 tokens (X73). A
    decoding state cannot forget, so the causal pattern has no truncation. Mu and sigma of `laplace` are exact (D-43).

    Raises ValueError for a size below 1, a `truncation` in the causal pattern, an unknown `attention`, and a sequence
    longer than `max_length`.
    """

    patterns: ClassVar[frozenset[Pattern]] = frozenset({Pattern.NONCAUSAL_SELF, Pattern.CAUSAL_SELF})
    linear: bool = False
    fixed_length: bool = True
    gates_residual: ClassVar[bool] = True

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        zdim: int = 64,
        hdim: int | None = None,
        ndim: int = 16,
        chunk: int | None = None,
        attention: str = "softmax",
        truncation: int | None = None,
        **options: Any,
    ):
        super().__init__(dim, heads, **options)
        self.zdim, self.hdim = zdim, 2 * dim if hdim is None else hdim
        self.chunk_size = self.max_length if chunk is None else chunk
        self.check_sizes(zdim=zdim, hdim=self.hdim, ndim=ndim or 1, chunk=self.chunk_size, truncation=truncation)
        check_choice("Mega's attention", attention, FUNCTIONS)
        if truncation is not None and self.pattern.causal:
            raise ValueError("Mega's truncation is for the noncausal pattern: set truncation=null")
        self.function = FUNCTIONS[attention]
        self.average = MovingAverage(dim, ndim, causal=self.pattern.causal, truncation=truncation)
        self.v_proj = nn.Linear(dim, self.hdim)
        self.mx_proj = nn.Linear(dim, dim + zdim + self.hdim + dim)
        self.h_proj = nn.Linear(self.hdim, dim)
        for linear in (self.v_proj, self.mx_proj, self.h_proj):
            nn.init.normal_(linear.weight, std=STD)
            nn.init.zeros_(linear.bias)
        self.gamma = nn.Parameter(torch.empty(2, zdim).normal_(std=STD))
        self.beta = nn.Parameter(torch.zeros(2, zdim))
        self.bias = nn.Parameter(torch.empty(2 * self.chunk_size - 1).normal_(std=STD))

    def mix_tokens(self, x: Tensor, source: Tensor, key_padding_mask: Tensor | None, residual: Tensor) -> Tensor:
        """y (B, N, D) such that `residual` (B, N, D) + y is Mega's output for x (B, N, D)."""
        self.check_length(x.shape[1])
        u, q, k, r, s = self.read(self.average(x, key_padding_mask=key_padding_mask))
        attended = biased_attention(
            q,
            k,
            F.silu(self.v_proj(x)),
            self.bias,
            chunk=self.chunk_size,
            causal=self.pattern.causal,
            function=self.function,
            key_padding_mask=key_padding_mask,
            dropout=self.active_dropout,
        )
        # recomputed in the backward pass: saves a quarter of the activations for a tenth of the products
        return checkpoint(self.write, residual, u, r, s, attended, use_reentrant=False)

    def read(self, m: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """u (.., D), q and k (.., Z), r (.., V), s (.., D) from the average m (.., D); u and r before activation.

        q is scaled by Z^-1/2 unless scores are divided by the number of keys.
        """
        u, z, r, s = self.mx_proj(m).split([self.dim, self.zdim, self.hdim, self.dim], -1)
        z, scale = F.silu(z), 1.0 if self.function.by_count else self.zdim**-0.5
        q = torch.addcmul(self.beta[0] * scale, z, self.gamma[0] * scale)
        return u, q, torch.addcmul(self.beta[1], z, self.gamma[1]), r, s

    def write(self, residual: Tensor, u: Tensor, r: Tensor, s: Tensor, attended: Tensor) -> Tensor:
        """y (.., D) from the results of `read`, A (.., V), and the gated residual (.., D)."""
        return u.sigmoid() * (F.silu(s + self.h_proj(F.silu(r) * attended)) - residual)

    def empty_state(self, batch: int) -> State:
        """h, the keys and values of the chunk, and the number of tokens seen."""
        new = self.bias.new_zeros
        return {
            "h": upcast(new(batch, *self.average.gamma.shape)),
            "k": new(batch, self.chunk_size, self.zdim),
            "v": new(batch, self.chunk_size, self.hdim),
            "seen": 0,
        }

    def chunk(self, x: Tensor, state: State, residual: Tensor | None = None) -> tuple[Tensor, State]:
        seen, end = state["seen"], state["seen"] + x.shape[1]
        if end > self.max_length and self.fixed_length:
            raise ValueError(f"decoding past max_length {self.max_length}")
        m, h = self.average.chunk(x, state["h"])
        u, q, k, r, s = self.read(m)
        v, rows = F.silu(self.v_proj(x)), []
        while seen < end:  # one of Mega's chunks at a time
            size = min(end - seen, self.chunk_size - seen % self.chunk_size)
            (now, q), (k_now, k), (v_now, v) = (y.tensor_split([size], 1) for y in (q, k, v))
            rows.append(self.attend_chunk(now, k_now, v_now, state, seen % self.chunk_size))
            seen += size
        y = self.write(x if residual is None else residual, u, r, s, torch.cat(rows, 1))
        return y, {**state, "h": h, "seen": end}

    def attend_chunk(self, q: Tensor, k: Tensor, v: Tensor, state: State, first: int) -> Tensor:
        """q, k (B, n, Z) and v (B, n, V) of one chunk's tokens from `first` on, which the state keeps: (B, n, V)."""
        last = first + q.shape[1]
        state["k"][:, first:last], state["v"][:, first:last] = k, v
        k, v = state["k"][:, :last], state["v"][:, :last]
        end = self.chunk_size
        if last - first == 1:
            count, bias = last, self.bias[end - last : end]
        else:
            query, key = torch.arange(first, last, device=q.device)[:, None], torch.arange(last, device=q.device)
            count, bias = query + 1, self.bias[end - 1 + (key - query).clamp(max=0)]
            bias = bias.masked_fill(key > query, float("-inf"))
        if self.function.by_count:
            q = q / count
        scores = upcast(q @ k.mT) + upcast(bias)
        return self.function.weigh(scores).to(v.dtype) @ v


class MegaChunk(Mega):
    """Mega inside chunks: linear in the length, which is unlimited."""

    linear: bool = True
    fixed_length: bool = False
