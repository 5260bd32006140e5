"""One tile of the running softmax for arbitrary logits: no exponent is positive, no denominator below 1.

Each token t is relative to m_t, the largest logit up to t. Inside a chunk, weights are products over pairs of blocks of
h = 1, 2, 4, .. tokens: for s in the left block b1 and t in the right block of a pair,

    e^{theta_s - m_t} = Kl_s Pr_t,   Kl_s = e^{theta_s - m_(end of b1)},   Pr_t = e^{m_(end of b1) - m_t},   both <= 1

Kl and Pr of one level are products of those of the level below, so two exponentials per token and latent suffice.
Underflowing terms are below 10^-37 of the sums that they belong to. Maxima are constants for gradients, because the
result does not depend on them. In few kernels all levels are computed at once, as in models/ops/decayed_chunks.py, with
the log decays m_(t-1) - m_t.

    K chunks per tile, B batch, H heads, C tokens per chunk (a power of two), L latents, E value width,
    G = C / 2h pairs of blocks
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from models.ops.decayed_chunks import corners, decays, halves
from models.ops.scan import scan
from models.ops.tiles import in_few_kernels

LOG2_E = math.log2(math.e)
Carry = tuple[Tensor, Tensor, Tensor]


def forward(p: Tensor, theta: Tensor, v: Tensor, carry: Carry) -> tuple[Tensor, Carry, Carry]:
    """p, theta (K, B, H, C, L), v (K, B, H, C, E) -> output like v, carry after the tile, and one for `backward`.

    carry: largest logit m (B, H, L), sum of e^{theta - m} (B, H, L), sum of e^{theta - m} v (B, H, L, E). The one for
    `backward` has, in few kernels, the sums before each chunk and after the last, (K + 1, B, H, ..).
    """
    f = _factors(theta, v, carry)
    gamma = torch.div(p, f.alpha, out=torch.empty_like(f.alpha))
    o = (gamma * f.decay) @ f.state[:-1]
    o += f.scores(gamma, f.weigh(gamma)) @ v
    return o, (f.largest, f.total[-1], f.state[-1]), (carry[0], f.total, f.state) if in_few_kernels(v) else carry


def backward(
    p: Tensor, theta: Tensor, v: Tensor, carry: Carry, do: Tensor, dtotal: Tensor, dstate: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of p, theta, v and the carry's sums, from those of the output and of the carry after the tile."""
    f = _factors(theta, v, carry)
    gamma = torch.div(p, f.alpha, out=torch.empty_like(f.alpha))
    da = do @ v.mT  # (K, B, H, C, C), gradient of the scores; only s <= t is used
    parts = f.parts(da)
    dgamma = f.add_to_queries((do @ f.state[:-1].mT).mul_(f.decay), parts)
    dp = dgamma.div_(f.alpha)
    dalpha = (gamma * dp).neg_()

    # row k: gradient of the input of chunk k; row K: of the tile's output
    parts_of_state = (dalpha * f.decay).sum(-2), (gamma * f.decay).mT @ do
    dtotals, dstates = _accumulated(f.across, *parts_of_state, dtotal, dstate, reverse=True)

    weighed = f.weigh(gamma)
    dv = f.scores(gamma, weighed).mT @ do
    dv += f.last @ dstates[1:]
    dtheta = (v @ dstates[1:].mT).add_(dtotals[1:, ..., None, :]).mul_(f.last)
    f.add_to_keys(dtheta, parts, gamma, dalpha, weighed)
    return dp, dtheta, dv, dtotals[0], dstates[0]


