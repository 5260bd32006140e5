"""LAVO."""

import torch

from twins.base import Twin, attend, heads_of, per_sequence


@per_sequence
def lavo(model, x, source, padding, causal):
    q = heads_of(model.q_proj(x), model.heads)
    cross = model.pattern.cross
    v = heads_of(source if model.v_proj is None else model.v_proj(source), model.heads)
    k = v if cross else heads_of(model.k_proj(source), model.heads)
    raw = heads_of(x, model.heads)
    w, out = model.window, []
    tokens = [j for j in range(len(source)) if not padding[j]]
    for h in range(model.heads):
        bases = model.bases[h]  # (R, E)

        def visible(i):
            return [j for j in tokens if (i - w < j <= i if causal else abs(j - i) < w)]

        def bias(i, h=h):
            return (
                None if model.position_bias is None else {j: model.position_bias[h, j - i + w - 1] for j in visible(i)}
            )

        local = [] if cross else [attend(q[h][i], k[h], v[h], visible(i), bias(i)) for i in range(len(x))]
        remembered = v[h] if cross else local if model.dissection else raw[h]
        rows = []
        for i in range(len(x)):
            if not causal:
                past = tokens
            elif model.dissection:
                past = [j for j in tokens if j < i // w * w]
            else:
                past = [j for j in tokens if j <= i]
            memory = sum((bases @ remembered[j] for j in past), bases.new_zeros(len(bases))) / max(len(past), 1)
            rows_of_memory = bases * memory[:, None]  # X~ of eq. 3 and 4, (R, E)
            weights = (rows_of_memory @ q[h][i] * model.global_scale).softmax(0)
            glob = weights @ rows_of_memory
            rows.append(glob if cross else (local[i] + glob) / 2)
        out.append(torch.stack(rows))
    return model.out_proj(torch.cat(out, dim=-1))


def lavo_parameters(dim, heads, pattern, max_length, hyper):
    linears = (2 if hyper["cross_source"] == "raw" else 3) if pattern.cross else 4
    bias = heads * (2 * hyper["window"] - 1) if hyper["epe"] and not pattern.cross else 0
    return linears * (dim * dim + dim) + hyper["bases"] * dim + bias


TWINS = {
    "lavo": Twin(
        lavo,
        lavo_parameters,
        (
            {"epe": False},
            {"dissection": False},
            {"epe": False, "dissection": False},
            {"global_scale": False},
            {"cross_source": "value"},
            {"window": 1},
        ),
    ),
}
