"""Peers of the Latte benchmarks: other ways to compute causal Latte than `models.ops.running_softmax`.

    o_t = sum_l p_tl sum_{s<=t} e^{theta_sl} v_s / alpha_tl,   alpha_tl = sum_{s<=t} e^{theta_sl}

Three forms (Dolga et al., 2024, arXiv 2402.17512): the paper's own, a scan over tokens in JAX; the same recurrence as a
Python loop in PyTorch; all running sums at once. A layer is the three projections, softmax and core of Listing 1, with
no projection of the output: `layer` puts any PyTorch core, `running_softmax` too, into the layer that the JAX form is.

    B batch, H heads, N length, D width, L latents of one head, E = D / H values of one head
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from models.attention.base import merge_heads, split_heads


def jax_scan_layer(heads: int, unroll: int = 1) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The layer in JAX, (forward, gradient), both jitted; only this function imports JAX.

    forward(x, w_q, w_k, w_v) -> (B, N, D) of x (B, N, D), w_q and w_k (D, H L), w_v (D, D), as in x @ w;
    gradient(cotangent, x, w_q, w_k, w_v) -> gradients of sum(cotangent * forward(..)) by the last four. The carry of
    the scan is the running maximum, sum and state, so no logits overflow; `unroll` steps make one of the compiled loop.
    """
    import jax
    import jax.numpy as jnp

    def step(carry, token):
        largest, total, state = carry  # (B, H, L), (B, H, L), (B, H, L, E)
        p, theta, v = token
        top = jnp.maximum(largest, theta)
        keep, new = jnp.exp(largest - top), jnp.exp(theta - top)
        total = keep * total + new
        state = keep[..., None] * state + new[..., None] * v[..., None, :]
        return (top, total, state), jnp.einsum("bhl,bhle->bhe", p / total, state)

    def forward(x, w_q, w_k, w_v):
        batch, length, width = x.shape
        # tokens first, as lax.scan wants it: (N, B, H, F)
        q, theta, v = ((x @ w).reshape(batch, length, heads, -1).swapaxes(0, 1) for w in (w_q, w_k, w_v))
        nothing = jnp.zeros(theta.shape[1:], x.dtype)
        start = (nothing - jnp.inf, nothing, jnp.zeros((*nothing.shape, v.shape[-1]), x.dtype))
        _, out = jax.lax.scan(step, start, (jax.nn.softmax(q), theta, v), unroll=unroll)
        return out.swapaxes(0, 1).reshape(batch, length, width)

    def projected(parameters, cotangent):
        return (forward(*parameters) * cotangent).sum()

    gradient = jax.jit(jax.grad(projected))
    return jax.jit(forward), lambda cotangent, *parameters: gradient(parameters, cotangent)


def loop(weights: Tensor, logits: Tensor, v: Tensor) -> Tensor:
    """The recurrence token by token: weights and logits (B, H, N, L), v (B, H, N, E) -> (B, H, N, E), for any logits.

    Tokens come from `unbind`, since the backward of indexing costs as much as the whole sequence at every token.
    """
    largest = torch.full_like(logits[:, :, 0], -torch.inf)
    total = torch.zeros_like(largest)
    state = v.new_zeros(*largest.shape, v.shape[-1])
    outputs = []
    for p, theta, value in zip(weights.unbind(2), logits.unbind(2), v.unbind(2), strict=True):
        top = torch.maximum(largest, theta.detach())
        keep, new = (largest - top).exp(), (theta - top).exp()
        total = keep * total + new
        state = keep[..., None] * state + new[..., None] * value[:, :, None]
        outputs.append(((p / total)[:, :, None] @ state)[:, :, 0])
        largest = top
    return torch.stack(outputs, 2)


def materialised(weights: Tensor, logits: Tensor, v: Tensor) -> Tensor:
    """All running sums at once: weights and logits (B, H, N, L), v (B, H, N, E) -> (B, H, N, E).

    B H N L E numbers. Exponentials refer to the largest logit of the whole sequence, so that sums of logits which lie
    more than about 80 below it vanish.
    """
    shares = (logits - logits.detach().amax(2, keepdim=True)).exp()
    states = (shares[..., None] * v[..., None, :]).cumsum(2)  # (B, H, N, L, E)
    return ((weights / shares.cumsum(2))[..., None, :] @ states)[..., 0, :]


def layer(core: Callable[..., Tensor], heads: int, x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor) -> Tensor:
    """The layer in PyTorch around `core(weights, logits, v)`: shapes as in `jax_scan_layer`."""
    q, theta, v = (split_heads(x @ w, w.shape[1] // heads) for w in (w_q, w_k, w_v))
    return merge_heads(core(q.softmax(-1), theta, v))
