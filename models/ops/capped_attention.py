"""Causal softmax attention with capped scores, to all keys or to a window, in blocks of queries.

    s_ij = scale <q_i, k_j>,   with a cap c: c tanh(s_ij / c)            (Gemma Team, 2024, arXiv 2408.00118, section 2)
    o_i = sum_{i - left <= j <= i} softmax_j(s_ij) v_j

torch's fused kernels have no cap. Only the scores of one block of queries exist at once, and the backward pass
recomputes them: O(N D) memory plus one block of BLOCK queries and the keys that they see.

    B batch, H heads, M keys, n <= M queries, E head width
"""

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from models.ops.precision import autocast_disabled, upcast
from models.ops.tiles import spans

BLOCK = 256  # queries


def capped_attention(q: Tensor, k: Tensor, v: Tensor, *, left: int | None, cap: float | None, scale: float) -> Tensor:
    """q (B, H, n, E) of the last n tokens in k and v (B, H, M, E) -> (B, H, n, E). `left` None: all keys.

    Raises ValueError for more queries than keys.
    """
    count, before = q.shape[2], k.shape[2] - q.shape[2]
    if before < 0:
        raise ValueError(f"{count} queries, but {k.shape[2]} keys")
    rows = []
    for queries in spans(0, count, BLOCK):
        first = 0 if left is None else max(0, before + queries.start - left)
        keys = slice(first, before + queries.stop)
        block = (q[:, :, queries], k[:, :, keys], v[:, :, keys], left, cap, scale)
        recompute = torch.is_grad_enabled() and count > BLOCK
        rows.append(checkpoint(_attend, *block, use_reentrant=False) if recompute else _attend(*block))
    return torch.cat(rows, 2)


def _attend(q: Tensor, k: Tensor, v: Tensor, left: int | None, cap: float | None, scale: float) -> Tensor:
    distance = torch.arange(k.shape[2] - q.shape[2], k.shape[2], device=q.device)[:, None]
    distance = distance - torch.arange(k.shape[2], device=q.device)
    hidden = distance < 0 if left is None else (distance < 0) | (distance > left)
    scores = q @ k.mT
    with autocast_disabled(q):
        scores = upcast(scores) * scale
        if cap is not None:
            scores = cap * torch.tanh(scores / cap)
        weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
        return weights.to(v.dtype) @ v
