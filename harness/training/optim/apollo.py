"""Apollo (Ma, 2020, arXiv 2009.13586): a diagonal quasi-Newton optimizer. Luna's translation models use it.

For each tensor, from m = B = u = 0, with gradient g, alpha = (1 - beta) / (1 - beta^t) and a bound b:

    delta = g - m,  m += alpha delta                              bias-corrected mean of the gradients
    s = |u|_4 + eps',  v = u / s                                  direction of the last update
    B -= v^2 (alpha <delta / s, v> + <B, v^2>)                    weak secant condition, one number per tensor
    u = m / max(|B|, b),  p -= lr u                               `constant`: b = 0.01, eps' = eps / b
    u = m / (max(|B|, b) + eps / alpha)                           `belief`: b = max |delta|, eps' = eps

Our reading, confirmed by trajectories of the published code: weight decay is added to the gradient (`l2`), or to u
before it is stored (`decoupled`; `stable` divides it by the mean of the denominator). The published learning rates 10
and 0.1 belong to different definitions of the bound (X54); with the definition here, Luna's is 0.1.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

BOUND = 0.01
REBOUNDS = ("constant", "belief")
DECAYS = ("l2", "decoupled", "stable")


class Apollo(Optimizer):
    """`rebound`: the kind of lower bound of the curvature. Raises ValueError for settings out of range."""

    def __init__(
        self,
        params: Any,
        lr: float,
        *,
        beta: float = 0.9,
        eps: float = 1e-4,
        rebound: str = "constant",
        weight_decay: float = 0.0,
        weight_decay_type: str = "l2",
    ):
        for name, value, right in (
            ("lr", lr, lr > 0),
            ("beta", beta, 0 <= beta < 1),
            ("eps", eps, eps > 0),
            ("weight_decay", weight_decay, weight_decay >= 0),
        ):
            if not right:
                raise ValueError(f"Apollo: {name}={value} is out of range")
        if rebound not in REBOUNDS or weight_decay_type not in DECAYS:
            raise ValueError(
                f"Apollo: rebound is one of {', '.join(REBOUNDS)}, weight_decay_type of {', '.join(DECAYS)}"
            )
        settings = {"lr": lr, "beta": beta, "eps": eps, "rebound": rebound}
        super().__init__(params, settings | {"weight_decay": weight_decay, "weight_decay_type": weight_decay_type})

    @torch.no_grad()
    def step(self, closure: Callable[[], Tensor] | None = None) -> Tensor | None:
        """Update all parameters that have a gradient; gradients are not changed."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, group)
        return loss

    def _update(self, parameter: Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        if not state:
            state["step"] = 0
            for name in ("mean", "curvature", "update"):
                state[name] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
        state["step"] += 1
        mean, curvature, update = state["mean"], state["curvature"], state["update"]
        alpha = (1 - group["beta"]) / (1 - group["beta"] ** state["step"])
        decay, kind, belief = group["weight_decay"], group["weight_decay_type"], group["rebound"] == "belief"

        gradient = parameter.grad.add(parameter, alpha=decay) if decay and kind == "l2" else parameter.grad
        delta = gradient - mean
        bound = delta.abs().max() if belief else BOUND
        mean.add_(delta, alpha=alpha)

        scale = torch.linalg.vector_norm(update, 4) + (group["eps"] if belief else group["eps"] / BOUND)
        update.div_(scale)
        squares = update.square()
        secant = -alpha * delta.mul_(update).sum() / scale - curvature.mul(squares).sum()
        curvature.addcmul_(squares, secant)

        denominator = curvature.abs().clamp_(min=bound)
        if belief:
            denominator.add_(group["eps"] / alpha)
        torch.div(mean, denominator, out=update)
        if decay and kind != "l2":
            update.add_(parameter, alpha=decay / float(denominator.mean()) if kind == "stable" else decay)
        parameter.add_(update, alpha=-group["lr"])
