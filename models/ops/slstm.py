"""The sLSTM's recurrence with exponential gates and recurrent weights (Beck et al., 2024, arXiv 2405.04517, eqs. 8-17).

    [i~, f~, z~, o~]_t = x_t + R h_{t-1},  i = exp(i~),  f = sigmoid(f~),  z = tanh(z~),  o = sigmoid(o~)
    c_t = f_t c_{t-1} + i_t z_t,  n_t = f_t n_{t-1} + i_t,  h_t = o_t c_t / n_t

c and n are kept as multiples of e^{m_t}, m_t = max(log f_t + m_{t-1}, i~_t), so n_t >= 1; h does not depend on m. R has
one block per head. The gates read h, so the sequence is processed step by step, with a few operations on (B, D) per
step. Everything is in float32 or float64. The explicit backward pass recomputes the gates of a whole tile of tokens at
once. With d. the gradients and F_t = f_t e^{m_{t-1} - m_t}, I_t = i_t e^{-m_t},

    dc_t = F_{t+1} dc_{t+1} + o_t / n_t dh_t,  dn_t = F_{t+1} dn_{t+1} - h_t / n_t dh_t
    do~ = h (1 - o) dh,  dz~ = I (1 - z^2) dc,  di~ = I (z dc + dn)
    df~_t = F_t (1 - f_t) (c_{t-1} dc_t + n_{t-1} dn_t)
    dh_{t-1} += R' [di~, df~, dz~, do~]_t

Time O(N D (D / H)), memory O(N D), state 4 D numbers.

    B batch, N length, H heads, E head width, D = H E
"""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from models.ops.precision import autocast_disabled, upcast
from models.ops.running_softmax import HIDDEN
from models.ops.tiles import TileBudget

TILE = TileBudget(2**20, 2**26)  # numbers
COEFFICIENTS = 16  # numbers in a tile per channel and token
State = tuple[Tensor, Tensor, Tensor, Tensor]  # h, c, n, m (B, H, E)


def empty_state(like: Tensor, batch: int, heads: int, head_dim: int) -> State:
    """The state before the first token."""
    zeros = upcast(like.new_zeros(batch, heads, head_dim))
    return zeros, zeros.clone(), zeros.clone(), torch.full_like(zeros, HIDDEN)


@torch.compiler.disable  # a tracer would unroll the loop over tokens
def slstm(
    gates: Tensor, recurrent: Tensor, state: State, key_padding_mask: Tensor | None = None
) -> tuple[Tensor, State]:
    """x (B, N, 4, H, E) and R (H, E, 4, E), inputs before outputs -> h (B, N, H, E) and the state after the last token.

    Gates are in the order i, f, z, o. A padded token, True in `key_padding_mask` (B, N), leaves the state, including h,
    unchanged.
    """
    with autocast_disabled(gates):
        x = upcast(gates).permute(1, 3, 0, 2, 4).contiguous()  # (N, H, B, 4, E)
        weight = upcast(recurrent).flatten(2)  # (H, E, 4 E)
        padding = None if key_padding_mask is None else key_padding_mask.T[:, None, :, None]  # (N, 1, B, 1)
        h, *after = _SLSTMRecurrence.apply(x, weight, padding, *(part.transpose(0, 1) for part in state))
        last = (h[-1], *after)
        return h.permute(2, 0, 1, 3), tuple(part.transpose(0, 1).clone() for part in last)


