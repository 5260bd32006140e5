"""Latte's Figures 1 to 3, from its layer: tokens and latents, causal Latte as a recursion, one layer of Macchiato."""

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from models.attention.latte import Latte
from models.attention.vanilla import Vanilla
from models.backbones.config import LayerConfig
from models.backbones.layer import TransformerLayer
from models.diagrams.flow import data_flow
from models.diagrams.panel import Panel, graph, matrix
from models.diagrams.probe import dependence, exact, require, same, tokens, unit_values
from models.ops.heads import split_heads

SHARPER = 2.0  # logits of untrained layers are small: a larger input shows which weights differ


def interactions(*, length: int = 8, latents: int = 2) -> list[Panel]:
    """Figure 1: p(s|t) of softmax attention, p(l|t) and p(s|l) of bidirectional Latte as graphs, and their product."""
    with exact():
        x = SHARPER * tokens(length, length)
        softmax = Vanilla(length, 1, pattern="noncausal_self", max_length=length)
        q, k = (softmax.project(linear, x) for linear in (softmax.q_proj, softmax.k_proj))
        pairs = softmax.attend(q, k, unit_values(length), None)[0, 0]  # p(s|t), (T, T)
        layer = Latte(length, 1, pattern="noncausal_self", max_length=length, latents=latents, vapor=False)
        of_latent = layer.mixture(x)[0, 0]  # p(l|t), (T, L)
        logits = key_logits(layer, x)
        single = torch.eye(latents)[None, None]  # one latent alone
        of_token = layer.combine(single, logits, unit_values(length), None)[0, 0]  # p(s|l), (L, T)
        product = layer.combine(layer.mixture(x), logits, unit_values(length), None)[0, 0]
        spectrum = torch.linalg.svdvals(product)
        chain = same(product, of_latent @ of_token, "The layer's p(s|t) is the sum over l of p(l|t) p(s|l)")
        rank = require(spectrum[latents - 1] > 1e-6 > 1e6 * spectrum[latents], f"Its rank is L = {latents}.")
        rows = require((product.sum(1) - 1).abs().max() < 1e-12, "Each of its rows adds up to 1.")
    left, right = [f"t{i + 1}" for i in range(length)], [f"s{i + 1}" for i in range(length)]
    middle = [f"l{i + 1}" for i in range(latents)]
    named = subscripts([*left, *right], "x") | subscripts(middle, "l")
    edges = weighted(left, right, pairs)
    through = weighted(left, middle, of_latent) | weighted(middle, right, of_token)
    levels = ["token", "latent state"]
    return [
        graph(
            "Softmax attention, p(s|t)",
            column(left, 0) | column(right, 1),
            edges,
            levels=levels,
            text=named,
            directed=False,
            notes=[require(len(edges) == length**2, f"T^2 = {length**2} edges. A wider edge is a larger weight.")],
        ),
        graph(
            "Latte, p(l|t) and p(s|l)",
            column(left, 0) | column(middle, 0.5, length) | column(right, 1),
            through,
            levels=levels,
            level_of=dict.fromkeys(middle, 1),
            text=named,
            directed=False,
            notes=[require(len(through) == 2 * length * latents, f"2 T L = {2 * length * latents} edges.")],
        ),
        matrix("Latte, p(s|t)", product, **both(length), notes=[chain, rank, rows]),
    ]


