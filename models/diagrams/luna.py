"""Luna's Figure 2, from the layers: a Transformer encoder layer, a Luna encoder layer, and what packs and unpacks."""

import torch

from models.attention.luna import Luna
from models.attention.vanilla import Vanilla, softmax_attention
from models.backbones.config import LayerConfig
from models.backbones.layer import TransformerLayer
from models.diagrams.flow import data_flow
from models.diagrams.panel import Panel, graph, matrix
from models.diagrams.probe import exact, require, same, tokens, unit_values

SHARPER = 3.0  # weights of untrained layers are nearly equal: a larger input shows which keys are seen
COMMON = ("of every Transformer layer", "Luna's own")


def layers(*, length: int = 12, slots: int = 4, padding: int = 3, width: int = 16) -> list[Panel]:
    """Figure 2, and the two attentions of the Luna layer. The last `padding` tokens of X are padding."""
    with exact():
        config = LayerConfig(dim=width, ffn_dim=2 * width, dropout=0.0, norm="post")
        options = {"pattern": "noncausal_self", "max_length": length}
        plain = TransformerLayer(Vanilla(width, 1, **options), config)
        luna = TransformerLayer(Luna(width, 1, **options, slots=slots), config)
        x, p = SHARPER * tokens(length, width), SHARPER * tokens(slots, width)
        return [plain_flow(plain, x), luna_flow(luna, x, p), *weights(luna.attention, x, p, padding)]


def plain_flow(layer: TransformerLayer, x: torch.Tensor) -> Panel:
    parts = {
        "attention": (layer.attention, "forward"),
        "add and norm": (layer.attention_norm, "forward"),
        "feed-forward": (layer.ffn, "forward"),
        "add and norm ": (layer.ffn_norm, "forward"),
    }
    edges = data_flow(lambda: {"X'": layer(x, None, None)[0]}, {"X": x}, parts)
    places = {name: (0.0, float(y)) for y, name in enumerate(["X", *parts, "X'"])}
    size = require(layer(x, None, None)[0].shape == x.shape, "X' has the shape of X.")
    return graph("Transformer encoder layer", places, edges, levels=COMMON, notes=[size])


def luna_flow(layer: TransformerLayer, x: torch.Tensor, p: torch.Tensor) -> Panel:
    attention = layer.attention
    parts = {
        "pack attention": (attention, "pack"),
        "unpack attention": (attention, "unpack"),
        "add and norm of P": (attention, "update"),
        "add and norm": (layer.attention_norm, "forward"),
        "feed-forward": (layer.ffn, "forward"),
        "add and norm ": (layer.ffn_norm, "forward"),
    }

    def run() -> dict[str, torch.Tensor]:
        y, carry = layer(x, None, p)
        return {"X'": y, "P'": carry}

    edges = data_flow(run, {"X": x, "P": p}, parts)
    places = {
        "P": (0.0, 0.0),
        "X": (1.6, 0.0),
        "pack attention": (0.0, 1.2),
        "unpack attention": (1.6, 2.2),
        "add and norm": (1.6, 3.2),
        "feed-forward": (1.6, 4.2),
        "add and norm ": (1.6, 5.2),
        "X'": (1.6, 6.2),
        "add and norm of P": (0.0, 3.2),
        "P'": (0.0, 6.2),
    }
    level_of = dict.fromkeys(("P", "pack attention", "unpack attention", "add and norm of P", "P'"), 1)
    y, carry = layer(x, None, p)
    sizes = require(y.shape == x.shape and carry.shape == p.shape, "X' and P' have the shapes of X and P.")
    path = require(
        ("X", "pack attention") in edges
        and ("pack attention", "unpack attention") in edges
        and ("P", "unpack attention") not in edges,
        "X reads the packed context, and P through it alone.",
    )
    return graph("Luna encoder layer", places, edges, levels=COMMON, level_of=level_of, notes=[sizes, path])


def weights(layer: Luna, x: torch.Tensor, p: torch.Tensor, padding: int) -> list[Panel]:
    """Weights of the pack (L, N) and of the unpack (N, L), by unit vectors in place of values."""
    length, slots = x.shape[1], p.shape[1]
    hidden = torch.arange(length)[None] >= length - padding
    k, v = layer.heads_of(x, layer.pack_k_proj, layer.pack_v_proj, layer.pack_head_dim)
    pack = softmax_attention(layer.pack_query(p, 1), k, unit_values(length), key_padding_mask=hidden)[0, 0]
    packed = layer.pack(p, x, hidden)
    k_unpack, v_unpack = layer.keys_and_values(packed)
    unpack = softmax_attention(layer.unpack_query(x), k_unpack, unit_values(slots))[0, 0]
    output = layer(x, key_padding_mask=hidden, carry=p)[0]
    nested = layer.out_proj((unpack @ v_unpack[0, 0])[None])
    return [
        matrix(
            f"Pack: P reads X, {slots} x {length} weights",
            pack,
            rows="slots of P",
            columns="tokens of X, the last are padding",
            column_lines=[length - padding],
            notes=[
                same(pack @ v[0, 0], packed[0], "Y_P is these weights on the values"),
                require((pack[:, -padding:] == 0).all(), f"The {padding} tokens of padding get exact zeros."),
            ],
        ),
        matrix(
            f"Unpack: X reads Y_P, {length} x {slots} weights",
            unpack,
            rows="tokens of X",
            columns="slots of Y_P",
            row_lines=[length - padding],
            notes=[
                same(nested, output, "Y_X is these weights on Y_P"),
                require(
                    pack.numel() + unpack.numel() == 2 * slots * length,
                    f"2 l n = {2 * slots * length} weights in place of n^2 = {length**2}.",
                ),
            ],
        ),
    ]
