"""One softmax over a window of tokens and summaries of the other tokens (Zhu et al., 2021, arXiv 2107.02192).

    o_i = sum_{j in window(i)} p_ij v_j + sum_m p~_im v~_m,   (p_i, p~_i) one softmax over both kinds of keys

Noncausal form: every query sees all R summaries and the window of its block. Two attentions with their log sums are
mixed; the backward pass of each, called with the mixture, gives its share of the gradients (`softmax_lse`).
O(N (w + R) E) time, O(N E) memory plus one tile.

Causal form: scores depend on the distance, which no fused kernel supports. Queries are processed in tiles of several
chunks; the backward pass recomputes a tile's weights: O(N (w + N r / c) E) time, O(N E) memory plus one tile.

    B batch, H heads, N length, E head width, w window, c chunk, r summaries per chunk, R in total, G chunks or blocks,
    T chunks per tile, L keys around a chunk or a block
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from models.ops.dilated import mix
from models.ops.dropout import draw_seed, drop
from models.ops.precision import autocast_disabled, upcast
from models.ops.softmax_lse import Visible, softmax_lse, softmax_lse_backward
from models.ops.tiles import TileBudget

TILE = TileBudget(2**22, 2**28)  # causal scores that exist at once


def summaries(x: Tensor, scores: Tensor, hidden: Tensor | None, *, chunk: int, heads: int) -> Tensor:
    """Means of the tokens of each chunk, weighted by the softmax of their scores within it.

    x (B, G c, D), scores (B, G c, H r), hidden (B, G c) True at excluded tokens -> (B, G r, D). An all-hidden chunk has
    the plain mean.
    """
    if hidden is not None:
        scores = scores.masked_fill(hidden[..., None], torch.finfo(scores.dtype).min)
    weights = upcast(scores).unflatten(1, (-1, chunk)).softmax(2).to(x.dtype)
    weights = weights.unflatten(-1, (heads, -1)).permute(0, 1, 3, 4, 2)  # (B, G, H, r, c)
    tokens = x.unflatten(-1, (heads, -1)).unflatten(1, (-1, chunk)).transpose(2, 3)  # (B, G, H, c, E)
    return (weights @ tokens).transpose(2, 3).flatten(3).flatten(1, 2)


def noncausal_long_short(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    far_k: Tensor,
    far_v: Tensor,
    *,
    window: int,
    key_padding_mask: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """q, k, v (B, H, N, E), summaries (B, H, R, E), R > 0, mask (B, N) True at padding -> (B, H, N, E).

    A block of `window` queries sees its own tokens and max(1, window // 2) more on either side.
    """
    length = q.shape[2]
    extra = -length % window
    hidden = torch.zeros(1, length, dtype=torch.bool, device=q.device) if key_padding_mask is None else key_padding_mask
    q, k, v = (F.pad(x, (0, 0, 0, extra)) for x in (q, k, v))
    hidden = F.pad(hidden, (0, extra), value=True)
    seed = draw_seed(dropout)
    return _Noncausal.apply(q, k, v, far_k, far_v, hidden, window, dropout, seed)[:, :, :length]


class _Noncausal(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, far_k, far_v, hidden, window: int, dropout: float, seed: int) -> Tensor:
        ctx.options = window, dropout, seed
        with autocast_disabled(q):
            far, near = _visible(hidden, len(q), window, dropout, seed)
            out, lse = softmax_lse(q, far_k, far_v, far)
            out = upcast(out).clone()
            near_out, near_lse = softmax_lse(_blocks(q, window), _around(k, window), _around(v, window), near)
            # blocks without a visible token in their window
            near_lse = near_lse.masked_fill(near.hidden.all(1)[:, None, None], float("-inf"))
            mix(out, lse, _joined(near_out, len(q)), _joined(near_lse, len(q)))
            out = out.to(q.dtype)
        ctx.save_for_backward(q, k, v, far_k, far_v, hidden, out, lse)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, far_k, far_v, hidden, out, lse = ctx.saved_tensors
        window, dropout, seed = ctx.options
        with autocast_disabled(q):
            far, near = _visible(hidden, len(q), window, dropout, seed)
            dq, dfar_k, dfar_v = softmax_lse_backward(grad.contiguous(), q, far_k, far_v, out, lse, far)
            grad, rows, out, lse = (_blocks(x, window) for x in (grad, q, out, lse))
            keys, values = _around(k, window), _around(v, window)
            near_dq, dk, dv = softmax_lse_backward(grad, rows, keys, values, out, lse, near)
            dq = dq + _joined(near_dq, len(q))
            dk, dv = (_gathered(x, len(q), window) for x in (dk, dv))
        return dq, dk, dv, dfar_k, dfar_v, None, None, None, None


def _visible(hidden: Tensor, batch: int, window: int, dropout: float, seed: int) -> tuple[Visible, Visible]:
    """Visibility of the summaries (all) and of the tokens around each block (unless hidden)."""
    reach = max(1, window // 2)
    near = F.pad(hidden.expand(batch, -1), (reach, reach), value=True).unfold(1, window + 2 * reach, window)
    far = Visible(causal=False, dropout=dropout, seed=seed)
    return far, Visible(causal=False, hidden=near.flatten(0, 1), dropout=dropout, seed=seed + (1 << 20))


def _blocks(x: Tensor, window: int) -> Tensor:
    """(B, H, G w, ...) -> (B G, H, w, ...)."""
    return x.unflatten(2, (-1, window)).transpose(1, 2).flatten(0, 1).contiguous()


def _joined(x: Tensor, batch: int) -> Tensor:
    """(B G, H, w, ...) -> (B, H, G w, ...)."""
    return x.unflatten(0, (batch, -1)).transpose(1, 2).flatten(2, 3)


def _around(x: Tensor, window: int) -> Tensor:
    """Each block with its neighbours: (B, H, G w, E) -> (B G, H, L, E)."""
    reach = max(1, window // 2)
    around = F.pad(x, (0, 0, reach, reach)).unfold(2, window + 2 * reach, window)  # (B, H, G, E, L)
    return around.permute(0, 2, 1, 4, 3).flatten(0, 1).contiguous()


def _gathered(x: Tensor, batch: int, window: int) -> Tensor:
    """The transpose of `_around`: (B G, H, L, E) -> (B, H, G w, E)."""
    reach = max(1, window // 2)
    x = x.unflatten(0, (batch, -1)).transpose(1, 2)  # (B, H, G, L, E)
    total = x[..., reach : reach + window, :].clone()
    total[:, :, :-1, window - reach :] += x[:, :, 1:, :reach]
    total[:, :, 1:, :reach] += x[:, :, :-1, reach + window :]
    return total.flatten(2, 3)


class Distances(NamedTuple):
    """The distance vectors of the causal scores, and the two biases of Transformer-XL.

    `near` (H, w, E) holds one vector per distance in tokens, `far` (H, r G, E) one per distance in summaries, counted
    from the last summary before the query's chunk. `content` and `position` (H, E) are added to the queries for the
    window's keys and for its distance vectors.
    """

    near: Tensor
    far: Tensor
    content: Tensor
    position: Tensor


def causal_long_short(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    far_k: Tensor,
    far_v: Tensor,
    relative: Distances,
    *,
    chunk: int,
    key_padding_mask: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """q (B, H, N, E), already scaled; k, v (B, H, M, E) of the same tokens and of M - N earlier ones, in whole chunks.

    far_k, far_v (B, H, R, E) are the summaries of all chunks before the last token's chunk, r per chunk. A query sees
    the summaries of the chunks before its own, and the last w tokens. Mask (B, M) True at padding. Returns
    (B, H, N, E).
    """
    length, before = q.shape[2], k.shape[2] - q.shape[2]
    window, past = relative.near.shape[1], before // chunk
    chunks = -(-length // chunk)
    earlier = past + chunks - 1  # chunks that have summaries
    rank = far_k.shape[2] // earlier if earlier else 0
    extra = chunks * chunk - length
    hidden = torch.zeros(1, k.shape[2], dtype=torch.bool, device=q.device)
    far_hidden = None
    if key_padding_mask is not None:
        hidden = key_padding_mask
        far_hidden = hidden[:, : earlier * chunk].unflatten(1, (-1, chunk)).all(2).repeat_interleave(rank, 1)
    q = F.pad(q, (0, 0, 0, extra))
    k, v = (F.pad(x, (0, 0, window - 1, extra)) for x in (k, v))
    hidden = F.pad(hidden, (window - 1, extra), value=True)

    size = TILE.fit(q, q.shape[0] * q.shape[1] * chunk * (far_k.shape[2] + window + chunk))  # T
    parts = []
    for first in range(0, chunks, size):
        last = min(first + size, chunks)
        seen = (past + last - 1) * rank
        rows = slice((past + first) * chunk, (past + last) * chunk + window - 1)
        near = q[:, :, first * chunk : last * chunk], k[:, :, rows], v[:, :, rows]
        far = far_k[:, :, :seen], far_v[:, :, :seen], relative._replace(far=relative.far[:, :seen])
        masks = hidden[:, rows], None if far_hidden is None else far_hidden[:, :seen]
        tile = *near, *far, *masks, chunk, rank, dropout
        keep = size >= chunks or not torch.is_grad_enabled()
        parts.append(_causal_tile(*tile) if keep else checkpoint(_causal_tile, *tile, use_reentrant=False))
    return torch.cat(parts, 2)[:, :, :length]


def _causal_tile(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    far_k: Tensor,
    far_v: Tensor,
    relative: Distances,
    hidden: Tensor,
    far_hidden: Tensor | None,
    chunk: int,
    rank: int,
    dropout: float,
) -> Tensor:
    """One tile: q (B, H, T c, E), k and v (B, H, w - 1 + T c, E), the last chunk's summaries (B, H, K, E)."""
    window, seen = relative.near.shape[1], far_k.shape[2]
    with autocast_disabled(q):
        low = torch.finfo(q.dtype).min
        k, v = (x.unfold(2, chunk + window - 1, chunk) for x in (k, v))  # (B, H, T, E, L)
        rows = (q + relative.content[:, None]).unflatten(2, (-1, chunk))  # (B, H, T, c, E)
        near = _diagonals(rows @ k, window)
        near = near + ((q + relative.position[:, None]) @ relative.near.flip(1).mT).view_as(near)  # (B, H, T, c, w)
        near = near.masked_fill(hidden.unfold(1, window, 1).unflatten(1, (-1, chunk))[:, None], low)

        # ordered by position in the chunk, so adjacent rows are one chunk apart: (B, H, c T, E)
        q = q.unflatten(2, (-1, chunk)).transpose(2, 3).flatten(2, 3)
        shape = chunk, rows.shape[2]
        position_scores = _shifted((q @ relative.far.flip(1).mT).unflatten(2, shape), rank)
        far = (q @ far_k.mT).unflatten(2, shape) + position_scores  # (B, H, c, T, K)
        # the tile's last chunk sees all K summaries, each earlier chunk r fewer
        limit = seen - rank * torch.arange(shape[1], device=q.device).flip(0)
        unseen = torch.arange(seen, device=q.device) >= limit[:, None]  # (T, K)
        if far_hidden is not None:
            unseen = unseen | far_hidden[:, None, None, None]
        far = far.masked_fill(unseen, low)

        weights = upcast(torch.cat([far, near.transpose(2, 3)], -1)).softmax(-1)
        weights = drop(weights, dropout).to(v.dtype)
        far, near = weights.split([seen, window], -1)
        out = (far.flatten(2, 3) @ far_v).unflatten(2, shape).transpose(2, 3) + _band(near.transpose(2, 3)) @ v.mT
    return out.flatten(2, 3)


def _diagonals(x: Tensor, window: int) -> Tensor:
    """y[.., t, d] = x[.., t, t + d]: (.., c, c + w - 1) -> (.., c, w)."""
    chunk, keys = x.shape[-2:]
    return F.pad(x.flatten(-2), (0, chunk)).unflatten(-1, (chunk, keys + 1))[..., :window]


def _band(x: Tensor) -> Tensor:
    """The transpose of `_diagonals`: (.., c, w) -> (.., c, c + w - 1)."""
    chunk, window = x.shape[-2:]
    return F.pad(x, (0, chunk)).flatten(-2)[..., : chunk * (chunk + window - 1)].unflatten(-1, (chunk, -1))


def _shifted(x: Tensor, rank: int) -> Tensor:
    """y[.., t, j] = x[.., t, j + (T - 1 - t) r], (.., T, K) -> (.., T, K); arbitrary beyond the end of a row."""
    chunks, keys = x.shape[-2:]
    skipped = (chunks - 1) * rank
    return F.pad(x, (0, rank)).flatten(-2)[..., skipped : skipped + chunks * keys].unflatten(-1, (chunks, keys))
