"""LLP."""

import torch

from models.attention.base import Pattern
from twins.base import Twin, attend, heads_of, per_sequence
from twins.baselines import turned


@per_sequence
def llp(model, x, source, padding, causal):
    bidirectional = model.pattern is Pattern.NONCAUSAL_SELF and not model.causal
    c, out = model.half_segment, []
    for q, kv in zip(heads_of(model.q_proj(x), model.heads), heads_of(model.kv_proj(x), model.heads), strict=True):
        rows = []
        turn = torch.stack([turned(kv[j], j) if model.rotary else kv[j] for j in range(len(x))])
        normed = torch.stack([model.key_norm(key) for key in turn])
        values = turn if model.rotate_values else kv
        for i in range(len(x)):
            if bidirectional:
                keys = [j for j in range(len(x)) if abs(j // c - i // c) <= 1]
            else:
                keys = [j for j in range(i + 1) if j // c >= i // c - 1]
            keys = [j for j in keys if not padding[j]]
            query = turned(q[i], i) if model.rotary else q[i]
            rows.append(attend(query, turn if i < c else normed, values, keys))
        out.append(torch.stack(rows))
    y = torch.cat(out, dim=-1)
    return torch.stack([(model.first_out_proj if i < c else model.out_proj)(y[i]) for i in range(len(x))])


def llp_parameters(dim, heads, pattern, max_length, hyper):
    return 4 * dim * dim + 2 * dim + 2 * dim // heads


TWINS = {
    "llp": Twin(
        llp,
        llp_parameters,
        (
            {"rotary": False},
            {"rotate_values": False},
            {"listing_segment": True},
            {"bidirectional": True},
            {"segment": 2},
            {"segment": 32},
        ),
    ),
}
