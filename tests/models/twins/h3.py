"""H3, from state to state: a register of keys, and a diagonal state space by the bilinear transform."""

import torch

from twins.base import Twin, per_sequence


@per_sequence
def h3(model, x, source, padding, causal):
    shift, ssm, width = model.shift, model.diagonal, model.head_width
    groups, step = len(ssm.log_step), ssm.log_step.exp()[:, None]
    rate = torch.complex(-ssm.log_decay.exp(), ssm.frequency)
    a = (1 + step * rate / 2) / (1 - step * rate / 2)
    enter = step / (1 - step * rate / 2) * torch.view_as_complex(ssm.enter)
    leave = torch.view_as_complex(ssm.leave)
    q = model.q_proj(x)
    k, v = (torch.where(padding[:, None], 0.0, layer(x)) for layer in (model.k_proj, model.v_proj))
    register = torch.zeros_like(shift.enter)  # the shift matrix moves these by one per token
    h, rows = torch.zeros(width, width, groups, a.shape[1], dtype=a.dtype), []
    for t in range(len(x)):
        register = torch.cat([torch.zeros_like(register[:, :1]), register[:, :-1]], 1) + shift.enter * k[t, :, None]
        shifted = (shift.leave * register).sum(-1) + shift.skip * k[t]
        now_q, now_k, now_v = (y.view(groups, width) for y in (q[t], shifted, v[t]))
        u = torch.stack([torch.stack([now_k[:, i] * now_v[:, j] for j in range(width)]) for i in range(width)])
        h = a * h + enter * u[..., None]
        s = 2 * (leave * h).sum(-1).real + ssm.skip * u
        rows.append(torch.stack([sum(now_q[:, i] * s[i, j] for i in range(width)) for j in range(width)], 1).flatten())
    return model.out_proj(torch.stack(rows))


def h3_parameters(dim, heads, pattern, max_length, hyper):
    size = hyper["d_state"]
    return 4 * (dim + 1) * dim + dim * (2 * size + 1) + dim // hyper["head_width"] * (3 * size + 2)


TWINS = {"h3": Twin(h3, h3_parameters, ({"head_width": 4, "d_state": 6}, {"d_state": 2}))}