def recursion(*, length: int = 12, latents: int = 4) -> list[Panel]:
    """Figure 2: the causal form as one product and as a recursion over tokens give the same p(s|t)."""
    with exact():
        layer = Latte(length, 1, pattern="causal_self", max_length=length, latents=latents, vapor=False)
        x = SHARPER * tokens(length, length)
        weights, logits, values = layer.mixture(x), key_logits(layer, x), unit_values(length)
        parallel = layer.combine(weights, logits, values, None)[0, 0]
        state, rows, sums = layer.empty_state(1), [], []
        for t in range(length):
            now = (slice(None), slice(None), slice(t, t + 1))
            row, state = layer.combine_chunk(weights[now], logits[now], values[now], None, state)
            rows.append(row[0, 0, 0])
            sums.append(state["latents"][0][0, 0])  # log alpha_t, (L,)
        steps, state, y = [], layer.init_state(1), layer(x)[0][0]
        for t in range(length):
            row, state = layer.step(x[:, t], state)
            steps.append(row[0])
        recursive = torch.stack(rows)
        equal = same(parallel, recursive, "Parallel and recursive form")
        whole = same(y, torch.stack(steps), "The whole layer, forward and token by token")
        future = require((recursive.triu(1) == 0).all(), "No weight is on the future: exact zeros.")
        expected = logits[0, 0].logcumsumexp(0)
        alpha = same(torch.stack(sums), expected, "log alpha_t,l is the log of the sum of exponentials up to t")
        size = require(state["latents"][1].numel() == latents * length, f"State: L = {latents} sums and L means.")
        return [
            chain(),
            matrix("p(s|t), parallel form", parallel, **both(length), notes=[future]),
            matrix("p(s|t), recursion over t", recursive, **both(length), notes=[equal, whole]),
            matrix(
                "State: log alpha of each latent",
                torch.stack(sums),
                **of_rows(length),
                columns="latent l",
                column_labels=counted(latents),
                signed=True,
                notes=[alpha, size],
            ),
        ]


def chain(length: int = 4) -> Panel:
    """The recursion as a graph: what each step of the layer reads, found by gradients."""
    layer = Latte(length, 1, pattern="causal_self", max_length=length, latents=2, vapor=False)
    inputs = {f"x{t + 1}": torch.randn(1, length).requires_grad_() for t in range(length)}

    def run() -> dict[str, Tensor]:
        state, outputs = layer.init_state(1), {}
        for t, x in enumerate(inputs.values()):
            outputs[f"y{t + 1}"], state = layer.step(x, state)
        return outputs

    steps = [f"step{'' if t == 0 else f' {t + 1}'}" for t in range(length)]
    edges = data_flow(run, inputs, {"step": (layer, "step")})
    outputs = [f"y{t + 1}" for t in range(length)]
    wanted = {*zip(inputs, steps, strict=True), *zip(steps, outputs, strict=True), *pairwise(steps)}
    only = require(edges.keys() == wanted, "A step reads its token and the state of the step before, nothing else.")
    rows = enumerate(([*inputs], steps, outputs))
    places = {name: (float(t), float(y)) for y, names in rows for t, name in enumerate(names)}
    text = {name: f"α{t + 1}" for t, name in enumerate(steps)} | subscripts(outputs, "o")
    level_of = dict.fromkeys(steps, 1)
    levels = ["token in, token out", "state after the step"]
    return graph("The recursion", places, edges, levels=levels, level_of=level_of, text=text, notes=[only])


def macchiato(*, length: int = 16, latents: int = 4, window: int = 4) -> list[Panel]:
    """Figure 3: one layer of Latte Macchiato (Latte-RGLRU-SWA++), its data flow and the two parts of its p(s|t)."""
    with exact():
        options = {"pattern": "causal_self", "max_length": length, "vapor": False}
        attention = Latte(length, 1, **options, latents=latents, rglru=True, window=window)
        config = LayerConfig(
            dim=length, ffn_dim=2 * length, dropout=0.0, norm="pre", norm_kind="rmsnorm", ffn="swiglu"
        )  # fmt: skip
        layer, x = TransformerLayer(attention, config), SHARPER * tokens(length, length)
        features = attention.features(x)
        reads = dependence(features, x)
        past = require((reads == torch.ones(length, length).tril().bool()).all(), "y_t reads the tokens up to t.")
        mixture = attention.mixture(features)  # (1, 1, T, 1 + L)
        values = unit_values(length)
        near = attention.local(x, values)[0, 0]
        logits = split_heads(attention.k_proj(features), attention.latents)
        total = attention.combine(mixture, logits, values, attention.local(x, values))[0, 0]
        share = mixture[0, 0, :, :1] * near
        band = torch.ones(length, length).tril() - torch.ones(length, length).tril(-window)
        width = require(((near > 0) == band.bool()).all(), f"The window is the last {window} tokens.")
        ones = require((total.sum(1) - 1).abs().max() < 1e-12, "Each row of p(s|t) adds up to 1.")
        names = ["l=0", *(f"l={i + 1}" for i in range(latents))]
        parts = [
            layer_flow(layer, attention, x),
            matrix("p(l|t), l = 0 is the window", mixture[0, 0], **of_rows(length), column_labels=names, notes=[past]),
            matrix("Window's part, p(0|t) p(s|0,t)", share, **both(length), notes=[width]),
            matrix("p(s|t) of the layer", total, **both(length), notes=[ones]),
        ]  # fmt: skip
        return parts


