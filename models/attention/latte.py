"""Latte: attention through latent states, and its combinations (Dolga et al., 2024, arXiv 2402.17512).

Per head, with l latent states, logits W_q y_t and W_k y_s of l numbers each, and values v_s = W_v x_s:

    p(l|t) = softmax_l (W_q y_t)_l
    noncausal:  o_t = sum_l p(l|t) sum_s p(s|l) v_s,          p(s|l)   = softmax over all s of (W_k y_s)_l        (5, 6)
    causal:     o_t = sum_l p(l|t) sum_{s<=t} p(s|l,t) v_s,   p(s|l,t) = softmax over s <= t of (W_k y_s)_l       (8)
    VAPOR:      v_s is rotated by R^-s before the sum, o_t by R^t after it                                         (22)
    Macchiato:  one more state, l = 0: sliding-window attention with separate W_q', W_k' to the same values    (13, 16)
    y = x, or a convolution of 3 taps (17), or RMSNorm(RG-LRU(x)) (§2.4)

Time O(N L E + N w D), memory O(N (L + D)). Decoding state: L + L E numbers, plus those of a window, taps or RG-LRU.

    B batch, N length, D width, H heads, E head width, L latent states over all heads, l per head
"""

import math
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.attention.base import Attention, Pattern, State
from models.layers.convolution import ShortConvolution
from models.layers.rglru import NormalisedRGLRU
from models.layers.sliding_window import SlidingWindow, lecun_linear
from models.ops.dropout import drop
from models.ops.heads import merge_heads, split_heads
from models.ops.positions import apply_rope, rope_frequencies
from models.ops.precision import autocast_disabled, upcast
from models.ops.running_softmax import empty_running_softmax, running_softmax, running_softmax_chunk


def latte(
    weights: Tensor, logits: Tensor, v: Tensor, *, causal: bool, key_padding_mask: Tensor | None = None
) -> Tensor:
    """p(l|t) and key logits (B, H, N, l), v (B, H, N, E), mask (B, N) True at padding -> (B, H, N, E)."""
    if causal:
        return running_softmax(weights, logits, v, key_padding_mask=key_padding_mask)
    with autocast_disabled(v):
        logits = upcast(logits)
        if key_padding_mask is None:
            shares = logits.softmax(2)
        else:
            hidden = key_padding_mask[:, None, :, None]
            # finite, so that an all-padding sequence does not divide 0 by 0; the second fill sets it to zero
            shares = logits.masked_fill(hidden, torch.finfo(logits.dtype).min).softmax(2).masked_fill(hidden, 0.0)
        return (upcast(weights) @ (shares.mT @ upcast(v))).to(v.dtype)


