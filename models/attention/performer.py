"""Performer: softmax by positive orthogonal random features, FAVOR+ (Choromanski et al., 2021, arXiv 2009.14794).

    phi(x) = m^-1/2 ( exp( W x E^-1/4 - |x|^2 E^-1/2 / 2 - c ) + eps )                            (Lemma 1, §2.4)
    o_i = phi(q_i)' S / max( phi(q_i)' z, floor ),   S = sum_j phi(k_j) v_j',  z = sum_j phi(k_j)

c keeps exp in range: it is the maximum of W x E^-1/4, for queries over features, for keys over features and positions.
The latter sees the future, so there is no causal self form (D-27). In the cross patterns every query sees the context.
Factors that do not depend on the feature are not applied to all m features: e^-|k|^2.. multiplies the values, and c and
eps enter through sums. c has a gradient through the single largest product.
Time O(N m D), memory O(N H m) with this kernel and O(N D) with the ReLU. Float32 or float64.

    B batch, N query length, M key length, H heads, E head width, m features
"""

import math
from functools import partial
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from models.attention.base import MultiHead, Pattern, State, check_choice
from models.ops.kernel_attention import kernel_sums, normalise, read_sums, segmented_kernel_attention, with_ones
from models.ops.precision import autocast_disabled, upcast

EPSILON, RELU_EPSILON = 1e-4, 1e-3
FLOOR, CAB_FLOOR = 1e-6, 0.1


def performer(
    q: Tensor, k: Tensor, v: Tensor, directions: Tensor, *, key_padding_mask: Tensor | None = None, floor: float = FLOOR
) -> Tensor:
    """q (B, H, N, E), k and v (B, H, M, E), directions (H, m, E), mask (B, M) True at padding -> (B, H, N, E)."""
    sums = feature_sums(k, v, directions, key_padding_mask=key_padding_mask)
    return read_feature_sums(q, directions, sums, floor=floor).to(v.dtype)


def feature_sums(k: Tensor, v: Tensor, directions: Tensor, *, key_padding_mask: Tensor | None = None) -> Tensor:
    """m^1/2 [S z] of k and v (B, H, M, E) along directions (H, m, E), mask (B, M) True at padding: (B, H, m, E + 1)."""
    with autocast_disabled(k):
        k, directions, values = upcast(k), scaled_directions(k, directions), with_ones(v)
        along = k @ directions.mT  # (B, H, M, m)
        if key_padding_mask is not None:
            hidden = key_padding_mask[:, None, :, None]
            along, values = along.masked_fill(hidden, torch.finfo(along.dtype).min), values.masked_fill(hidden, 0.0)
        highest, index = along.detach().flatten(2).max(-1)  # (B, H)
        token = index // along.shape[-1]
        key = k.gather(2, token[..., None, None].expand(-1, -1, 1, k.shape[-1]))[:, :, 0]  # (B, H, E)
        c = (key * picked(directions, index % along.shape[-1])).sum(-1)[..., None, None]  # (B, H, 1, 1)
        exp = along.sub_(highest[..., None, None]).exp_()
        return c.detach().sub(c).exp() * (exp.mT @ (values * (-scaled_half_norm(k)).exp())) + EPSILON * values.sum(
            2, keepdim=True
        )


def read_feature_sums(q: Tensor, directions: Tensor, sums: Tensor, *, floor: float) -> Tensor:
    """What queries q (B, H, N, E) read from `feature_sums`: (B, H, N, E)."""
    with autocast_disabled(q):
        q, directions = upcast(q), scaled_directions(q, directions)
        along = q @ directions.mT  # (B, H, N, m)
        highest, index = along.detach().max(-1, keepdim=True)
        half = scaled_half_norm(q)
        c = (q * picked(directions, index[..., 0])).sum(-1, keepdim=True) + half  # (B, H, N, 1), c + |q|^2 E^-1/2 / 2
        exp = along.sub_(highest + half.detach()).exp_()
        y = torch.addcmul(EPSILON * sums.sum(2, keepdim=True), c.detach().sub(c).exp(), exp @ sums)
        return normalise(y, 0.0, floor * directions.shape[1])


def scaled_directions(x: Tensor, directions: Tensor) -> Tensor:
    """W E^-1/4, in the type of x (.., E), at least float32."""
    return upcast(directions).to(upcast(x).dtype) * x.shape[-1] ** -0.25


def scaled_half_norm(x: Tensor) -> Tensor:
    """|x|^2 E^-1/2 / 2 of x (.., E): (.., 1)."""
    return x.square().sum(-1, keepdim=True) * (x.shape[-1] ** -0.5 / 2)


def picked(directions: Tensor, index: Tensor) -> Tensor:
    """The directions (H, m, E) at `index` (B, H, ..): (B, H, .., E)."""
    heads = torch.arange(len(directions), device=index.device).view(-1, *[1] * (index.ndim - 2))
    return directions[heads, index]


def relu_features(x: Tensor, directions: Tensor | None) -> Tensor:
    """The ReLU kernel's phi of x (B, H, N, E), along directions (H, m, E) or the channels: (B, H, N, m)."""
    return F.relu(upcast(x) if directions is None else upcast(x) @ upcast(directions).mT) + RELU_EPSILON


