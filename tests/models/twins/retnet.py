"""Retention, in the parallel form as printed."""

import torch

from models.attention.base import Pattern
from twins.base import Twin, heads_of, per_sequence


def turned(x):
    """Channel pairs as complex numbers, rotated by their position."""
    pairs = x.shape[-1] // 2
    exponents = [j / max(1, pairs - 1) for j in range(pairs)]
    angles = torch.tensor([[t * 10000.0**-e for e in exponents] for t in range(len(x))], dtype=torch.float64)
    return torch.view_as_complex(x.unflatten(-1, (-1, 2))) * torch.polar(torch.ones_like(angles), angles)


@per_sequence
def retnet(model, x, source, padding, causal):
    parts = [heads_of(layer(x), model.heads) for layer in (model.q_proj, model.k_proj, model.v_proj, model.gate_proj)]
    heads = []
    for h, (q, k, v, gate) in enumerate(zip(*parts, strict=True)):
        gamma, rows = 1 - 2.0 ** (-5 - h), []
        q, k = turned(q), turned(k) / q.shape[-1] ** 0.5
        for t in range(len(x)):
            total = sum(gamma ** (t - s) for s in range(t + 1))
            scores = [gamma ** (t - s) / total**0.5 * (q[t] * k[s].conj()).real.sum() for s in range(t + 1)]
            scores = [0 * score if padding[s] else score for s, score in enumerate(scores)]
            divisor = sum(abs(score.item()) for score in scores) if model.divide_scores else 1.0
            divisor = min(max(divisor, 1.0), 5e4)
            o = sum(score / divisor * v[s] for s, score in enumerate(scores))
            rows.append(gate[t] * torch.sigmoid(gate[t]) * o / (o.square().mean() + 1e-6).sqrt())
        heads.append(torch.stack(rows))
    return model.out_proj(torch.cat(heads, -1))


def retnet_parameters(dim, heads, pattern, max_length, hyper):
    assert pattern is Pattern.CAUSAL_SELF
    return (2 + 3 * hyper["value_factor"]) * dim * dim


TWINS = {"retnet": Twin(retnet, retnet_parameters, ({"divide_scores": True}, {"value_factor": 1}))}
