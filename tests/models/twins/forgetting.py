"""The Forgetting Transformer, token by token: a gate multiplies the weights of all earlier tokens."""

import math

import torch

from twins.base import Twin, heads_of, per_sequence


def normed(x, weight, eps):
    return weight * x / (x.square().mean() + eps).sqrt()


def shifted(y, alphas, real):
    """Each real row mixed with the real row before it."""
    out, last = [], torch.zeros_like(y[0])
    for row, alpha, is_real in zip(y, alphas, real, strict=True):
        out.append(alpha * last + (1 - alpha) * row)
        last = row if is_real else last
    return torch.stack(out)


@per_sequence
def forgetting(model, x, source, padding, causal):
    q, k, v = (heads_of(layer(x), model.heads) for layer in (model.q_proj, model.k_proj, model.v_proj))
    gates = torch.sigmoid(model.forget_proj(x))
    heads = []
    for h in range(model.heads):
        queries, keys, values = q[h], k[h], v[h]
        if model.k_shift_proj is not None:
            keys = shifted(keys, torch.sigmoid(model.k_shift_proj(x)[:, h]), ~padding)
            values = shifted(values, torch.sigmoid(model.v_shift_proj(x)[:, h]), ~padding)
        if model.q_norm is not None:
            queries = torch.stack([normed(row, model.q_norm.weight[h, 0], 1e-5) for row in queries])
            keys = torch.stack([normed(row, model.k_norm.weight[h, 0], 1e-5) for row in keys])
        rows = []
        for i in range(len(x)):
            kept, total, o = torch.ones((), dtype=x.dtype), torch.zeros((), dtype=x.dtype), torch.zeros_like(values[i])
            for j in range(i, -1, -1):
                if padding[j]:
                    continue
                weight = kept * torch.exp(queries[i] @ keys[j] / math.sqrt(len(keys[j])))
                total, o = total + weight, o + weight * values[j]
                kept = kept * gates[j, h]
            o = o / total.clamp(min=1e-300)
            rows.append(o if model.output_norm is None else normed(o, model.output_norm.weight[h, 0], 1e-6))
        heads.append(torch.stack(rows))
    o = torch.cat(heads, -1)
    return model.out_proj(o if model.gate_proj is None else torch.sigmoid(model.gate_proj(x)) * o)


def forgetting_parameters(dim, heads, pattern, max_length, hyper):
    shift, gate = hyper["kv_shift"] * 2 * dim * heads, hyper["output_gate"] * dim * dim
    return 4 * dim * dim + dim * heads + heads + shift + gate + (2 * hyper["qk_norm"] + hyper["output_norm"]) * dim


PRO = ("qk_norm", "kv_shift", "output_norm", "output_gate")
VARIANTS = (*({name: True} for name in PRO), dict.fromkeys(PRO, True))
TWINS = {"forgetting": Twin(forgetting, forgetting_parameters, VARIANTS)}