@dataclass(frozen=True)
class _StableFactors:
    """Results of a tile that both passes use; all entries but alpha, total and state are in [0, 1]."""

    levels: list[tuple[Tensor, Tensor]]  # for h = 1, 2, ..: Kl of left blocks, Pr of right blocks (K, B, H, G, h, L)
    key: Tensor  # e^{theta_t - m_t} (K, B, H, C, L)
    last: Tensor  # e^{theta_t - m_(end of chunk)} (K, B, H, C, L)
    decay: Tensor  # e^{m_(end of the chunk before) - m_t} (K, B, H, C, L)
    across: Tensor  # decay across the whole chunk (K, B, H, L)
    alpha: Tensor  # sum_{s<=t} e^{theta_s - m_t} (K, B, H, C, L)
    total: Tensor  # sum of e^{theta - m} before each chunk and after the last (K + 1, B, H, L)
    state: Tensor  # the same sum times values (K + 1, B, H, L, E)
    largest: Tensor  # m after the tile (B, H, L)

    def weigh(self, gamma: Tensor) -> list[Tensor]:
        """gamma Pr for the right blocks of each level, (K, B, H, G, h, L)."""
        return [right * halves(gamma, right.shape[-2])[1] for _, right in self.levels]

    def scores(self, gamma: Tensor, weighed: list[Tensor]) -> Tensor:
        """sum_l gamma_tl e^{theta_sl - m_tl} for s <= t in the same chunk, 0 elsewhere: (K, B, H, C, C)."""
        size = gamma.shape[-2]
        scores = gamma.new_zeros(*gamma.shape[:-1], size)
        scores.diagonal(dim1=-2, dim2=-1).copy_((gamma * self.key).sum(-1))
        for (left, _), weights in zip(self.levels, weighed, strict=True):
            corners(scores, left.shape[-2]).copy_(weights @ left.mT)
        return scores

    def parts(self, da: Tensor) -> list[Tensor]:
        """Entries of da (K, B, H, C, C) of each token with itself, (.., C, 1), and at each level, (.., G, h, h)."""
        blocks = [corners(da, left.shape[-2]).contiguous() for left, _ in self.levels]
        return [da.diagonal(dim1=-2, dim2=-1)[..., None], *blocks]

    def add_to_queries(self, dgamma: Tensor, parts: list[Tensor]) -> Tensor:
        """dgamma_tl += sum_s da_ts e^{theta_sl - m_tl} over the same chunk."""
        dgamma.addcmul_(self.key, parts[0])
        for (left, right), block in zip(self.levels, parts[1:], strict=True):
            halves(dgamma, left.shape[-2])[1].addcmul_(right, _product(block, left))
        return dgamma

    def add_to_keys(
        self, dtheta: Tensor, parts: list[Tensor], gamma: Tensor, dalpha: Tensor, weighed: list[Tensor]
    ) -> None:
        """dtheta_sl += sum_t e^{theta_sl - m_tl} (da_ts gamma_tl + dalpha_tl) over the same chunk."""
        dtheta.addcmul_(self.key, torch.addcmul(dalpha, gamma, parts[0]))
        for (left, right), block, weights in zip(self.levels, parts[1:], weighed, strict=True):
            half = left.shape[-2]
            dleft = _product(block.mT, weights)
            dleft += (right * halves(dalpha, half)[1]).sum(-2, keepdim=True)
            halves(dtheta, half)[0].addcmul_(left, dleft)


@dataclass(frozen=True)
class _FewKernels(_StableFactors):
    """All levels at once: one pair of Kl and Pr, (K, B, H, 1 + log2 C, C, L), of which `pairs` are used."""

    pairs: Tensor  # of tokens, at each level (1 + log2 C, C, C)

    def weigh(self, gamma: Tensor) -> list[Tensor]:
        return [self.levels[0][1] * gamma[..., None, :, :]]

    def scores(self, gamma: Tensor, weighed: list[Tensor]) -> Tensor:
        return (weighed[0] @ self.levels[0][0].mT * self.pairs).sum(-3)

    def parts(self, da: Tensor) -> list[Tensor]:
        return [da[..., None, :, :] * self.pairs]

    def add_to_queries(self, dgamma: Tensor, parts: list[Tensor]) -> Tensor:
        ((left, right),) = self.levels
        return dgamma + (parts[0] @ left * right).sum(-3)

    def add_to_keys(
        self, dtheta: Tensor, parts: list[Tensor], gamma: Tensor, dalpha: Tensor, weighed: list[Tensor]
    ) -> None:
        ((left, right),) = self.levels
        dleft = parts[0].mT @ weighed[0] + self.pairs.mT @ (right * dalpha[..., None, :, :])
        dtheta += (dleft * left).sum(-3)


def _factors(theta: Tensor, v: Tensor, carry: Carry) -> _StableFactors:
    largest, total, state = carry
    size = theta.shape[-2]
    if in_few_kernels(theta):
        return _in_few_kernels(theta, v, carry)

    m = theta.clone(memory_format=torch.contiguous_format)
    for half in _powers(size):
        left, right = halves(m, half)
        right.copy_(torch.maximum(right, left[..., -1:, :]))
    tops = torch.cat([largest[None], m[..., -1, :]]).cummax(0).values
    before = tops[:-1, ..., None, :]  # (K, B, H, 1, L)
    m = torch.maximum(m, before)

    key = exponential((theta - m).contiguous())
    decay = exponential(torch.cat([before, m[..., :-1, :]], -2).sub_(m))
    alpha, last, levels = key.clone(), key.clone(), []
    for half in _powers(size):
        left, right = halves(last, half)[0], halves(decay, half)[1]
        levels.append((left.clone(), right.clone()))
        sums_left, sums_right = halves(alpha, half)
        sums_right.addcmul_(right, sums_left[..., -1:, :])
        left *= right[..., -1:, :]
        right *= halves(decay, half)[0][..., -1:, :]

    across = decay[..., -1, :].contiguous()
    totals, states = _accumulated(across, alpha[..., -1, :], last.mT @ v, total, state)
    alpha.addcmul_(decay, totals[:-1, ..., None, :])
    return _StableFactors(levels, key, last, decay, across, alpha, totals, states, tops[-1])


