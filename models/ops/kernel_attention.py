"""Attention whose weights are products of features: sums over the keys replace scores.

    o_i = S_i' phi(q_i) / d_i,   d_i = z_i' phi(q_i),   S_i = sum_j phi(k_j) v_j',   z_i = sum_j phi(k_j)

over all j, or over j <= i (Katharopoulos et al., 2020, arXiv 2006.16236, eq. 4-12). To guard against zero, `eps` is
added to d_i, which is then raised to at least `floor`. Time O(N m E); memory O(N (m + E)). The decoding state is [S z].
If m is a multiple of E, features are better computed segment by segment; many features are recomputed in the backward
pass, which reduces memory to O(N E).

    B batch, H heads, N query length, M key length, m features, E value width
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from models.ops.gated_linear import gated_linear_attention, gated_linear_chunk
from models.ops.precision import autocast_disabled, upcast
from models.ops.tiles import TileBudget

SEGMENT = TileBudget(2**21, 2**26)  # numbers of features
MOST_KEPT = 8  # segments whose features are kept for the backward pass


def kernel_attention(
    phi_q: Tensor,
    phi_k: Tensor,
    v: Tensor,
    *,
    causal: bool,
    key_padding_mask: Tensor | None = None,
    eps: float = 0.0,
    floor: float = 0.0,
) -> Tensor:
    """phi_q (B, H, N, m), phi_k (B, H, M, m), v (B, H, M, E), mask (B, M) True at padding -> (B, H, N, E)."""
    if not causal:
        return read_sums(phi_q, kernel_sums(phi_k, v, key_padding_mask), eps=eps, floor=floor).to(v.dtype)
    with autocast_disabled(v):
        y, _ = gated_linear_attention(
            upcast(phi_q), upcast(phi_k), with_ones(v), final_state=False, key_padding_mask=key_padding_mask
        )
        return normalise(y, eps, floor).to(v.dtype)


def kernel_sums(phi_k: Tensor, v: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
    """[S z] (B, H, m, E + 1) from phi_k (B, H, M, m) and v (B, H, M, E), mask (B, M) True at padding."""
    with autocast_disabled(v):
        phi_k = upcast(phi_k)
        if key_padding_mask is not None:
            phi_k = phi_k.masked_fill(key_padding_mask[:, None, :, None], 0.0)
        return phi_k.mT @ with_ones(v)


def read_sums(phi_q: Tensor, sums: Tensor, *, eps: float = 0.0, floor: float = 0.0) -> Tensor:
    """What queries phi_q (B, H, N, m) read from [S z]: (B, H, N, E)."""
    with autocast_disabled(sums):
        return normalise(upcast(phi_q) @ sums, eps, floor)


def segmented_kernel_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    phi: Callable[[Tensor], Tensor],
    features: int,
    *,
    causal: bool,
    key_padding_mask: Tensor | None = None,
    gate: Tensor | None = None,
    floor: float,
) -> Tensor:
    """`kernel_attention` of phi(q) and phi(k), with q (B, H, N, E) and k (B, H, M, E), computed in segments.

    `phi` maps (B, H, n, E) to (B, H, n, features). In the causal form, `gate` (B, H, N, 1) is the logit of g: both sums
    decay by g before the share 1 - g of a token is added.
    """
    size = max(64, SEGMENT.fit(v, v.shape[0] * v.shape[1] * features))
    run = checkpointed if max(q.shape[2], k.shape[2]) > MOST_KEPT * size else called
    several = max(q.shape[2], k.shape[2]) > size
    sums = None if causal and not several else empty_sums(*v.shape[:2], features, v.shape[-1], v)
    rows = []

    def both(q: Tensor, k: Tensor, v: Tensor, gate: Tensor | None, hidden: Tensor | None, sums: Tensor | None) -> Any:
        phi_k, log_decay = gated(phi(k), gate)
        y, sums = gated_linear_attention(
            phi(q), phi_k, with_ones(v), log_decay, initial_state=sums, final_state=several, key_padding_mask=hidden
        )
        return normalise(y, 0.0, floor).to(v.dtype), sums

    def add(k: Tensor, v: Tensor, hidden: Tensor | None, sums: Tensor) -> Tensor:
        return sums + kernel_sums(phi(k), v, hidden)

    def read(q: Tensor, sums: Tensor) -> Tensor:
        return normalise(phi(q) @ sums, 0.0, floor).to(v.dtype)

    with autocast_disabled(v):
        if causal:
            for segment in segments(size, q, k, v, gate, key_padding_mask):
                y, sums = run(both, *segment, sums)
                rows.append(y)
        else:
            for segment in segments(size, k, v, key_padding_mask):
                sums = run(add, *segment, sums)
            rows = [run(read, *segment, sums) for segment in segments(size, q)]
        return torch.cat(rows, 2)


def called(function: Callable, *tensors: Tensor | None) -> Any:
    """`operator.call`, which torch.compile cannot trace."""
    return function(*tensors)


def checkpointed(function: Callable, *tensors: Tensor | None) -> Any:
    """function(*tensors), called again in the backward pass instead of keeping its intermediate results."""
    return checkpoint(function, *tensors, use_reentrant=False, preserve_rng_state=False)


def segments(size: int, *tensors: Tensor | None) -> Iterator[tuple[Tensor | None, ...]]:
    """Pieces of `size` tokens from tensors (B, H, N, ..) and (B, N); None stays None."""
    split = [None if x is None else x.split(size, 1 if x.ndim == 2 else 2) for x in tensors]
    return ([None if pieces is None else pieces[i] for pieces in split] for i in range(len(split[0])))


def gated(phi_k: Tensor, gate: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """(1 - g) phi(k) and log g, from phi_k (.., m) and the logit of g (.., 1)."""
    if gate is None:
        return phi_k, None
    gate = upcast(gate)
    return phi_k * torch.sigmoid(-gate), F.logsigmoid(gate)


def with_ones(v: Tensor) -> Tensor:
    """[v 1], for which one sum over the keys gives both S and z: (.., E) -> (.., E + 1), in float32 or float64."""
    v = upcast(v)
    return torch.cat([v, v.new_ones(*v.shape[:-1], 1)], -1)


def normalise(y: Tensor, eps: float, floor: float) -> Tensor:
    """[o d, d] (.., E + 1) -> o (.., E)."""
    return y[..., :-1] / (y[..., -1:] + eps).clamp(min=floor)


def empty_sums(batch: int, heads: int, features: int, width: int, like: Tensor) -> Tensor:
    """[S z] before the first token, (B, H, m, E + 1)."""
    return upcast(like.new_zeros(batch, heads, features, width + 1))


def kernel_attention_chunk(
    phi_q: Tensor,
    phi_k: Tensor,
    v: Tensor,
    sums: Tensor,
    *,
    gate: Tensor | None = None,
    eps: float = 0.0,
    floor: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """n tokens: phi_q and phi_k (B, H, n, m), v (B, H, n, E), sums [S z], gate (B, H, n, 1) -> (B, H, n, E), sums."""
    with autocast_disabled(v):
        phi_k, log_decay = gated(upcast(phi_k), gate)
        y, sums = gated_linear_chunk(phi_q, phi_k, with_ones(v), log_decay, sums)
        return normalise(y, eps, floor).to(v.dtype), sums
