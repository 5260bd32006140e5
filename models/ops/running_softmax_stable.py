"""One tile of the running softmax for arbitrary logits: no exponent is positive, no denominator below 1.

Each token t is relative to m_t, the largest logit up to t. Inside a chunk, weights are products over pairs of blocks of
h = 1, 2, 4, .. tokens: for s in the left block b1 and t in the right block of a pair,

    e^{theta_s - m_t} = Kl_s Pr_t,   Kl_s = e^{theta_s - m_(end of b1)},   Pr_t = e^{m_(end of b1) - m_t},   both <= 1

The m_(t-1) - m_t are log decays, and all levels are computed at once, as in models/ops/decayed_chunks.py: they take
1 + log2 C times the memory of a tile. Maxima are constants for gradients, because the result does not depend on them.

    K chunks per tile, B batch, H heads, C tokens per chunk (a power of two), L latents, E value width
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from models.ops.decayed_chunks import decays_at_once
from models.ops.scan import scan

Carry = tuple[Tensor, Tensor, Tensor]


def forward(p: Tensor, theta: Tensor, v: Tensor, carry: Carry) -> tuple[Tensor, Carry, Carry]:
    """p, theta (K, B, H, C, L), v (K, B, H, C, E) -> output like v, carry after the tile, and one for `backward`.

    carry: largest logit m (B, H, L), sum of e^{theta - m} (B, H, L), sum of e^{theta - m} v (B, H, L, E). The one for
    `backward` has the sums before each chunk and after the last, (K + 1, B, H, ..).
    """
    f = _factors(theta, v, carry)
    gamma = p / f.alpha
    scores = (f.weigh(gamma) @ f.left.mT * f.pairs).sum(-3)
    o = (gamma * f.decay) @ f.state[:-1] + scores @ v
    return o, (f.largest, f.total[-1], f.state[-1]), (carry[0], f.total, f.state)


def backward(
    p: Tensor, theta: Tensor, v: Tensor, carry: Carry, do: Tensor, dtotal: Tensor, dstate: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of p, theta, v and the carry's sums, from those of the output and of the carry after the tile."""
    f = _factors(theta, v, carry)
    gamma = p / f.alpha
    da = (do @ v.mT)[..., None, :, :] * f.pairs  # gradient of the scores at each level (.., 1 + log2 C, C, C)
    dgamma = torch.addcmul((da @ f.left * f.right).sum(-3), do @ f.state[:-1].mT, f.decay)
    dp = dgamma / f.alpha
    dalpha = -gamma * dp

    # row k: gradient of the input of chunk k; row K: of the tile's output
    parts_of_state = (dalpha * f.decay).sum(-2), (gamma * f.decay).mT @ do
    dtotals, dstates = _accumulated(f.across, *parts_of_state, dtotal, dstate, reverse=True)

    weighed = f.weigh(gamma)
    dv = (weighed @ f.left.mT * f.pairs).sum(-3).mT @ do + f.last @ dstates[1:]
    dtheta = (v @ dstates[1:].mT + dtotals[1:, ..., None, :]) * f.last
    dleft = da.mT @ weighed + f.pairs.mT @ f.weigh(dalpha)
    dtheta += (dleft * f.left).sum(-3)
    return dp, dtheta, dv, dtotals[0], dstates[0]


@dataclass(frozen=True)
class _StableFactors:
    """Results of a tile that both passes use; all entries but alpha, total and state are in [0, 1]."""

    left: Tensor  # Kl at each level (K, B, H, 1 + log2 C, C, L)
    right: Tensor  # Pr at each level
    pairs: Tensor  # of tokens, at each level (1 + log2 C, C, C)
    last: Tensor  # e^{theta_t - m_(end of chunk)} (K, B, H, C, L)
    decay: Tensor  # e^{m_(end of the chunk before) - m_t} (K, B, H, C, L)
    across: Tensor  # decay across the whole chunk (K, B, H, L)
    alpha: Tensor  # sum_{s<=t} e^{theta_s - m_t} (K, B, H, C, L)
    total: Tensor  # sum of e^{theta - m} before each chunk and after the last (K + 1, B, H, L)
    state: Tensor  # the same sum times values (K + 1, B, H, L, E)
    largest: Tensor  # m after the tile (B, H, L)

    def weigh(self, x: Tensor) -> Tensor:
        """x (K, B, H, C, L) times Pr of each level."""
        return self.right * x[..., None, :, :]


def _factors(theta: Tensor, v: Tensor, carry: Carry) -> _StableFactors:
    largest, total, state = carry
    m = theta.cummax(-2).values
    tops = torch.cat([largest[None], m[..., -1, :]]).cummax(0).values
    before = tops[:-1, ..., None, :]  # (K, B, H, 1, L)
    m = torch.maximum(m, before)
    decay, last, ((right, left, pairs),) = decays_at_once(torch.cat([before, m[..., :-1, :]], -2) - m)
    key = (theta - m).exp_()  # e^{theta_t - m_t}
    left, last, across = left * key[..., None, :, :], last * key, decay[..., -1, :]
    inside = (pairs @ left * right).sum(-3)
    if total.ndim == largest.ndim:  # before the tile alone
        total, state = _accumulated(across, inside[..., -1, :], last.mT @ v, total, state)
    alpha = torch.addcmul(inside, decay, total[:-1, ..., None, :])
    return _StableFactors(left, right, pairs, last, decay, across, alpha, total, state, tops[-1])


def _accumulated(
    decay: Tensor, totals: Tensor, states: Tensor, total: Tensor, state: Tensor, *, reverse: bool = False
) -> tuple[Tensor, Tensor]:
    """y_k = x_k + decay_k y_{k-1} of totals (K, .., L) and states (K, .., L, E), from `total` and `state` before them:
    (K + 1, ..) with these first; in `reverse`, from y_{k+1}, with these last."""
    both, first = torch.cat([states, totals[..., None]], -1), torch.cat([state, total[..., None]], -1)
    out = both.new_empty(len(both) + 1, *first.shape)
    out[-1 if reverse else 0] = first
    later = (out[:-1] if reverse else out[1:]).transpose(0, 1)
    scan(decay[..., None].transpose(0, 1), both.transpose(0, 1), first, later, reverse=reverse)
    return out[..., -1], out[..., :-1]
