"""Dilated attention, from LongNet's layer: segments, ratios, the offsets of the heads, and the mixture of branches."""

from collections.abc import Sequence

import torch
from torch import Tensor

from models.attention.longnet import LongNet
from models.diagrams.panel import Panel, matrix
from models.diagrams.probe import exact, require, same, tokens, unit_values

SHARPER = 2.0  # weights of an untrained layer are nearly equal: larger logits show that the branches differ


def branches(
    *, length: int = 16, heads: int = 4, segments: Sequence[int] = (4, 8, 16), ratios: Sequence[int] = (1, 2, 4)
) -> list[Panel]:
    """What each branch and the mixture compute in the first head, and which tokens each head takes in each branch."""
    with exact():
        options = {"pattern": "causal_self", "max_length": length}
        layer = LongNet(length * heads, heads, **options, segments=segments, ratios=ratios)
        single = [
            LongNet(length * heads, heads, **options, segments=[w], ratios=[r])
            for w, r in zip(segments, ratios, strict=True)
        ]
        x = SHARPER * tokens(length, length * heads)
        q, k = (layer.project(linear, x) for linear in (layer.q_proj, layer.k_proj))  # (1, H, N, E)
        parts = [branch.attend(q, k, unit_values(length, heads), None)[0] for branch in single]  # (H, N, N) weights
        whole = layer.attend(q, k, unit_values(length, heads), None)[0]
        names = [f"w = {w}, r = {r}" for w, r in zip(segments, ratios, strict=True)]
        panels = [
            pattern(part[0] > 0, w, r, name)
            for part, w, r, name in zip(parts, segments, ratios, names, strict=True)
        ]  # fmt: skip
        panels.append(participation(parts, ratios, heads, length))
        return [*panels, *mixture(parts, whole, (q @ k.mT)[0] * layer.head_dim**-0.5, names)]


def pattern(seen: Tensor, segment: int, ratio: int, name: str) -> Panel:
    """The pairs of one branch in the first head."""
    length = len(seen)
    token = torch.arange(length)
    takes = token % segment % ratio == 0
    law = (token[:, None] // segment == token // segment) & takes[:, None] & takes & (token <= token[:, None])
    return matrix(
        f"Head 1, branch {name}",
        seen.long(),
        rows="queries",
        columns="keys",
        levels=["not seen", "seen"],
        row_lines=range(segment, length, segment),
        column_lines=range(segment, length, segment),
        notes=[require((seen == law).all(), f"{int(seen.sum())} pairs.")],
    )


def participation(parts: list[Tensor], ratios: Sequence[int], heads: int, length: int) -> Panel:
    """Heads by tokens, one block of rows for each branch: 1 where the head takes the token."""
    takes = [(part.sum(-1) > 0).long() for part in parts]  # (H, N)
    covered = all(bool((taken.sum(0) > 0).all()) for taken in takes)
    shares = all(int(taken.sum()) * ratio == heads * length for taken, ratio in zip(takes, ratios, strict=True))
    return matrix(
        "Tokens that each head takes",
        torch.cat(takes),
        columns="tokens",
        levels=["left out", "taken"],
        row_labels=[f"r = {ratio}, head {h + 1}" for ratio in ratios for h in range(heads)],
        row_lines=[heads * i for i in range(1, len(takes))],
        notes=[
            require(covered, "Offsets differ between heads: in each branch some head takes each token."),
            require(shares, "A head takes one r-th of the tokens."),
        ],
    )


def mixture(parts: list[Tensor], whole: Tensor, scores: Tensor, names: list[str]) -> list[Panel]:
    """alpha and the weights of the mixture. parts, whole, scores: (H, N, N)."""
    sums = torch.stack([scores.masked_fill(part == 0, -torch.inf).logsumexp(-1) for part in parts])  # (b, H, N)
    alpha = sums.softmax(0)
    mixed = sum(share[..., None] * part for share, part in zip(alpha, parts, strict=True))
    count = torch.stack([part[0] > 0 for part in parts]).sum(0)
    equal = same(mixed, whole, "The layer is the sum of alpha times branch, alpha from the branches' softmax sums")
    ones = require((alpha.sum(0) - 1).abs().max() < 1e-12, "The alphas of a token add up to 1.")
    return [
        matrix(
            "Head 1: branches that see a pair",
            count,
            rows="queries",
            columns="keys",
            levels=["none", "one", "two", "three", "four", "five"][: len(parts) + 1],
        ),
        matrix(
            "Head 1: alpha of each branch",
            alpha[:, 0].mT,
            rows="tokens",
            columns="",
            column_labels=[name.replace(", ", "\n") for name in names],
            notes=[ones],
        ),
        matrix("Head 1: weights of the mixture", whole[0], rows="queries", columns="keys", notes=[equal]),
    ]


def cost(
    *,
    lengths: Sequence[int] = (16, 32, 64, 128),
    segments: Sequence[int] = (4, 8, 16),
    ratios: Sequence[int] = (1, 2, 4),
) -> Panel:
    """Pairs of query and key by the length, counted in the weights of all heads, against those of full attention."""
    with exact():
        heads, rows = max(ratios), []
        for length in lengths:
            options = {"pattern": "causal_self", "max_length": length}
            q, values, pairs = torch.zeros(1, heads, length, length), unit_values(length, heads), 0
            for w, r in zip(segments, ratios, strict=True):
                layer = LongNet(heads, heads, **options, segments=[w], ratios=[r])
                pairs += int((layer.attend(q, q, values, None) > 0).sum())
            rows.append([length, pairs / heads, length * (length + 1) / 2])
    longest = max(segments)
    linear = all(count * longest == rows[0][1] * n for n, count, _ in rows if n % longest == 0)
    return matrix(
        "Pairs of query and key, mean of the heads",
        rows,
        column_labels=["tokens", "dilated", "full"],
        numbers=True,
        shaded=False,
        notes=[
            require(linear and rows[0][0] == longest, "Dilated pairs grow as the length does, full ones as its square.")
        ],
    )
