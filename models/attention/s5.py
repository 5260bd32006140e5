"""S5: one diagonal state-space model shared by all channels (Smith et al., 2023, arXiv 2208.04933).

    h_t = e^{dt L} h_{t-1} + L^-1 (e^{dt L} - 1) B x_t,   y_t = 2 Re C h_t + d * x_t               (zero-order hold)
    o   = g * sigmoid(W g)  or  y * sigmoid(W g),   g = GELU(y)                     (the layer's half of a gated unit)

L (P eigenvalues), B and C are complex; L consists of conjugate pairs, of which one member each is kept. Time O(N P D),
memory O(N (P + D)), decoding state P / 2 complex numbers. There are no heads: `heads` is accepted but has no effect. No
attention weights are formed, so dropout has no effect.

    B batch, N length, D width, P state size, p modes kept, R eigenvalues of a block
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.attention.base import Pattern, Recurrent, State, check_choice
from models.layers.initialisers import log_steps
from models.ops.precision import autocast_disabled, upcast
from models.ops.scan import diagonal_scan

LARGEST_REAL = -1e-4
GATES = ("half_glu1", "half_glu2", "none")


def hippo_normal(size: int) -> tuple[Tensor, Tensor]:
    """Eigenvalues (R,), imaginary parts ascending, and eigenvectors (R, R), in columns, of HiPPO-N; complex128.

    HiPPO-N is -1/2 on the diagonal and plus above it, minus below, sqrt((2i + 1) (2j + 1)) / 2.
    """
    root = (2 * torch.arange(size, dtype=torch.float64) + 1).sqrt()
    outer = root[:, None] * root / 2
    imaginary, vectors = torch.linalg.eigh(-1j * (outer.triu(1) - outer.tril(-1)))
    return torch.complex(torch.full_like(imaginary, -0.5), imaginary), vectors


class S5(Recurrent):
    """p (3 + 2 D) + 2 p D K + D parameters with K = 1 matrix C, 2 if not causal, plus D^2 + D with the gate.

    Initial values: dt, one per mode, log-uniform in [0.001, 0.1]; L the eigenvalues of HiPPO-N, the normal part of the
    HiPPO-LegS matrix, in `blocks` blocks; B and C random real and complex matrices in the basis of its eigenvectors; d
    from N(0, 1). With `conj_sym` off all P eigenvalues are kept and y is the real part, as in the s5-pytorch package.
    Real parts of L are at most -0.0001, the published code's clip_eigs; otherwise a mode could grow without bound
    (D-31).

    In the noncausal pattern a second C reads the states of the backward recurrence, including that of the token itself.
    `gate` is half_glu1 or half_glu2, the published names of the two units, or none: o = y. In the published training
    the parameters in `slow` have a small learning rate and no weight decay; `slow_lr` sets that rate. The published
    layer's batch normalisation and its dropout of whole channels are left to the backbone, which drops entries of o.
    Padding counts as zero and is expected on the right.

    Raises ValueError unless the state divides into `blocks` of equal size, which is even with `conj_sym`, and for an
    unknown `gate` or name in `slow`.
    """

    patterns: ClassVar[frozenset[Pattern]] = frozenset({Pattern.NONCAUSAL_SELF, Pattern.CAUSAL_SELF})

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        d_state: int = 64,
        blocks: int = 8,
        conj_sym: bool = True,
        gate: str = "half_glu1",
        slow: Sequence[str] = ("eigenvalues", "log_step", "enter"),
        slow_lr: float | None = None,
        **options: Any,
    ):
        super().__init__(dim, heads, **options)
        unit = 2 if conj_sym else 1
        if blocks < 1 or d_state < 1 or d_state % (unit * blocks):
            kind = "even size" if conj_sym else "the same size"
            raise ValueError(f"S5's state of {d_state} does not divide into {blocks} blocks of {kind}")
        check_choice("S5's gate", gate, GATES)
        self.scale = float(unit)  # factor of the real part
        eigenvalues, vectors = hippo_normal(d_state // blocks)
        kept = slice(0, len(eigenvalues) // unit)
        directions = 1 if self.pattern.causal else 2
        inputs = torch.randn(d_state, dim) * d_state**-0.5
        outputs = torch.complex(*torch.randn(2, directions, dim, d_state)) * d_state**-0.5
        vectors = torch.block_diag(*[vectors[:, kept]] * blocks).to(outputs.dtype)  # (P, p)
        self.eigenvalues = nn.Parameter(torch.view_as_real(eigenvalues[kept].repeat(blocks)).to(inputs.dtype))  # (p, 2)
        self.enter = nn.Parameter(torch.view_as_real(vectors.mH @ inputs.to(vectors.dtype)).clone())  # (p, D, 2)
        self.leave = nn.Parameter(torch.view_as_real(outputs @ vectors).clone())  # (K, D, p, 2)
        self.skip = nn.Parameter(torch.randn(dim))
        self.log_step = nn.Parameter(log_steps(vectors.shape[1]))
        self.gate = gate
        self.gate_proj = None if gate == "none" else nn.Linear(dim, dim)
        self.slow, self.slow_lr = tuple(slow), slow_lr
        names = [name for name, _ in self.named_parameters()]
        if unknown := [name for name in slow if name not in names]:
            raise ValueError(f"S5's slow parameters are some of {', '.join(names)}, not {unknown[0]}")

    def optimizer_options(self) -> dict[str, dict[str, float]]:
        slow = () if self.slow_lr is None else self.slow
        return {name: {"lr": self.slow_lr, "weight_decay": 0.0} for name in slow}

    def matrices(self) -> tuple[Tensor, Tensor, Tensor]:
        """e^{dt L} (p,), complex, and as real matrices L^-1 (e^{dt L} - 1) B (D, 2 p) and C (K, 2 p, D).

        All real parts precede all imaginary parts.
        """
        real, imaginary = upcast(self.eigenvalues).unbind(-1)
        rates = torch.complex(real.clamp(max=LARGEST_REAL), imaginary)
        remembered = (rates * upcast(self.log_step).exp()).exp()
        enter = ((remembered - 1) / rates)[:, None] * torch.complex(*upcast(self.enter).unbind(-1))  # (p, D)
        real, imaginary = self.scale * upcast(self.leave).permute(3, 0, 2, 1)  # (K, p, D) each
        # Re C h = Re C Re h - Im C Im h
        return remembered, torch.cat([enter.real, enter.imag]).mT, torch.cat([real, -imaginary], 1)

    def read(self, x: Tensor, state: State, padding: Tensor | None = None) -> tuple[Tensor, State]:
        if padding is not None:
            x = x.masked_fill(padding[..., None], 0.0)
        remembered, enter, leave = self.matrices()
        with autocast_disabled(x):
            b = torch.complex(*(upcast(x) @ enter).chunk(2, -1))  # (B, n, p)
            y = self.skip * x
            for reverse, matrix in zip((False, True), leave, strict=False):
                h = diagonal_scan(remembered[None, None], b, state["h"], reverse=reverse)
                y = y + parts(h) @ matrix
        return self.finish(y.to(x.dtype)), {"h": h[:, -1].clone()}

    def finish(self, y: Tensor) -> Tensor:
        """The gated unit, (.., D) -> (.., D)."""
        if self.gate_proj is None:
            return y
        g = F.gelu(y)
        return (g if self.gate == "half_glu1" else y) * self.gate_proj(g).sigmoid()

    def empty_state(self, batch: int) -> State:
        """h (B, p), complex."""
        rates = torch.complex(*upcast(self.eigenvalues).unbind(-1))
        return {"h": rates.new_zeros(batch, len(rates))}


def parts(h: Tensor) -> Tensor:
    """(.., p), complex -> (.., 2 p), all real parts before all imaginary parts."""
    return torch.cat([h.real, h.imag], -1)
