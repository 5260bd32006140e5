"""Reformer: attention among tokens with equal hashes (Kitaev et al., 2020, arXiv 2001.04451).

    q = W_qk x,   k_j = q_j / |q_j|                                                    (shared QK)
    h(x) = argmax( [x R; -x R] ),   R (E, b / 2) Gaussian                              (§2, LSH)
    o_i = sum_r sum_{j in N_r(i)} exp( <q_i, k_j> - z_i ) v_j                          (2, 3, 5)

In each of r rounds, with its own R per head, tokens are sorted by bucket and then by position, and cut into chunks.
N_r(i) is the query's chunk and the previous one, without i itself unless it is alone. z is the logarithm of the sum
over all rounds. Time O(N (r c + b) D), memory O(r N D). The whole sequence determines which tokens share a chunk, so
there is no causal form (D-27).

    B batch, N length, n real tokens, H heads, E head width, R rounds, C columns of R
"""

import math
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from models.attention.base import INPUT_GAIN, Attention, Pattern, projection, without_biases
from models.ops.dropout import draw_seed
from models.ops.heads import merge_heads, split_heads
from models.ops.precision import autocast_disabled, upcast_linear
from models.ops.sorted_chunks import Neighbours, sorted_chunk_attention

EPSILON = 1e-6  # added to the mean square when a query is normalised to a key


def unit(q: Tensor) -> Tensor:
    """The keys for queries q (..., E)."""
    return q * ((q.square().mean(-1, keepdim=True) + EPSILON) * q.shape[-1]).rsqrt()


def hash_sizes(lengths: Tensor, chunk: int, max_length: int) -> Tensor:
    """lengths (B) -> (B, 2): half the buckets of the first and the second hash, 0 if one hash suffices."""
    limit = 2 * max(chunk, math.isqrt(max_length // chunk))
    chunks = -(-lengths.clamp(min=1, max=max_length) // chunk)
    bits = (2 * chunks).double().log2().floor().long()
    first = torch.where(2**bits > limit, bits // 2, bits)
    return torch.stack([2**first, 2 ** (bits - first)], 1) // 2


def sort_by_hash(q: Tensor, rotations: Tensor, sizes: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
    """q (B, H, N, E), rotations (1 or 2, R, H, E, C), sizes (B or 1, 2) -> order (B, H, R, N), real tokens first.

    Each of the two hashes uses its first `sizes` columns.
    """
    length, columns = q.shape[2], rotations.shape[-1]
    position = torch.arange(length, device=q.device)
    orders = []
    for rotation in rotations.unbind(1):  # one round
        bucket = torch.zeros_like(q[..., 0], dtype=torch.long)  # (B, H, N)
        for which, matrix in enumerate(rotation):
            used = torch.arange(columns, device=q.device) < sizes[:, which, None, None, None]  # (B or 1, 1, 1, C)
            turned = q @ matrix  # (B, H, N, C)
            largest = turned.abs().masked_fill_(~used, -1.0).argmax(-1, keepdim=True)
            opposite = turned.gather(-1, largest) < 0
            hashed = (largest + columns * opposite)[..., 0]
            bucket += torch.where(sizes[:, which, None, None] > 0, hashed, 0) * (2 * columns) ** which
        rank = bucket * length + position
        if key_padding_mask is not None:
            rank = rank.masked_fill(key_padding_mask[:, None], torch.iinfo(rank.dtype).max)
        orders.append(rank.argsort(dim=-1, stable=True))
    return torch.stack(orders, 2)


class Reformer(Attention):
    """Multi-head LSH attention with shared queries and keys: 3 D^2 + 3 D parameters.

    `buckets` is a fixed even number, or None for 2^floor(log2(2 n / c)); above 2 max(c, sqrt(n_max / c)) two hashes are
    combined. `before` and `after` are the numbers of chunks that a query sees besides its own. As in the code behind
    LAVO Table 11 (transformers, through Skyformer), k_j has norm 1 and scores have no further factor, neighbours from
    other buckets are visible, and a key seen in two rounds counts twice. LRA has chunks of 10, 10 buckets and 1 round.

    Unlike in that code, nothing precedes the first chunk, projections have a bias unless the recipe drops it, and R is
    drawn once and saved with the weights, so that evaluation is deterministic; `redraw` draws a new R at each training
    step. n counts real tokens; padding is sorted to the end and hidden. Hashes are never computed in 16 bits.

    Raises ValueError for sizes below 1 (`before`, `after`: below 0) and for an odd number of buckets.
    """

    patterns: ClassVar[frozenset[Pattern]] = frozenset({Pattern.NONCAUSAL_SELF})

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        chunk: int = 64,
        hashes: int = 2,
        buckets: int | None = None,
        before: int = 1,
        after: int = 0,
        redraw: bool = False,
        **options: Any,
    ):
        super().__init__(dim, heads, **options)
        if min(chunk, hashes) < 1 or min(before, after) < 0:
            raise ValueError(f"Reformer requires {chunk=} and {hashes=} >= 1, {before=} and {after=} >= 0")
        if buckets is not None and (buckets < 2 or buckets % 2):
            raise ValueError(f"Reformer requires an even number of buckets, not {buckets}")
        self.chunk_size, self.buckets, self.before, self.after, self.redraw = chunk, buckets, before, after, redraw
        self.qk_proj = projection(dim, dim, INPUT_GAIN)
        self.v_proj = projection(dim, dim, INPUT_GAIN)
        self.out_proj = projection(dim, dim, 1.0)
        largest = self.sizes(torch.tensor(self.doublings(), device="cpu")).amax(0)
        levels, columns = int((largest > 0).sum()), int(largest.max())
        self.register_buffer("rotations", torch.randn(levels, hashes, heads, self.head_dim, columns))

    def drop_biases(self) -> None:
        without_biases(self.qk_proj, self.v_proj, self.out_proj)

    def doublings(self) -> list[int]:
        """Lengths at which the number of buckets changes, up to `max_length`."""
        return [min(self.chunk_size << i, self.max_length) for i in range(self.max_length.bit_length() + 1)]

    def sizes(self, lengths: Tensor) -> Tensor:
        """Half the buckets of the two hashes, (B or 1, 2), for examples with these lengths (B)."""
        if self.buckets is None:
            return hash_sizes(lengths, self.chunk_size, self.max_length)
        return F.pad(torch.full((1, 1), self.buckets // 2, device=lengths.device), (0, 1))

    def order(self, q: Tensor, lengths: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        """Tokens of q (B, H, N, E) sorted by bucket, in every round: (B, H, R, N)."""
        rotations = self.rotations
        if self.redraw and self.training:
            rotations = torch.randn_like(rotations)
        with torch.no_grad():
            return sort_by_hash(q, rotations.to(q.dtype), self.sizes(lengths), key_padding_mask)

    def mix_tokens(self, x: Tensor, source: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        v = split_heads(self.v_proj(x), self.head_dim)  # (B, H, N, E)
        if key_padding_mask is None:
            lengths = torch.full((1,), x.shape[1], device=x.device)  # (B or 1)
        else:
            lengths = (~key_padding_mask).sum(1)
        with autocast_disabled(x):
            q = split_heads(upcast_linear(self.qk_proj, x), self.head_dim)
            order = self.order(q, lengths, key_padding_mask)
            k = unit(q)
        dropout = self.active_dropout
        seed = draw_seed(dropout)
        neighbours = Neighbours(self.chunk_size, self.before, self.after, dropout, seed)
        y = sorted_chunk_attention(q.to(v.dtype), k.to(v.dtype), v, order, lengths, neighbours)
        return self.out_proj(merge_heads(y))
