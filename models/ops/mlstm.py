"""The mLSTM's matrix memory with exponential gates (Beck et al., 2024, arXiv 2405.04517, eqs. 19-27).

    C_t = f_t C_{t-1} + i_t k_t v_t',  n_t = f_t n_{t-1} + i_t k_t,  i_t = exp(i~_t),  f_t = sigmoid(f~_t)
    h_t = C_t' q_t / max(|n_t' q_t|, 1),   k divided by sqrt(E)

i_t is unbounded, so C and n are kept as multiples of e^{m_t}, m_t = max(log f_t + m_{t-1}, i~_t). This is gated linear
attention with log decays log f_t + m_{t-1} - m_t <= 0, keys k_t e^{i~_t - m_t}, and an additional value of 1 that sums
n. The divisor becomes max(|n' q|, e^{-m_t}) + 1e-6, as in the published code. m comes from sums over the whole text,
and is float64 until its differences are taken. Except for the 1e-6, the result does not depend on m, which therefore
has a gradient only there.

The memory decays only where i~_t = m_t, that is, where a key enters with the factor 1, so the smallest decays, which
models/ops/decayed_chunks.py leaves out, are far below the rounding of what enters.

Time and memory are those of models/ops/gated_linear.py. The state has E (E + 1) + 1 numbers per head.

    B batch, H heads, N length, E head width
"""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from models.ops.gated_linear import gated_linear_chunk
from models.ops.precision import autocast_disabled, upcast
from models.ops.running_softmax import HIDDEN

EPSILON = 1e-6
# C and n concatenated (B, H, E, E + 1) and divided by e^m, and m (B, H), float64. None: zero, and not returned
State = tuple[Tensor | None, Tensor]


def empty_state(like: Tensor, batch: int, heads: int, head_dim: int) -> State:
    """The state before the first token."""
    memory = upcast(like.new_zeros(batch, heads, head_dim, head_dim + 1))
    return memory, memory.new_full((batch, heads), HIDDEN, dtype=torch.float64)


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
        m, enter, decay = _RunningMaximum.apply(enter, log_forget, first)
        last, m = m[..., -1].detach().clone(), m.to(k.dtype)
        k = k * (enter.exp() * k.shape[-1] ** -0.5)[..., None]
        v = F.pad(v, (0, 1), value=1.0)
        y, memory = gated_linear_chunk(q, k, v, decay[..., None], memory, key_padding_mask=key_padding_mask)
        fixed = m.detach()
        summed = torch.maximum(y[..., -1].abs(), (-fixed).exp()).add((m - fixed).exp(), alpha=EPSILON)
    return y[..., :-1] / summed[..., None], (memory, last)


class _RunningMaximum(torch.autograd.Function):
    """m_t = max(log f_t + m_{t-1}, i~_t) of i~ and log f (B, H, N), from m_0 (B, H), in float64.

    Also i~_t - m_t and log f_t + m_{t-1} - m_t, in which m is a constant, in the type of i~. With s_t the sum of log f
    up to t, m_t = s_t + i~_b - s_b for the last token b that set m, or s_t + m_0: a gradient of m_t is one of i~_b and
    of log f_{b+1} .. log f_t.
    """

    @staticmethod
    def forward(ctx, enter: Tensor, log_forget: Tensor, first: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        sums = F.pad(log_forget.double(), (1, 0)).cumsum(-1)
        highest, setter = torch.cat([first[..., None], enter - sums[..., 1:]], -1).cummax(-1)  # b, or 0 for m_0
        ctx.save_for_backward(setter)
        m = highest + sums
        before, m = m[..., :-1], m[..., 1:]
        return m, (enter - m).to(enter.dtype), (log_forget + before - m).to(enter.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor, denter: Tensor, ddecay: Tensor) -> tuple[Tensor, Tensor, None]:
        (setter,) = ctx.saved_tensors
        sums = F.pad(grad, (2, 0)).cumsum(-1)
        # the gradient of m at t and at later tokens with the same b
        later = sums.gather(-1, torch.searchsorted(setter, setter, right=True))[..., 1:] - sums[..., 1:-1]
        later = later.to(denter.dtype)
        own = later * (setter == torch.arange(setter.shape[-1], device=setter.device))[..., 1:]
        return denter + own, ddecay + later - own, None
