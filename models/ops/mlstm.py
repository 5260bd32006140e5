"""The mLSTM's matrix memory with exponential gates (Beck et al., 2024, arXiv 2405.04517, eqs. 19-27).

    C_t = f_t C_{t-1} + i_t k_t v_t',  n_t = f_t n_{t-1} + i_t k_t,  i_t = exp(i~_t),  f_t = sigmoid(f~_t)
    h_t = C_t' q_t / max(|n_t' q_t|, 1),   k divided by sqrt(E)

i_t is unbounded, so C and n are kept as multiples of e^{m_t}, m_t = max(log f_t + m_{t-1}, i~_t). This is gated linear
attention with log decays log f_t + m_{t-1} - m_t <= 0, keys k_t e^{i~_t - m_t}, and an additional value of 1 that sums
n. The divisor becomes max(|n' q|, e^{-m_t}) + 1e-6, as in the published code. No m is a difference of long sums. Except
for the 1e-6, the result does not depend on m, which therefore has a gradient only there.

The memory decays only where i~_t = m_t, that is, where a key enters with the factor 1, so the smallest decays, which
models/ops/decayed_chunks.py leaves out, are far below the rounding of what enters.

Time and memory are those of models/ops/gated_linear.py. The state has E (E + 1) + 1 numbers per head.

    B batch, H heads, N length, E head width
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from models.ops.gated_linear import gated_linear_chunk
from models.ops.precision import autocast_disabled, upcast
from models.ops.running_softmax import HIDDEN
from models.ops.scan import diagonal_scan

EPSILON = 1e-6
# C and n concatenated (B, H, E, E + 1) and divided by e^m, and m (B, H). None: zero, and not returned
State = tuple[Tensor | None, Tensor]


def empty_state(like: Tensor, batch: int, heads: int, head_dim: int) -> State:
    """The state before the first token."""
    memory = upcast(like.new_zeros(batch, heads, head_dim, head_dim + 1))
    return memory, memory.new_full((batch, heads), HIDDEN)


def mlstm(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    input_gate: Tensor,
    forget_gate: Tensor,
    state: State,
    key_padding_mask: Tensor | None = None,
) -> tuple[Tensor, State]:
    """q, k, v (B, H, N, E), i~ and f~ (B, H, N) -> h (B, H, N, E), in float32 or float64, and the state after it.

    A padded token, True in `key_padding_mask` (B, N), leaves the state unchanged.
    """
    memory, first = state
    with autocast_disabled(v):
        q, k, v, enter = upcast(q), upcast(k), upcast(v), upcast(input_gate)
        log_forget = F.logsigmoid(upcast(forget_gate))
        if key_padding_mask is not None:
            hidden = key_padding_mask[:, None]
            enter, log_forget = enter.masked_fill(hidden, HIDDEN), log_forget.masked_fill(hidden, 0.0)
        m = decayed_maximum(enter, log_forget, first)
        fixed = m.detach()
        decay = (log_forget + torch.cat([first[..., None], fixed[..., :-1]], -1) - fixed)[..., None]
        k = k * ((enter - fixed).exp() * k.shape[-1] ** -0.5)[..., None]
        v = F.pad(v, (0, 1), value=1.0)
        y, memory = gated_linear_chunk(q, k, v, decay, memory, key_padding_mask=key_padding_mask)
        summed = torch.maximum(y[..., -1].abs(), (-fixed).exp())
        h = y[..., :-1] / (summed + EPSILON * (m - fixed).exp())[..., None]
    return h, (memory, fixed[..., -1].clone())


def decayed_maximum(x: Tensor, log_decay: Tensor, first: Tensor) -> Tensor:
    """m_t = max(log_decay_t + m_{t-1}, x_t) along the last dimension of both (B, H, N), from `first` (B, H)."""
    with torch.no_grad():
        sums = log_decay.double().cumsum(-1)  # they only decide which tokens keep m
        m = torch.maximum((x - sums).cummax(-1).values, first[..., None]) + sums
        before = torch.cat([first[..., None].double(), m[..., :-1]], -1)
        kept = log_decay + before > x
    return diagonal_scan(kept.to(x.dtype), torch.where(kept, log_decay, x), first, dim=-1)
