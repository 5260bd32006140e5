"""LAVO's Figures 1 to 3, from its layer: the orthogonal memory, context dissection, and the indices of P."""

import torch
from torch import Tensor

from models.attention.lavo import LAVO, past_memory, read
from models.diagrams.panel import Panel, matrix
from models.diagrams.probe import dependence, exact, require, same, tokens

SEEN = ("not seen", "in the memory", "in the memory and in the window", "in the window")


def memory(*, length: int = 16, width: int = 8, bases: int = 4, queries: int = 6) -> list[Panel]:
    """Figure 1: a context X is kept as r numbers, H = mean of B x, which queries read. One head of cross attention."""
    with exact():
        layer = LAVO(width, 1, pattern="noncausal_cross", max_length=length, bases=bases)
        # a mean that is not near 0, and queries that differ: a memory of pure noise is hard to see
        context, x = tokens(length, width) + 2 * torch.randn(width), 2 * tokens(queries, width)
        state = layer.init_state(1, context=context)["memory"]  # (1, 1, 1, R)
        b = layer.bases[0]  # (R, E)
        kept = context[0] @ b.mT  # (M, R)
        q = layer.q_proj(x)[0]  # (N, E)
        weights = (layer.global_scale * state[0, 0] * (q @ b.mT)).softmax(-1)  # (N, R)
        mean = same(state[0, 0, 0], kept.mean(0), "H, the layer's state, is the mean of B x")
        longer = layer.init_state(1, context=tokens(4 * length, width))["memory"]
        fixed = require(longer.shape == state.shape, f"A context of {4 * length} tokens leaves {bases} numbers, too.")
        given = read(layer.q_proj(x)[:, None], state, layer.bases, scale=layer.global_scale)[0, 0]
        output = same(weights @ (state[0, 0].mT * b), given, "The layer's output is these weights on the rows H_r b_r")
        identity = same(b @ b.mT, torch.eye(bases), "B B' is the identity")
        means = torch.cat([kept.mT, state[0, 0].mT], 1)  # (R, M + 1)
        names = [f"b{i + 1}" for i in range(bases)]
        of_bases = {"rows": "bases", "row_labels": names}
        read_rows = {"columns": "rows H_r b_r of the memory", "column_labels": [f"H{i + 1}" for i in range(bases)]}
        held = {"columns": "tokens, and the memory", "column_labels": [*map(str, range(length)), "H"]}
        square = {**of_bases, "columns": "bases", "column_labels": names, "numbers": True}
        return [
            matrix("Context X", context[0], rows="tokens", columns="channels", signed=True),
            matrix("Orthogonal bases B", b, **of_bases, columns="channels", signed=True),
            matrix("B B'", b @ b.mT, **square, notes=[identity]),
            matrix(
                "B x of every token, and their mean H",
                means,
                **of_bases,
                **held,
                column_lines=[length],
                signed=True,
                notes=[mean, fixed],
            ),
            matrix(
                "Weights of the queries on the memory",
                weights,
                rows="queries",
                **read_rows,
                numbers=True,
                notes=[output],
            ),
        ]


def dissection(
    *, length: int = 16, window: int = 4, causal: bool = True, dissected: bool = True, title: str = ""
) -> Panel:
    """Figure 2: what of the context each query sees in its window, and what in its memory of local features.

    `dissected=False` is Table 9's "w/o cd", which remembers the tokens up to the query themselves.
    """
    with exact():
        pattern = "causal_self" if causal else "noncausal_self"
        layer = LAVO(8, 1, pattern=pattern, max_length=length, bases=4, window=window, dissection=dissected)
        x = tokens(length, 8)
        remembered = remembered_tokens(layer, length)
        everything = dependence(layer(x)[0], x)
        with torch.no_grad():
            layer.bases.zero_()  # no memory: what is left is the window
        near = dependence(layer(x)[0], x)
        allowed = torch.ones(length, length).tril().bool() if causal else torch.ones(length, length).bool()
        width = window if causal else 2 * window - 1
        reached = "every token up to the query and none after it" if causal else "every token"
        exactly = (everything == allowed).all() and ((near | remembered) == everything).all()
        notes = [
            require(near.sum(1).max() == width, f"A query's window has {width} tokens, its own among them."),
            require(exactly, f"The gradient of the output reaches {reached}."),
        ]
        return matrix(
            title or pattern,
            torch.where(near, 3 - remembered.long(), remembered.long()),
            rows="queries",
            columns="tokens of the context",
            levels=SEEN,
            row_lines=range(window, length, window),
            column_lines=range(window, length, window),
            notes=notes,
        )


def remembered_tokens(layer: LAVO, length: int) -> Tensor:
    """(N, N) True where the memory that query i reads holds the local features of token j."""
    if not layer.pattern.causal:
        return torch.ones(length, length, dtype=torch.bool)
    features = tokens(length, layer.head_dim)
    window = layer.window if layer.dissection else None
    memories = past_memory(features[:, None], layer.bases, window=window)[0]  # (1, W, R)
    per_memory = 1 if window is None else window
    return dependence(memories, features).repeat_interleave(per_memory, 0)[:length]


def position_index(*, length: int = 8, window: int = 4, causal: bool = True, title: str = "") -> Panel:
    """Figure 3: which number of the position encoding P is added to the logit of query i and key j.

    All queries are 0, so that P alone makes the weights, and the values are unit vectors, so that the output is the
    weights. A weight rises with one number of P, the one that its own logit has. One token before those that are
    drawn keeps the first of them from being alone with itself, where its weight is 1 whatever P is.
    """
    with exact():
        length += 1
        pattern = "causal_self" if causal else "noncausal_self"
        layer = LAVO(length, 1, pattern=pattern, max_length=length, bases=1, window=window)
        with torch.no_grad():
            for weight in (layer.q_proj.weight, layer.bases):
                weight.zero_()
            for linear in (layer.v_proj, layer.out_proj):
                torch.nn.init.eye_(linear.weight)
            layer.position_bias.normal_()
        bias = layer.position_bias
        weights = layer(torch.eye(length)[None])[0][0]  # (N, N)
        index: list[list[float | None]] = [[None] * length for _ in range(length)]
        for i in range(length):
            for j in range(length):
                (rise,) = torch.autograd.grad(weights[i, j], bias, retain_graph=True)
                if (rise > 0).sum() == 1:
                    index[i][j] = float(rise[0].argmax())
        index = [row[1:] for row in index[1:]]
        places = [(i, j, m) for i, row in enumerate(index) for j, m in enumerate(row) if m is not None]
        last = window - 1 if causal else 2 * window - 2
        notes = [
            require(all(m == j - i + window - 1 for i, j, m in places), "The index is j - i + w - 1 for every pair."),
            require({m for *_, m in places} == set(range(last + 1)), f"Numbers 0 to {last} of P are read."),
        ]
        return matrix(title or pattern, index, rows="queries i", columns="keys j", numbers=True, notes=notes)
