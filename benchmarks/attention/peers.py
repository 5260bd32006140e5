"""Forms of causal Latte and causal Luna that the goals compare with those of `models.ops`.

    o_t = sum_l p_tl sum_{s<=t} e^{theta_sl} v_s / alpha_tl,   alpha_tl = sum_{s<=t} e^{theta_sl}

Latte has three forms (Dolga et al., 2024, arXiv 2402.17512): the paper's own, a scan over tokens in JAX; the same
recurrence as a Python loop in PyTorch; all running sums at once. A layer consists of the three projections, softmax and
core of Listing 1, without an output projection: `latte_layer` builds it around any PyTorch core, `running_softmax`
included, as the JAX form has it.

    B batch, H heads, N length, D width, L latents per head, E = D / H values per head
"""

import multiprocessing
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch import Tensor

from models.attention.base import merge_heads, split_heads
from models.ops.packed_prefix import Activation


def latte_layer(core: Callable[..., Tensor], heads: int, x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor) -> Tensor:
    """The layer in PyTorch around `core(weights, logits, v)`: shapes as in `jax_latte_layer`."""
    q, theta, v = (split_heads(x @ w, w.shape[1] // heads) for w in (w_q, w_k, w_v))
    return merge_heads(core(q.softmax(-1), theta, v))


def layer_leaves(batch: int, length: int, dim: int, latents: int) -> list[Tensor]:
    """x (B, N, D), w_q and w_k (D, H L), w_v (D, D) of `latte_layer`, drawn from seed 0."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(batch, length, dim, generator=generator)
    return [x, *(torch.randn(dim, width, generator=generator) * dim**-0.5 for width in (latents, latents, dim))]


def latte_loop(weights: Tensor, logits: Tensor, v: Tensor) -> Tensor:
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


def latte_materialised(weights: Tensor, logits: Tensor, v: Tensor) -> Tensor:
    """All running sums at once: weights and logits (B, H, N, L), v (B, H, N, E) -> (B, H, N, E).

    B H N L E numbers. Exponentials refer to the largest logit of the whole sequence, so that sums of logits which lie
    more than about 80 below it vanish.
    """
    shares = (logits - logits.detach().amax(2, keepdim=True)).exp()
    states = (shares[..., None] * v[..., None, :]).cumsum(2)  # (B, H, N, L, E)
    return ((weights / shares.cumsum(2))[..., None, :] @ states)[..., 0, :]


def luna_loop(q: Tensor, memory: Tensor, pack_k: Tensor, pack_q: Tensor, *, activation: Activation) -> Tensor:
    """Causal Luna token by token, as `packed_prefix` without masks and dropout: one state, updated N times.

    `unbind` and a single `cat` keep the backward pass linear in N.
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


def jax_latte_layer(heads: int, unroll: int = 1) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The layer in JAX, (forward, gradient), both jitted; only this function imports JAX.

    forward(x, w_q, w_k, w_v) -> (B, N, D) of x (B, N, D), w_q and w_k (D, H L), w_v (D, D), as in x @ w;
    gradient(cotangent, x, w_q, w_k, w_v) -> gradients of sum(cotangent * forward(..)) by the last four. The carry of
    the scan is the running maximum, sum and state, so no logits overflow; the compiled loop takes `unroll` steps at
    once.
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
        zeros = jnp.zeros(theta.shape[1:], x.dtype)
        start = (zeros - jnp.inf, zeros, jnp.zeros((*zeros.shape, v.shape[-1]), x.dtype))
        _, out = jax.lax.scan(step, start, (jax.nn.softmax(q), theta, v), unroll=unroll)
        return out.swapaxes(0, 1).reshape(batch, length, width)

    def projected(parameters, cotangent):
        return (forward(*parameters) * cotangent).sum()

    gradient = jax.jit(jax.grad(projected))
    return jax.jit(forward), lambda cotangent, *parameters: gradient(parameters, cotangent)


class JaxLatte:
    """The layer in JAX, in a separate process, because its threads and torch's disturb each other.

    `call` runs the scan once in that process; the inputs are sent only once. Raises ImportError without jax.
    """

    def __init__(self, unroll: int, heads: int, leaves: Sequence[Tensor], *, gradients: bool):
        import jax  # noqa: F401  (a missing package is an error here, not in the other process)

        self.unroll = unroll
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        arrays = [leaf.numpy() for leaf in leaves]
        self.process = context.Process(target=serve_jax, args=(theirs, unroll, heads, arrays, gradients), daemon=True)
        self.process.start()
        self.pid = self.process.pid

    def call(self) -> None:
        self.pipe.send(True)
        self.pipe.recv()

    def close(self) -> None:
        self.pipe.send(False)
        self.process.join(10)


def serve_jax(pipe: Connection, unroll: int, heads: int, arrays: Sequence, gradients: bool) -> None:
    import jax

    forward, gradient = jax_latte_layer(heads, unroll=unroll)
    inputs = [jax.numpy.asarray(array) for array in arrays]
    cotangent = jax.numpy.ones(arrays[0].shape, arrays[0].dtype)
    while pipe.recv():
        jax.block_until_ready(gradient(cotangent, *inputs) if gradients else forward(*inputs))
        pipe.send(None)