def generalised(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    directions: Tensor | None,
    *,
    key_padding_mask: Tensor | None = None,
    floor: float = FLOOR,
) -> Tensor:
    """As `performer`, with the ReLU kernel, along directions (H, m, E) or along the m = E channels."""
    count = q.shape[-1] if directions is None else directions.shape[1]
    phi = partial(relu_features, directions=directions)
    return segmented_kernel_attention(q, k, v, phi, count, causal=False, key_padding_mask=key_padding_mask, floor=floor)


KERNELS = {"exp": performer, "relu": generalised}


def orthogonal_features(heads: int, features: int, head_dim: int) -> Tensor:
    """(heads, features, head_dim): Gaussian rows, orthogonal within blocks of head_dim rows."""
    blocks = math.ceil(features / head_dim)
    rotations = torch.linalg.qr(torch.randn(heads, blocks, head_dim, head_dim))[0].mT  # rows orthonormal
    norms = torch.randn(heads, features, head_dim).norm(dim=-1, keepdim=True)  # chi, head_dim degrees of freedom
    return rotations.flatten(1, 2)[:, :features] * norms


class Performer(MultiHead):
    """Multi-head FAVOR+ attention.

    W has orthogonal rows in blocks of E with the norms of Gaussian vectors, one matrix per head, drawn once and saved
    with the weights. CAB draws new, non-orthogonal features at every training step, which is not reproduced. eps =
    1e-4. floor is 1e-6, as in Google's code; `cab_compat` takes CAB's 0.1, which biases rows with a small sum (D-20).
    Padding is excluded from the maximum and from the sums; CAB's code includes it in the maximum, LRA's in both (D-20).
    No attention weights are formed, so dropout has no effect.

    `skyformer_compat` is the Performer of Skyformer's code and hence of LAVO Table 11 (D-42): queries and keys arrive
    scaled by E^-1/4 and are scaled again, so the kernel is exp(q'k / E); padded keys and values are zero but count in c
    and z; there is no floor. Two properties of that code are not reproduced: its c for keys is one maximum for the
    whole batch, so that examples affect each other, and its W is one matrix for all heads.

    `kernel="relu"` is generalised attention (§2.2), LRA's Performer on all tasks but ListOps: phi(x) = ReLU(W x) +
    1e-3, without c and unscaled, or ReLU(x) + 1e-3 with `features=None`. LRA ran the latter: it does not draw its 256
    features when they are "deterministic", its default.

    Raises ValueError for an unknown kernel, fewer than one feature, no features with the exponential kernel, and
    `skyformer_compat` with the ReLU kernel.
    """

    patterns: ClassVar[frozenset[Pattern]] = frozenset(Pattern) - {Pattern.CAUSAL_SELF}
    has_weights: ClassVar[bool] = False

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        features: int | None = 64,
        cab_compat: bool = False,
        skyformer_compat: bool = False,
        kernel: str = "exp",
        **options: Any,
    ):
        super().__init__(dim, heads, **options)
        check_choice("Performer's kernel", kernel, KERNELS)
        if features is None and kernel == "exp":
            raise ValueError("Performer draws features for kernel exp: set features, or kernel=relu")
        self.check_sizes(features=features)
        if skyformer_compat and kernel != "exp":
            raise ValueError(f"Performer's skyformer_compat is for kernel exp, not {kernel}")
        self.mix = KERNELS[kernel]
        self.skyformer_compat = skyformer_compat
        self.floor = CAB_FLOOR if cab_compat else 0.0 if skyformer_compat else FLOOR
        directions = None if features is None else orthogonal_features(heads, features, self.head_dim)
        self.register_buffer("directions", directions)  # (H, m, E)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        k, v, key_padding_mask = self.visible(k, v, key_padding_mask)
        return self.mix(self.scaled(q), k, v, self.directions, key_padding_mask=key_padding_mask, floor=self.floor)

    def scaled(self, x: Tensor) -> Tensor:
        """Queries or keys as the kernel receives them."""
        return x * self.head_dim**-0.25 if self.skyformer_compat else x

    def visible(self, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        """Keys and values as the kernel receives them, and the mask of those that are hidden."""
        if not self.skyformer_compat or key_padding_mask is None:
            return self.scaled(k), v, key_padding_mask
        padded = key_padding_mask[:, None, :, None]
        return self.scaled(k.masked_fill(padded, 0.0)), v.masked_fill(padded, 0.0), None

    def keep_context(self, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> State:
        k, v, key_padding_mask = self.visible(k, v, key_padding_mask)
        if self.mix is performer:
            return {"sums": feature_sums(k, v, self.directions, key_padding_mask=key_padding_mask)}
        with autocast_disabled(k):
            return {"sums": kernel_sums(relu_features(k, self.directions), v, key_padding_mask)}

    def attend_context(self, q: Tensor, state: State) -> Tensor:
        if self.mix is performer:
            return read_feature_sums(self.scaled(q), self.directions, state["sums"], floor=self.floor).to(q.dtype)
        with autocast_disabled(q):
            return read_sums(relu_features(q, self.directions), state["sums"], floor=self.floor).to(q.dtype)
