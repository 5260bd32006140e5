"""LLP's Figures 3 to 5, from its layers: the receptive field layer by layer, the data flow, and the listing."""

import torch
import torch.nn.functional as F
from torch import Tensor

from models.attention import llp
from models.attention.llp import LLP
from models.backbones.config import LayerConfig
from models.backbones.layer import TransformerLayer
from models.diagrams.flow import data_flow
from models.diagrams.panel import Panel, graph, matrix
from models.diagrams.probe import dependence, exact, require, same, tokens, unit_values

FIELD = ("not seen", "seen through the layers below", "computed in this layer")
WIDTH = 8
BELOW, ABOVE = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉"), str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def layer_of(length: int, segment: int, *, ffn: str = "gelu") -> TransformerLayer:
    attention = LLP(WIDTH, 1, pattern="causal_self", max_length=length, segment=segment)
    return TransformerLayer(attention, LayerConfig(dim=WIDTH, ffn_dim=WIDTH, dropout=0.0, norm="pre", ffn=ffn))


def receptive_fields(*, length: int = 32, segment: int = 8, layers: int = 3) -> list[Panel]:
    """Figure 3 a to c: what each token depends on after each layer, by gradients; 3 d: the layer's data flow."""
    with exact():
        half, x = segment // 2, tokens(length, WIDTH)
        stack = [layer_of(length, segment) for _ in range(layers)]
        panels, y = [], x
        for depth, layer in enumerate(stack, 1):
            fresh = y.detach().requires_grad_()
            here = dependence(layer(fresh, None, None)[0], fresh)
            y = layer(y, None, None)[0]
            field = dependence(y, x)
            i, j = torch.arange(length)[:, None], torch.arange(length)
            law = (j <= i) & (j // half >= i // half - depth)
            grown = require(
                (field == law).all(),
                f"The gradient reaches the {depth} half segment{'s' * (depth > 1)} before the token's own.",
            )
            pairs = require(here.sum() <= length * segment, f"{int(here.sum())} of {length**2} pairs are computed.")
            panels.append(
                matrix(
                    f"Layer {depth}",
                    field.long() + here.long(),
                    rows="tokens, after the layer",
                    columns="tokens, below the first layer",
                    levels=FIELD,
                    row_lines=range(half, length, half),
                    column_lines=range(half, length, half),
                    notes=[grown, pairs] if depth == 1 else [grown],
                )
            )
        return [*panels, block(stack[0].attention, x)]


def block(attention: LLP, x: Tensor) -> Panel:
    """Figure 3 d: which part of a layer reads which. ATTN is the first half segment's attention, PAR that of the rest.

    A part's function stands in the module of the layer, where it is looked up at every call.
    """
    parts = {
        "queries": (attention.q_proj, "forward"),
        "keys and values": (attention.kv_proj, "forward"),
        "LayerNorm of keys": (attention.key_norm, "forward"),
        "ATTN": (llp, "softmax_attention"),
        "PAR": (llp, "paired_attention"),
        "projection of ATTN": (attention.first_out_proj, "forward"),
        "projection of PAR": (attention.out_proj, "forward"),
    }
    edges = data_flow(lambda: {"output": attention(x)[0]}, {"input": x}, parts)
    places = {
        "input": (0.5, 0.0),
        "queries": (0.0, 1.0),
        "keys and values": (1.0, 1.0),
        "LayerNorm of keys": (1.25, 2.0),
        "ATTN": (0.0, 3.0),
        "PAR": (1.0, 3.0),
        "projection of ATTN": (0.0, 4.0),
        "projection of PAR": (1.0, 4.0),
        "output": (0.5, 5.0),
    }
    only = require(
        ("LayerNorm of keys", "PAR") in edges and ("LayerNorm of keys", "ATTN") not in edges,
        "Only the pairs of half segments (PAR) normalise their keys.",
    )
    return graph(
        "One LLP layer, read from a run",
        places,
        edges,
        levels=["projections and norm", "attention"],
        level_of={"ATTN": 1, "PAR": 1},
        notes=[only],
    )


def segment_graph(*, halves: int = 6, segment: int = 4, layers: int = 3, half: int = 4) -> Panel:
    """Figure 4: the half segments S_i^j, i along the text and j the layer, that S_half^layers is made of.

    An edge is what a half segment of a layer depends on directly, found by gradients through that layer alone.
    """
    with exact():
        size = segment // 2
        length = halves * size
        stack = [layer_of(length, segment) for _ in range(layers)]
        states = [tokens(length, WIDTH)]
        edges = {}
        for j, layer in enumerate(stack):
            below = states[-1].detach().requires_grad_()
            near = by_halves(dependence(layer(below, None, None)[0], below), size)
            edges |= {(name(i, j), name(k, j + 1)): 1.0 for k in range(halves) for i in range(halves) if near[k, i]}
            states.append(layer(states[-1], None, None)[0])
        end = states[-1][:, half * size : (half + 1) * size]
        used = [by_halves(dependence(end, state), size)[0] for state in states[:-1]]
        marked = {name(i, j) for j, row in enumerate(used) for i in range(halves) if row[i]} | {name(half, layers)}
        count = int(used[0].sum())
        law = count == min(half, layers) + 1
        grown = require(law, f"{name(half, layers)} sees {count} half segments of the input: one more for each layer.")
        return graph(
            "Half segments, index: place, power: layer",
            {name(i, j): (1.0 * i, -1.0 * j) for j in range(layers + 1) for i in range(halves)},
            {pair: weight if set(pair) <= marked else 0.0 for pair, weight in edges.items()},
            levels=["other half segments", f"what {name(half, layers)} depends on"],
            level_of=dict.fromkeys(marked, 1),
            notes=[grown],
        )


def name(i: int, j: int) -> str:
    """Half segment i of layer j, S with an index below and one above."""
    return f"S{str(i).translate(BELOW)}{str(j).translate(ABOVE)}"


def by_halves(field: Tensor, size: int) -> Tensor:
    """(N, M) of tokens -> of half segments, True where any token is."""
    return field.unflatten(0, (-1, size)).unflatten(2, (-1, size)).any(3).any(1)


def listing(*, length: int = 24, segment: int = 8) -> list[Panel]:
    """Figure 5: the published listing, its mask's slice put on the axis of the keys, beside the layer.

    The scale E^-1/2 is added, as in the code that the listing starts from (D-17, X41). The outputs of both go through
    the same projections; unit vectors as values show the weights.
    """
    with exact():
        half = segment // 2
        layer = LLP(WIDTH, 1, pattern="causal_self", max_length=length, segment=segment, rotary=False)
        with torch.no_grad():
            layer.key_norm.weight.uniform_(0.5, 1.5)
        x = 2 * tokens(length, WIDTH)
        q, kv = layer.q_proj(x), layer.kv_proj(x)  # (1, N, E)
        theirs = listed_weights(q, kv, layer.key_norm, half, fixed=True)
        ours = layer_weights(layer, q[:, None], kv[:, None], half)
        output = theirs @ kv[0]
        output = torch.cat([layer.first_out_proj(output[:half]), layer.out_proj(output[half:])])
        try:
            listed_weights(q, kv, layer.key_norm, half, fixed=False)
        except RuntimeError:
            fails = "The slice as printed takes the axis of the queries: the mask does not fit, and the listing stops."
        else:
            raise ValueError("the slice as printed runs, which the figure denies")
        lines = {"row_lines": range(half, length, half), "column_lines": range(half, length, half)}
        axes = {"rows": "queries", "columns": "keys"}
        return [
            matrix("The listing, its slice fixed: weights", theirs, **axes, **lines, notes=[fails]),
            matrix(
                "The layer: weights",
                ours,
                **axes,
                **lines,
                notes=[
                    same(theirs, ours, "Weights of both"),
                    same(output, layer(x)[0][0], "Outputs of both"),
                    require((theirs.triu(1) == 0).all(), "No weight is on the future: exact zeros."),
                ],
            ),
        ]


def listed_weights(q: Tensor, kv: Tensor, norm: torch.nn.Module, half: int, *, fixed: bool) -> Tensor:
    """(N, N) weights by the steps of the listing: queries and keys (1, N, E) in half segments, pairs of these as keys.

    Without `fixed` the mask goes to the slice that the listing prints. Raises RuntimeError there.
    """
    scale = q.shape[-1] ** -0.5
    rows, keys = q[0].unflatten(0, (-1, half)), kv[0].unflatten(0, (-1, half))  # (S, m, E)
    pairs = norm(torch.cat([keys[:-1], keys[1:]], 1))  # (S - 1, 2 m, E)
    scores = scale * rows[1:] @ pairs.mT  # (S - 1, m, 2 m)
    future = torch.ones(half, half).triu(1).bool()
    (scores[:, :, half:] if fixed else scores[:, half:]).masked_fill_(future, -torch.inf)
    first = (scale * rows[0] @ keys[0].mT).masked_fill(future, -torch.inf).softmax(-1)  # (m, m)
    length = q.shape[1]
    later = [F.pad(block, (i * half, length - (i + 2) * half)) for i, block in enumerate(scores.softmax(-1))]
    return torch.cat([F.pad(first, (0, length - half)), *later])


def layer_weights(layer: LLP, q: Tensor, keys: Tensor, half: int) -> Tensor:
    """(N, N) weights of the layer's own two functions, for q and keys (1, 1, N, E)."""
    unit = unit_values(q.shape[2])
    first = llp.softmax_attention(q[:, :, :half], keys[:, :, :half], unit[:, :, :half], causal=True)
    rest = llp.paired_attention(q[:, :, half:], layer.key_norm(keys), unit, half=half, causal=True)
    return torch.cat([first, rest], 2)[0, 0]
