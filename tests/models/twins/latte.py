"""Latte's ladder and RGLRU-SWA."""

import torch

from twins.base import Twin, attend, heads_of, per_sequence


def turn(x, position, frequencies=None):
    """Channel pairs of x (E) as complex numbers, rotated by position times frequency."""
    pairs = torch.view_as_complex(x.reshape(-1, 2).contiguous())
    if frequencies is None:
        frequencies = 10000.0 ** (-torch.arange(0, len(x), 2, dtype=torch.float64) / len(x))
    return torch.view_as_real(pairs * torch.exp(1j * position * frequencies)).flatten()


def convolution(layer, x, padding, causal):
    taps = layer.weight.shape[1]
    ahead = 0 if causal else (taps - 1) // 2
    rows = []
    for t in range(len(x)):
        seen = [(i, t + ahead - i) for i in range(taps) if 0 <= t + ahead - i < len(x) and not padding[t + ahead - i]]
        rows.append(sum((layer.weight[:, i] * x[s] for i, s in seen), torch.zeros_like(x[t])))
    return torch.stack(rows)


def rglru(layer, x, padding, order):
    def gate(linear, token):
        blocks = [part @ block for part, block in zip(token.chunk(len(linear.weight)), linear.weight, strict=True)]
        return torch.sigmoid(torch.cat(blocks) + linear.bias)

    rows, h = {}, None
    for t in order:
        if not padding[t]:
            a = torch.exp(-8 * gate(layer.recurrence_gate, x[t]) * torch.log1p(torch.exp(layer.decay)))
            gated = gate(layer.input_gate, x[t]) * x[t]
            h = gated if h is None else a * h + torch.sqrt(1 - a**2) * gated
        rows[t] = torch.zeros_like(x[t]) if h is None else h
    return torch.stack([rows[t] for t in range(len(x))])


def recurrence(layer, x, padding, causal):
    order = list(range(len(x)))
    y = rglru(layer.past, x, padding, order)
    if not causal:
        y = y + rglru(layer.future, x, padding, order[::-1])
    return y / torch.sqrt((y**2).mean(-1, keepdim=True) + 1e-6) * layer.norm.weight


def sliding(layer, x, v, padding, causal, heads):
    """(N, D) and values (heads times (N, E)) -> heads times (N, E)."""
    q, k = heads_of(layer.q_proj(x), heads), heads_of(layer.k_proj(x), heads)
    w, out = layer.window, []

    def placed(row, position):
        return turn(row, position) if layer.rope else row

    for h in range(heads):
        k_h = torch.stack([placed(row, j) for j, row in enumerate(k[h])])
        rows = []
        for i in range(len(x)):
            near = [j for j in range(len(x)) if (i - w < j <= i if causal else abs(i - j) <= w // 2)]
            rows.append(attend(placed(q[h][i], i), k_h, v[h], [j for j in near if not padding[j]]))
        out.append(torch.stack(rows))
    return out


@per_sequence
def latte(model, x, source, padding, causal):
    y = x
    if model.features is not None:
        features = convolution if hasattr(model.features, "weight") else recurrence
        y = features(model.features, x, padding, causal)
    q, k, v = (heads_of(linear(z), model.heads) for linear, z in zip(projections(model), (y, y, x), strict=True))
    near = None if model.local is None else sliding(model.local, x, v, padding, causal, model.heads)
    frequencies, out = model.frequencies, []
    for h in range(model.heads):
        rows = []
        for t in range(len(x)):
            p = q[h][t].softmax(0)
            mixed = torch.zeros_like(v[h][t])
            if near is not None:
                mixed, p = p[0] * near[h][t], p[1:]
            tokens = [s for s in range(len(x)) if (s <= t or not causal) and not padding[s]]
            share = k[h][tokens].softmax(0) @ p if tokens else []  # sum_l p(l|t) p(s|l,t)
            for weight, s in zip(share, tokens, strict=True):
                mixed = mixed + weight * (turn(v[h][s], t - s, frequencies) if model.vapor else v[h][s])
            rows.append(mixed)
        out.append(torch.stack(rows))
    return model.out_proj(torch.cat(out, dim=-1))


def projections(model):
    return model.q_proj, model.k_proj, model.v_proj


@per_sequence
def rglru_swa(model, x, source, padding, causal):
    z = recurrence(model.recurrence, x, padding, causal)
    v = heads_of(model.v_proj(x), model.heads)
    return model.out_proj(torch.cat(sliding(model.local, z, v, padding, causal, model.heads), dim=-1))


def recurrence_parameters(dim, heads, pattern):
    return (1 if pattern.causal else 2) * (2 * dim * dim // heads + 3 * dim) + dim


def latte_parameters(dim, heads, pattern, max_length, hyper):
    count = 2 * dim * hyper["latents"] + 2 * dim * dim
    if hyper.get("window"):
        count += 2 * dim * dim + heads * dim
    if hyper.get("rglru"):
        count += recurrence_parameters(dim, heads, pattern)
    return count + (hyper.get("conv") or 0) * dim + (dim // heads // 2 if hyper.get("learn_rotation") else 0)


def rglru_swa_parameters(dim, heads, pattern, max_length, hyper):
    return 4 * dim * dim + recurrence_parameters(dim, heads, pattern)


TWINS = {
    "latte": Twin(latte, latte_parameters, ({"vapor": False}, {"learn_rotation": True}, {"latents": 2})),
    "latte_swa": Twin(latte, latte_parameters, ({"window": 1}, {"window": 100}, {"vapor": False})),
    "latte_conv": Twin(latte, latte_parameters, ({"conv": 1}, {"conv": 4}, {"conv": 20}, {"vapor": True})),
    "latte_conv_swa": Twin(latte, latte_parameters),
    "latte_rglru": Twin(latte, latte_parameters, ({"vapor": True},)),
    "latte_rglru_swa": Twin(latte, latte_parameters, ({"rope": False},)),
    "rglru_swa": Twin(rglru_swa, rglru_swa_parameters, ({"window": 1}, {"window": 100})),
}
