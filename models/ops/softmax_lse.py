"""Softmax attention that also returns the logarithm of each row's sum, and a backward pass for any such pair.

    l_i = log sum_j e^{s_ij},   o_i = sum_j p_ij v_j,   p_ij = e^{s_ij - l_i},   s_ij = <q_i, k_j> E^-1/2
    dV = P' dO,   dS = P * (dO V' - rowsum(dO * O)),   dQ = dS K E^-1/2,   dK = dS' Q E^-1/2

Backward takes o and l as arguments. With the o and l of a larger softmax that contains this one, it returns that
softmax's gradients through these queries and keys (LongNet's mixture, ring attention).

torch's fused kernels are used if they return l. With dropout, and with padding on a GPU, scores are computed tile by
tile. Memory is O(M E) plus one tile in both cases.

    B batch, H heads, M length, E head width
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from models.ops.precision import upcast, upcast_product
from models.ops.tiles import Tile, TileBudget, spans, tiles

TILE = TileBudget(2**19, 2**26)  # scores
HALF = (torch.float16, torch.bfloat16)
aten = torch.ops.aten


class Visible(NamedTuple):
    """Visibility: `causal` hides keys after the query, `hidden` (B, M) is True at hidden keys.

    `dropout` is the dropped share of weights, `seed` determines which.
    """

    causal: bool
    hidden: Tensor | None = None
    dropout: float = 0.0
    seed: int = 0


def softmax_lse(q: Tensor, k: Tensor, v: Tensor, visible: Visible) -> tuple[Tensor, Tensor]:
    """q (B, H, N, E), k and v (B, H, M, E) -> o (B, H, N, E) and l (B, H, N), in float32 or float64.

    N = M if causal. A query that sees no key has o = 0 or any finite o, and an undefined l. o has the type of q, to
    which k and v are converted: under autocast queries have 16 bits, while a decoder's cache may have 32.
    """
    k, v = k.to(q.dtype), v.to(q.dtype)
    if _cpu_kernel_fits(q, visible):
        return aten._scaled_dot_product_flash_attention_for_cpu(
            q, k, v, 0.0, visible.causal, attn_mask=_additive(visible.hidden, q.dtype)
        )
    if _cuda_kernel_fits(q, visible):
        return aten._scaled_dot_product_flash_attention(q, k, v, 0.0, visible.causal)[:2]
    out, lse = torch.empty_like(q), upcast(q.new_empty(q.shape[:-1]))
    for tile, queries, keys in _tiles(q, k, visible):
        scores = _scores(q, k, queries, keys, visible)
        total = scores.logsumexp(-1, keepdim=True)
        weights = scores.sub_(total.clamp(min=torch.finfo(total.dtype).min)).exp_()
        keep = tile.dropout_mask(weights, visible.dropout, visible.seed)
        out[queries] = (weights if keep is None else weights.mul_(keep)).to(v.dtype) @ v[keys]
        lse[queries] = total[..., 0]
    return out, lse


def softmax_lse_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, visible: Visible
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of q, k and v from the gradient of o (B, H, N, E), given o and l (B, H, N) of the full softmax."""
    if _cpu_kernel_fits(q, visible):
        return aten._scaled_dot_product_flash_attention_for_cpu_backward(
            grad, q, k, v, out, lse, 0.0, visible.causal, attn_mask=_additive(visible.hidden, q.dtype)
        )
    if _cuda_kernel_fits(q, visible):
        unused = torch.empty(0, dtype=torch.int64, device=q.device)  # the generator's state: nothing is dropped
        lengths = (None, None, q.shape[2], k.shape[2])
        return aten._scaled_dot_product_flash_attention_backward(
            grad, q, k, v, out, lse.contiguous(), *lengths, 0.0, visible.causal, unused, unused
        )
    scale = q.shape[-1] ** -0.5
    # rowsum(dO * O) equals rowsum(P * dP) even with dropped weights
    row = (upcast(grad) * upcast(out)).sum(-1, keepdim=True)
    dq = torch.empty_like(q)
    dk, dv = (torch.zeros_like(x, dtype=row.dtype) for x in (k, v))
    for tile, queries, keys in _tiles(q, k, visible):
        weights = _scores(q, k, queries, keys, visible).sub_(lse[queries][..., None]).exp_()
        keep = tile.dropout_mask(weights, visible.dropout, visible.seed)
        g = grad[queries]
        ds, dropped = softmax_gradient(upcast_product(g, v[keys].mT), weights, row[queries], keep)
        dv[keys] += dropped.to(v.dtype).mT @ g
        ds = ds.mul_(scale).to(q.dtype)
        dq[queries] = ds @ k[keys]
        dk[keys] += ds.mT @ q[queries]
    return dq, dk.to(k.dtype), dv.to(v.dtype)


def softmax_gradient(dp: Tensor, weights: Tensor, row: Tensor, keep: Tensor | None) -> tuple[Tensor, Tensor]:
    """Gradient of the scores of a tile, and its weights after dropout; both overwrite their inputs.

    dp = dO V' and the softmax `weights` are (.., queries, keys), `row` = rowsum(dO * O) is (.., queries, 1), `keep` is
    dropout's mask or None.
    """
    if keep is not None:
        dp.mul_(keep)
    dp.sub_(row).mul_(weights)
    return dp, weights if keep is None else weights.mul_(keep)


def _cpu_kernel_fits(q: Tensor, visible: Visible) -> bool:
    return q.device.type == "cpu" and not visible.dropout


def _cuda_kernel_fits(q: Tensor, visible: Visible) -> bool:
    if q.device.type != "cuda" or visible.dropout or visible.hidden is not None or q.dtype not in HALF:
        return False
    return q.shape[-1] % 8 == 0 and q.shape[-1] <= 256 and torch.cuda.get_device_capability(q.device) >= (8, 0)


def _additive(hidden: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """(B, M) -> (B, 1, 1, M), -inf where True."""
    if hidden is None:
        return None
    return torch.zeros_like(hidden, dtype=dtype).masked_fill_(hidden, float("-inf"))[:, None, None]


Index = tuple[slice, slice, slice]  # of examples, heads and tokens


def _tiles(q: Tensor, k: Tensor, visible: Visible) -> Iterator[tuple[Tile, Index, Index]]:
    """Some queries of some examples, and the keys that they may see."""
    (batch, heads, queries, _), keys = q.shape, k.shape[2]
    size = TILE.fit(q, heads * keys, queries)
    rows = TILE.fit(q, heads * keys * size, batch)
    for tile in tiles(spans(0, batch, rows), spans(0, queries, size)):
        examples, tokens = tile.index
        seen = slice(0, tokens.stop if visible.causal else keys)
        yield tile, (examples, slice(None), tokens), (examples, slice(None), seen)


def _scores(q: Tensor, k: Tensor, queries: Index, keys: Index, visible: Visible) -> Tensor:
    """Scores of one tile, (examples, H, queries, keys), -inf at hidden keys."""
    scores = upcast_product(q[queries], k[keys].mT).mul_(q.shape[-1] ** -0.5)
    if visible.causal:
        future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(queries[2].start + 1)
        scores.masked_fill_(future, float("-inf"))
    if visible.hidden is not None:
        scores.masked_fill_(visible.hidden[keys[0], None, None, keys[2]], float("-inf"))
    return scores
