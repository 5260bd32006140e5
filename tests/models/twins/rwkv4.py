"""RWKV-4's mean as a softmax over all tokens so far."""

import torch

from twins.base import Twin, per_sequence


def shifted(mu, x):
    return torch.stack([mu * row + (1 - mu) * (x[t - 1] if t else torch.zeros_like(row)) for t, row in enumerate(x)])


@per_sequence
def rwkv4(model, x, source, padding, causal):
    clean = torch.where(padding[:, None], 0.0, x)
    to_k, to_v, to_r = (shifted(mu, clean) for mu in model.shift.shares)
    k, v, decay, rows = model.k_proj(to_k), model.v_proj(to_v), torch.exp(model.log_decay), []
    for t in range(len(x)):
        seen = [s for s in range(t + 1) if not padding[s]]
        if not seen:
            rows.append(torch.zeros_like(v[t]))
            continue
        logits = torch.stack([model.bonus + k[s] if s == t else k[s] - (t - 1 - s) * decay for s in seen])
        rows.append((logits.softmax(0) * v[seen]).sum(0))
    y = model.out_proj(torch.sigmoid(model.r_proj(to_r)) * torch.stack(rows))
    if model.channel_mix is None:
        return y
    mix, h = model.channel_mix, x + y
    h = (h - h.mean(-1, keepdim=True)) / torch.sqrt(h.var(-1, keepdim=True, unbiased=False) + 1e-5)
    h = torch.where(padding[:, None], 0.0, h * mix.norm.weight + mix.norm.bias)
    to_k, to_r = (shifted(mu, h) for mu in mix.shift.shares)
    return y + torch.sigmoid(mix.r_proj(to_r)) * mix.v_proj(torch.clamp(mix.k_proj(to_k), min=0) ** 2)


def rwkv4_parameters(dim, heads, pattern, max_length, hyper):
    hidden = hyper["channel_dim"] or 4 * dim
    channel_mix = dim * dim + 2 * dim * hidden + 4 * dim if hyper["channel_mix"] else 0
    return 4 * dim * dim + 5 * dim + channel_mix


TWINS = {"rwkv4": Twin(rwkv4, rwkv4_parameters, ({"channel_mix": True}, {"channel_mix": True, "channel_dim": 7}))}