class _SLSTMRecurrence(torch.autograd.Function):
    """x (N, H, B, 4, E), R (H, E, 4 E), padding (N, 1, B, 1), h, c, n, m (H, B, E) -> h (N, H, B, E), c, n, m."""

    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor, padding: Tensor | None, *state: Tensor) -> tuple[Tensor, ...]:
        keep = any(ctx.needs_input_grad)
        length, shape = len(x), state[0].shape
        # the state before each token, and after the last token
        h, *others = (torch.empty(length + 1, *shape, dtype=x.dtype, device=x.device) for _ in range(4 if keep else 1))
        raw = torch.empty_like(x) if keep else None
        for t in range(length):
            h[t] = state[0]
            gates = torch.baddbmm(x[t].flatten(-2), state[0], weight).view_as(x[t])
            if keep:
                raw[t] = gates
                for rows, part in zip(others, state[1:], strict=True):
                    rows[t] = part
            after = _advance(gates, *state[1:])
            if padding is not None:
                after = tuple(torch.where(padding[t], old, new) for old, new in zip(state, after, strict=True))
            state = after
        h[length] = state[0]
        if keep:
            for rows, part in zip(others, state[1:], strict=True):
                rows[length] = part
            ctx.save_for_backward(raw, weight, padding, h, *others)
        ctx.mark_non_differentiable(state[3])
        return h[1:], *state[1:]

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor, dc: Tensor, dn: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        raw, weight, padding, h, c, n, m = ctx.saved_tensors
        dx, dweight, dh = torch.empty_like(raw), torch.zeros_like(weight), torch.zeros_like(dc)
        dc, dn, back = dc.clone(), dn.clone(), weight.mT
        size = TILE.fit(raw, COEFFICIENTS * dc.numel(), len(raw))
        for stop in range(len(raw), 0, -size):
            tile = slice(max(0, stop - size), stop)
            after = slice(tile.start + 1, stop + 1)
            hidden = None if padding is None else padding[tile]
            parts = (c[tile], n[tile], m[tile], h[after], n[after], m[after])
            opened, divided, weighed, of_c, of_n, kept = _coefficients(raw[tile], *parts, hidden)
            for t in range(tile.stop - tile.start - 1, -1, -1):
                gates = dx[tile.start + t]
                dh = dh + grad[tile.start + t]
                dc.addcmul_(dh, divided[t])
                dn.addcmul_(dh, weighed[t])
                torch.mul(dh, opened[t], out=gates[..., 3, :])
                torch.mul(dc.unsqueeze(-2), of_c[t], out=gates[..., :3, :])
                gates[..., :2, :].addcmul_(dn.unsqueeze(-2), of_n[t])
                before = gates.flatten(-2) @ back
                dh = before if hidden is None else torch.where(hidden[t], dh, before)
                dc *= kept[t]
                dn *= kept[t]
            read, written = (y.transpose(0, 1).flatten(1, 2) for y in (h[tile], dx[tile].flatten(-2)))
            dweight.baddbmm_(read.mT, written)
        return dx, dweight, None, dh, dc, dn, None


def _advance(gates: Tensor, c: Tensor, n: Tensor, m: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """h, c, n, m after a token with gates (H, B, 4, E)."""
    i, f, z, o = gates.unbind(-2)
    faded = F.logsigmoid(f) + m
    m = torch.maximum(faded, i)
    enter, stay = (i - m).exp(), (faded - m).exp()
    c = torch.addcmul(enter * z.tanh(), stay, c)
    n = torch.addcmul(enter, stay, n)
    return o.sigmoid() * c / n, c, n, m


def _coefficients(
    raw: Tensor, c: Tensor, n: Tensor, m: Tensor, h: Tensor, n_after: Tensor, m_after: Tensor, hidden: Tensor | None
) -> tuple[Tensor, ...]:
    """Gradient factors of some tokens, from their gates (.., 4, E), c, n and m before, and h, n and m after each.

    h (1 - o), o / n, -h / n and F (.., E); for dc I z, F (1 - f) c and I (1 - z^2) (.., 3, E); for dn I and
    F (1 - f) n (.., 2, E).
    """
    i, f, z, o = raw.unbind(-2)
    z, o = z.tanh(), o.sigmoid()
    enter, stay = (i - m_after).exp(), (F.logsigmoid(f) + m - m_after).exp()
    forgets = stay * (-f).sigmoid()
    of_c = torch.stack([enter * z, forgets * c, enter * (1 - z * z)], -2)
    of_n = torch.stack([enter, forgets * n], -2)
    opened, divided, weighed = h * (1 - o), o / n_after, -h / n_after
    if hidden is not None:
        opened, divided, weighed = (y.masked_fill(hidden, 0.0) for y in (opened, divided, weighed))
        of_c, of_n = (y.masked_fill(hidden[..., None], 0.0) for y in (of_c, of_n))
        stay = stay.masked_fill(hidden, 1.0)
    return opened, divided, weighed, of_c, of_n, stay