class Latte(Attention):
    """Multi-head Latte: 2 D L + 2 D^2 parameters.

    Additional parameters: `conv` taps D; `rglru` 2 D^2/H + 4 D, noncausal 4 D^2/H + 7 D; `window` 2 D^2 + D H;
    `learn_rotation`, which acts only with `vapor`, E/2.

    Our readings: L is the total over heads. Logits are not scaled, linear layers have no bias, and weights are
    LeCun-normal (published code). R has RoPE's frequencies, fixed, or learned from there, one set for all heads; the
    window's values are not rotated (D-6). There are 3 taps, not 4, centred in the noncausal form (D-7). The window
    holds w keys, or |i - j| <= w / 2 (D-8, D-10); its W_q', W_k' read x, as when a pretrained model is extended (§4.5).
    The RG-LRU has no Griffin branch; the noncausal form sums two of them (D-9, D-10). Dropout acts on the window's
    weights and, in the causal form only, on p(l|t) (D-39). With `rope=False` the window has no rotations, for recipes
    with absolute positions (X68).

    Raises ValueError if the latents are not a multiple of the heads, for `conv` with `rglru`, `rope=False` without a
    window, a window or taps below 1, and an odd head width if anything is rotated.
    """

    patterns: ClassVar[frozenset[Pattern]] = frozenset({Pattern.NONCAUSAL_SELF, Pattern.CAUSAL_SELF})

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        latents: int = 128,
        vapor: bool = True,
        learn_rotation: bool | None = False,
        conv: int | None = None,
        rglru: bool = False,
        window: int | None = None,
        rope: bool = True,
        **options: Any,
    ):
        super().__init__(dim, heads, **options)
        if latents < heads or latents % heads:
            raise ValueError(f"Latte's {latents} latents are not a multiple of {heads} heads")
        if conv is not None and rglru:
            raise ValueError("Latte's logits read either a convolution or an RG-LRU: set conv=null or rglru=false")
        if window is None and not rope:
            raise ValueError("rope=false requires a window: set window=")
        causal = self.pattern.causal
        self.has_weights = causal or window is not None
        self.latents = latents // heads  # l
        self.states = self.latents + (window is not None)
        self.q_proj, self.k_proj = lecun_linear(dim, self.states * heads), lecun_linear(dim, latents)
        self.v_proj, self.out_proj = lecun_linear(dim, dim), lecun_linear(dim, dim)
        self.vapor = vapor
        frequencies = rope_frequencies(self.head_dim).float() if vapor else None
        self.frequencies = nn.Parameter(frequencies) if learn_rotation and vapor else None
        self.features = None
        if conv is not None:
            self.features = ShortConvolution(dim, conv, causal=causal)
        if rglru:
            self.features = NormalisedRGLRU(dim, heads, causal=causal)
        self.local = None if window is None else SlidingWindow(dim, heads, window, causal=causal, rope=rope)
        self.value_dim, self.window_logit = self.head_dim, None

    def extend(self, head_dim: int, share: float) -> int | None:
        """Add H parameters: a bias of the window's logit, so that training starts near the trained model.

        The paper does not give the initial values of the new weights.
        """
        if self.local is None:
            return super().extend(head_dim, share)
        window = self.local.window
        self.local = self.v_proj = self.out_proj = None
        self.value_dim = head_dim
        if self.frequencies is not None:
            self.frequencies = nn.Parameter(rope_frequencies(head_dim).float())
        start = math.log(self.latents * share / (1 - share))  # with otherwise equal logits this bias gives `share`
        self.window_logit = nn.Parameter(torch.full((self.heads,), start))
        return window

    def rotate(self, x: Tensor, first: int, *, inverse: bool = False) -> Tensor:
        """R^t x_t, or with `inverse` R^-t x_t, of x (B, H, N, E) at the positions from `first` on."""
        if not self.vapor:
            return x
        positions = torch.arange(first, first + x.shape[2], device=x.device)
        frequencies = None if self.frequencies is None else self.frequencies.double()
        return apply_rope(x, positions, frequencies, inverse=inverse)

    def mixture(self, y: Tensor) -> Tensor:
        """p(l|t) of y (B, N, D): (B, H, N, l), or (B, H, N, 1 + l) with the window's state first.

        The causal form applies dropout to it in training (D-39).
        """
        logits = upcast(split_heads(self.q_proj(y), self.states))
        if self.window_logit is not None:
            logits = logits + F.pad(self.window_logit[:, None, None], (0, self.latents))
        weights = logits.softmax(-1)
        return drop(weights, self.active_dropout) if self.pattern.causal else weights

    def latent_probabilities(self, x: Tensor) -> Tensor:
        """As `mixture`, for the layer's input (B, N, D)."""
        return self.mixture(x if self.features is None else self.features(x))

    def forward(
        self, x: Tensor, context: Tensor | None = None, *, key_padding_mask: Tensor | None = None, carry: Any = None
    ) -> tuple[Tensor, Any]:
        x = self.source(x, context)
        y = x if self.features is None else self.features(x, key_padding_mask=key_padding_mask)
        weights = self.mixture(y)
        logits = split_heads(self.k_proj(y), self.latents)
        v = split_heads(self.v_proj(x), self.head_dim)
        near = None
        if self.local is not None:
            near = self.local(x, v, key_padding_mask=key_padding_mask, dropout=self.active_dropout)
        mixed = self.combine(weights, logits, v, near, key_padding_mask)
        return self.out_proj(merge_heads(mixed)), carry

    def combine(
        self, weights: Tensor, logits: Tensor, v: Tensor, near: Tensor | None, key_padding_mask: Tensor | None = None
    ) -> Tensor:
        """The mean by p(l|t), window first: key logits (B, H, N, l), v and the window's output `near` (B, H, N, E)."""
        mixed = latte(
            weights[..., -self.latents :],
            logits,
            self.rotate(v, 0, inverse=True),
            causal=self.pattern.causal,
            key_padding_mask=key_padding_mask,
        )
        mixed = self.rotate(mixed, 0)
        return mixed if near is None else mixed + weights[..., :1].to(near.dtype) * near

    def mix(self, x: Tensor, v: Tensor, near: Tensor) -> Tensor:
        y = x if self.features is None else self.features(x)
        return self.combine(self.mixture(y), split_heads(self.k_proj(y), self.latents), v, near)

    def mix_chunk(self, x: Tensor, v: Tensor, near: Tensor, state: State) -> tuple[Tensor, State]:
        y, state = self.read_features(x, state)
        return self.combine_chunk(self.mixture(y), split_heads(self.k_proj(y), self.latents), v, near, state)

    def read_features(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """The input of the logits for the next n tokens x (B, n, D)."""
        if self.features is None:
            return x, state
        y, features = self.features.chunk(x, state["features"])
        return y, {**state, "features": features}

    def combine_chunk(
        self, weights: Tensor, logits: Tensor, v: Tensor, near: Tensor | None, state: State
    ) -> tuple[Tensor, State]:
        """As `combine`, for the next n tokens."""
        seen = state["seen"]
        rotated = self.rotate(v, seen, inverse=True)
        mixed, latents = running_softmax_chunk(weights[..., -self.latents :], logits, rotated, state["latents"])
        mixed = self.rotate(mixed, seen)
        if near is not None:
            mixed = mixed + weights[..., :1].to(near.dtype) * near
        return mixed, {**state, "latents": latents, "seen": seen + v.shape[2]}

    def empty_state(self, batch: int) -> State:
        """Sums and means of the latents, and the states of the convolution or RG-LRU and of the window."""
        return {
            "latents": empty_running_softmax(batch, self.heads, self.latents, self.value_dim, self.q_proj.weight),
            "features": None if self.features is None else self.features.empty_state(batch),
            "local": None if self.local is None else self.local.empty_state(batch),
            "seen": 0,
        }

    def chunk(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        y, state = self.read_features(x, state)
        weights = self.mixture(y)  # (B, H, n, l or 1 + l)
        logits = split_heads(self.k_proj(y), self.latents)
        v = split_heads(self.v_proj(x), self.head_dim)  # (B, H, n, E)
        near, local = None, state["local"]
        if self.local is not None:
            near, local = self.local.chunk(x, v, local)
        mixed, state = self.combine_chunk(weights, logits, v, near, {**state, "local": local})
        return self.out_proj(merge_heads(mixed)), state
