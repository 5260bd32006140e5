"""Peer of the Luna benchmarks: causal Luna token by token, a transcription of its equation."""

import torch
from torch import Tensor

from models.ops.packed_prefix import Activation


def luna_loop(q: Tensor, memory: Tensor, pack_k: Tensor, pack_q: Tensor, *, activation: Activation) -> Tensor:
    """The same as `packed_prefix` with neither masks nor dropout: one state, updated N times.

    `unbind` and one `cat` keep the backward pass linear in N.
    """
    width = q.shape[-1]
    scale = width**-0.5
    a = activation.value(pack_k @ pack_q.mT * scale)  # (B, H, N, L)
    total, rows = 0.0, []
    for t, (q_t, m_t, a_t) in enumerate(zip(q.unbind(2), memory.unbind(2), a.unbind(2), strict=True), 1):
        total = total + m_t[..., None] * a_t[..., None, :]  # (B, H, F, L)
        z = q_t[..., None, :] @ total[..., :width, :] * (scale / t)  # (B, H, 1, L)
        rows.append(z.softmax(-1) @ total[..., -width:, :].mT / t)
    return torch.cat(rows, 2)