def layer_flow(layer: TransformerLayer, attention: Latte, x: Tensor) -> Panel:
    """Parts of the layer by name, and which reads which."""
    parts = {
        "RMSNorm": (layer.attention_norm, "forward"),
        "RG-LRU, RMSNorm": (attention.features, "forward"),
        "p(l|t)": (attention, "mixture"),
        "p(s|l,t)": (attention.k_proj, "forward"),
        "values": (attention.v_proj, "forward"),
        "sliding window": (attention.local, "forward"),
        "mean over l": (attention, "combine"),
        "output projection": (attention.out_proj, "forward"),
        "RMSNorm ": (layer.ffn_norm, "forward"),
        "gated feed-forward": (layer.ffn, "forward"),
    }
    edges = data_flow(lambda: {"x'": layer(x, None, None)[0]}, {"x": x}, parts)
    places = {
        "x": (0.0, 0.0),
        "RMSNorm": (0.0, 1.0),
        "RG-LRU, RMSNorm": (-1.0, 2.0),
        "values": (0.3, 2.3),
        "p(l|t)": (-1.5, 3.1),
        "p(s|l,t)": (-0.6, 3.1),
        "sliding window": (1.0, 3.1),
        "mean over l": (0.0, 4.2),
        "output projection": (0.0, 5.1),
        "RMSNorm ": (0.0, 6.0),
        "gated feed-forward": (0.0, 6.9),
        "x'": (0.0, 7.8),
    }
    level_of = dict.fromkeys(("RG-LRU, RMSNorm", "p(l|t)", "p(s|l,t)", "sliding window", "mean over l"), 1)
    read = require(
        ("RG-LRU, RMSNorm", "values") not in edges and ("RMSNorm", "values") in edges,
        "The logits read the RG-LRU; values and window read the layer's input.",
    )
    return graph(
        "One layer, read from a run of the code",
        places,
        edges,
        levels=["of every Transformer layer", "Latte Macchiato's own"],
        level_of=level_of,
        notes=[read],
    )


def counted(number: int) -> list[str]:
    return [str(i + 1) for i in range(number)]


def of_rows(length: int) -> dict[str, Any]:
    return {"rows": "t", "row_labels": counted(length)}


def both(length: int) -> dict[str, Any]:
    return {**of_rows(length), "columns": "s", "column_labels": counted(length)}


def key_logits(layer: Latte, x: Tensor) -> Tensor:
    return split_heads(layer.k_proj(x), layer.latents)


def column(names: list[str], x: float, height: int | None = None) -> dict[str, tuple[float, float]]:
    """Nodes below each other, in the middle of as many as `height`."""
    middle = ((height or len(names)) - 1) / 2
    step = (height or len(names)) / len(names)
    return {name: (x, -(middle + (i - (len(names) - 1) / 2) * step)) for i, name in enumerate(names)}


def weighted(left: list[str], right: list[str], weights: Tensor) -> dict[tuple[str, str], float]:
    """An edge for each entry of (left, right) weights that is not 0."""
    rows = zip(left, weights.tolist(), strict=True)
    return {(a, b): w for a, row in rows for b, w in zip(right, row, strict=True) if w}


def subscripts(names: object, letter: str) -> dict[str, str]:
    """`t3` -> `x3`."""
    return {name: letter + name.lstrip("abcdefghijklmnopqrstuvwxyz") for name in names}