def _in_few_kernels(theta: Tensor, v: Tensor, carry: Carry) -> _FewKernels:
    largest, total, state = carry
    m = theta.cummax(-2).values
    tops = torch.cat([largest[None], m[..., -1, :]]).cummax(0).values
    before = tops[:-1, ..., None, :]
    m = torch.maximum(m, before)
    decay, last, ((right, left, pairs),) = decays(torch.cat([before, m[..., :-1, :]], -2) - m)
    key = (theta - m).exp_()
    left, last, across = left * key[..., None, :, :], last * key, decay[..., -1, :]
    inside = (pairs @ left * right).sum(-3)
    if total.ndim == largest.ndim:  # before the tile alone
        total, state = _accumulated(across, inside[..., -1, :], last.mT @ v, total, state)
    alpha = torch.addcmul(inside, decay, total[:-1, ..., None, :])
    return _FewKernels([(left, right)], key, last, decay, across, alpha, total, state, tops[-1], pairs)


def _accumulated(
    decay: Tensor, totals: Tensor, states: Tensor, total: Tensor, state: Tensor, *, reverse: bool = False
) -> tuple[Tensor, Tensor]:
    """y_k = x_k + decay_k y_{k-1} of totals (K, .., L) and states (K, .., L, E), from `total` and `state` before them:
    (K + 1, ..) with these first; in `reverse`, from y_{k+1}, with these last."""
    if in_few_kernels(decay):
        both, first = torch.cat([states, totals[..., None]], -1), torch.cat([state, total[..., None]], -1)
        out = both.new_empty(len(both) + 1, *first.shape)
        out[-1 if reverse else 0] = first
        later = (out[:-1] if reverse else out[1:]).transpose(0, 1)
        scan(decay[..., None].transpose(0, 1), both.transpose(0, 1), first, later, reverse=reverse)
        return out[..., -1], out[..., :-1]
    parts = (torch.ones_like(total), decay), (total, totals), (state, states)
    decay, totals, states = (torch.cat([y, x[None]] if reverse else [x[None], y]) for x, y in parts)
    for now, other in neighbours(len(decay), reverse=reverse):
        totals[now].addcmul_(decay[now], totals[other])
        states[now].addcmul_(decay[now][..., None], states[other])
        decay[now].mul_(decay[other])
    return totals, states


def exponential(x: Tensor) -> Tensor:
    """e^x in place, through 2^x, which takes half the time."""
    return x.mul_(LOG2_E).exp2_()


def neighbours(length: int, *, reverse: bool = False) -> Iterator[tuple[slice, slice]]:
    """The few wide steps of a scan over `length` entries: (entries, their neighbours before or, in `reverse`, after).

    Applying x[entries] += x[neighbours] step by step turns x into its running sums. All blocks of 8 come first at once,
    then block after block, whose only neighbour is the end of the previous block.
    """
    block = 8

    def places(start: int, count: int, step: int) -> slice:
        if reverse:
            start = length - 1 - (start + (count - 1) * step)
        return slice(start, start + (count - 1) * step + 1, step)

    for i in range(1, min(block, length)):
        count = len(range(i, length, block))
        yield places(i, count, block), places(i - 1, count, block)
    for start in range(block, length, block):
        yield places(start, min(block, length - start), 1), places(start - 1, 1, 1)


def _powers(size: int) -> list[int]:
    """1, 2, 4, .., size / 2: tokens per block at each level of a chunk."""
    return [1 << level for level in range(size.bit_length() - 1)]


def _product(block: Tensor, x: Tensor) -> Tensor:
    """block (.., h, h) @ x (.., h, L); matrix products of tiny blocks are five times slower on a CPU."""
    if block.shape[-1] > 2:
        return block @ x
    return (block[..., None] * x[..., None, :, :]).sum(-2)
