"""xLSTM's two kinds of layers, token by token."""

import math

import torch

from twins.base import Twin, centred, heads_of, per_sequence, silu


def convolution(layer, x):
    rows = []
    for t in range(len(x)):
        past = [layer.weight[:, i] * x[t - i] for i in range(min(t + 1, layer.weight.shape[1]))]
        rows.append(silu(layer.bias + sum(past)))
    return torch.stack(rows)


def blocks(layer, x):
    y = x @ torch.block_diag(*layer.weight)
    return y if layer.bias is None else y + layer.bias


def mlstm(block, x, padding):
    u, gate = block.up_proj(x).chunk(2, dim=-1)
    u = torch.where(padding[:, None], 0.0, u)
    c = convolution(block.convolution, u)
    q, k, v = blocks(block.q_proj, c), blocks(block.k_proj, c), blocks(block.v_proj, u)
    enter, forget = block.gate_proj(torch.cat([q, k, v], dim=-1)).chunk(2, dim=-1)
    heads = []
    for h, (qs, ks, vs) in enumerate(zip(*(heads_of(y, block.heads) for y in (q, k, v)), strict=True)):
        rows, width = [], qs.shape[1]
        memory, total, m = x.new_zeros(width, width), x.new_zeros(width), x.new_tensor(-math.inf)
        for t in range(len(x)):
            if not padding[t]:
                log_f = -torch.log1p(torch.exp(-forget[t, h]))
                new = torch.maximum(log_f + m, enter[t, h])
                f, i, m = torch.exp(log_f + m - new), torch.exp(enter[t, h] - new), new
                memory = f * memory + i * torch.outer(ks[t] / math.sqrt(width), vs[t])
                total = f * total + i * ks[t] / math.sqrt(width)
            if m == -math.inf:
                rows.append(x.new_zeros(width))
            else:
                rows.append(qs[t] @ memory / (torch.maximum((qs[t] @ total).abs(), torch.exp(-m)) + 1e-6))
        heads.append(centred(torch.stack(rows), 1e-5))
    h = torch.cat(heads, dim=-1) * block.norm.weight
    return block.out_proj((h + block.skip * c) * silu(gate))


def slstm(block, x, padding):
    x = torch.where(padding[:, None], 0.0, x)
    c = convolution(block.convolution, x)
    gates = [blocks(block.i_proj, c), blocks(block.f_proj, c), blocks(block.z_proj, x), blocks(block.o_proj, x)]
    heads = []
    for j in range(block.heads):
        head_gates, rows = [heads_of(gate, block.heads)[j] for gate in gates], []
        h, cell, total = x.new_zeros(3, head_gates[0].shape[1])
        for t in range(len(x)):
            if not padding[t]:
                # without the running maximum, of which h does not depend
                i, f, z, o = (gate[t] + h @ block.recurrent[j, :, g] for g, gate in enumerate(head_gates))
                i, f = torch.exp(i), torch.sigmoid(f)
                cell, total = f * cell + i * torch.tanh(z), f * total + i
                h = torch.sigmoid(o) * cell / total
            rows.append(h)
        heads.append(centred(torch.stack(rows), 1e-5))
    return torch.cat(heads, dim=-1) * block.norm.weight


@per_sequence
def xlstm(model, x, source, padding, causal):
    block = model.block
    if hasattr(block, "up_proj"):
        return mlstm(block, x, padding)
    y = slstm(block, x, padding)
    if block.ffn is None:
        return y
    hidden = centred(x + y, 1e-5) * block.ffn_norm.weight
    gate = block.ffn.gate(hidden)
    gelu = gate / 2 * (1 + torch.erf(gate / math.sqrt(2)))
    return y + block.ffn.out(gelu * block.ffn.value(hidden))


def xlstm_parameters(dim, heads, pattern, max_length, hyper):
    taps = hyper["conv"]
    if hyper["slstm_every"] > 1 and 0 not in (hyper["slstm_at"] or ()):
        width = hyper["expand"] * dim
        gates = 6 * width * heads + 2 * heads
        return 3 * dim * width + 3 * width * hyper["qkv_block"] + gates + (taps + 3) * width
    hidden = hyper["ffn_dim"] or 64 * math.ceil(1.3 * dim / 64)
    head_gates = 3 * dim * hidden + dim if hyper["ffn"] else 0
    return 8 * dim * dim // heads + (taps + 6) * dim + head_gates


SCALAR = {"slstm_every": 1}
TWINS = {
    "xlstm": Twin(
        xlstm,
        xlstm_parameters,
        (
            {"expand": 1},
            {"conv": 1},
            {"conv": 20},
            {"qkv_block": 16},
            SCALAR,
            {"slstm_at": [0], "ffn": True},
            SCALAR | {"conv": 1, "ffn": True, "ffn_dim": 7},
        ),
    )
}
