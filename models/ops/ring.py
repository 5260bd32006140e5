"""Attention to the last w tokens of a sequence that is read in parts: a ring keeps w keys and values.

B batch, H heads, w window, n new tokens, E head width
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from models.ops.banded import banded_attention

Ring = dict[str, Any]  # "k" and "v" (B, H, w, E) with token t in slot t mod w, and "seen", the number of tokens so far


def empty_ring(like: Tensor, batch: int, heads: int, window: int, width: int) -> Ring:
    """Room for the keys and values of `window` tokens, in the type and on the device of `like`."""
    ring = like.new_zeros(2, batch, heads, window, width)
    return {"k": ring[0], "v": ring[1], "seen": 0}


def latest(ring: Tensor, seen: int, count: int) -> Tensor:
    """The last `count` of `seen` tokens of a ring (B, H, w, E), oldest first: (B, H, count, E)."""
    return ring[:, :, torch.arange(seen - count, seen, device=ring.device) % ring.shape[2]]


def after_latest(ring: Tensor, x: Tensor, seen: int, count: int) -> Tensor:
    """The last `count` of `seen` tokens of a ring (B, H, w, E), then x (B, H, n, E): (B, H, count + n, E)."""
    return torch.cat([latest(ring, seen, count).to(x.dtype), x], 2)


def store(ring: Tensor, x: Tensor, seen: int) -> None:
    """Write x (B, H, n, E), which follows `seen` tokens, into a ring (B, H, w, E)."""
    end, size = seen + x.shape[2], ring.shape[2]
    x = x[:, :, -size:]
    ring[:, :, torch.arange(end - x.shape[2], end, device=ring.device) % size] = x.to(ring.dtype)


def attend_to_ring(q: Tensor, k: Tensor, v: Tensor, ring: Ring, *, bias: Tensor | None = None) -> tuple[Tensor, Ring]:
    """Softmax attention of the next n tokens, q, k, v (B, H, n, E), each to the last w tokens: (B, H, n, E), ring.

    `bias` (H, w) is added to the scores, its last column to a token's score with itself. The ring is written to.
    Without a bias, k, v and the ring may have one head that all queries share.
    """
    seen, window, count = ring["seen"], ring["k"].shape[2], q.shape[2]
    if count == 1:
        slot, filled = seen % window, min(seen + 1, window)
        ring["k"][:, :, slot], ring["v"][:, :, slot] = k[:, :, 0], v[:, :, 0]
        if bias is not None:
            # the ring's slots are ordered by age except for one wrap-around; fused attention takes four dimensions
            bias = bias.roll(slot + 1, 1)[None, :, None, :filled].to(q.dtype)
        rows = q.view(len(q), k.shape[1], -1, q.shape[3])  # heads that share keys are as many queries of one head
        keys, values = (ring[name][:, :, :filled] for name in ("k", "v"))
        y = F.scaled_dot_product_attention(rows, keys, values, attn_mask=bias).view_as(q)
    else:
        before = min(seen, window - 1)
        pairs = (ring["k"], k), (ring["v"], v)
        keys, values = (
            after_latest(old, new.to(q.dtype), seen, before).expand(-1, q.shape[1], -1, -1) for old, new in pairs
        )
        # zero queries stand for the keys before the chunk
        rows = F.pad(q, (0, 0, before, 0))
        y = banded_attention(rows, keys, values, left=window - 1, right=0, bias=bias)[:, :, before:]
        store(ring["k"], k, seen)
        store(ring["v"], v, seen)
    return y, {**ring, "seen": seen + count}


def attend_before(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    bias: Tensor,
    scale: float,
    key_padding_mask: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Softmax attention of n tokens, q (B, H, n, E), each to the w tokens before it, not to itself: (B, H, n, E).

    k and v (B, H, w + n, E) begin w tokens earlier, and so does `key_padding_mask` (B, w + n). `bias` (H, w) is added
    to the scores, its last column to the score of the token directly before.
    """
    before = bias.shape[1] - 1
    # zero queries pad the rows to one per key
    rows, mask = F.pad(q, (0, 0, before, 0)), None if key_padding_mask is None else key_padding_mask[:, :-1]
    options = {"bias": bias, "scale": scale, "key_padding_mask": mask, "dropout": dropout}
    return banded_attention(rows, k[:, :, :-1], v[:, :, :-1], left=before, right=0, **options)[:, :, before:]


def attend_before_in_ring(
    q: Tensor, k: Tensor, v: Tensor, ring: Ring, *, bias: Tensor, scale: float
) -> tuple[Tensor, Ring]:
    """`attend_before` for the next n tokens, q, k, v (B, H, n, E), and the ring, which is written to.

    The zeros of an unfilled ring are keys and values before the first token, and are seen.
    """
    seen, window = ring["seen"], ring["k"].shape[2]
    if q.shape[2] == 1:
        # the oldest token is in the slot that the new token will take
        mask = bias.roll(seen % window, 1)[None, :, None].to(q.dtype)
        y = F.scaled_dot_product_attention(q, ring["k"], ring["v"], attn_mask=mask, scale=scale)
        ring["k"][:, :, seen % window], ring["v"][:, :, seen % window] = k[:, :, 0], v[:, :, 0]
    else:
        keys, values = (after_latest(ring[name], x, seen, window) for name, x in (("k", k), ("v", v)))
        y = attend_before(q, keys, values, bias=bias, scale=scale)
        store(ring["k"], k, seen)
        store(ring["v"], v, seen)
    return y, {**ring, "seen": seen + q.shape[2]}
