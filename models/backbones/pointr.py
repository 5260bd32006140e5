"""PoinTr: point cloud completion as translation between sets (Yu et al., 2021, ICCV, arXiv 2108.08839).

    proxies F_i = input(f_i) + position(p_i)         for some input points p_i, with f_i from the grouper
    V = encoder(F)
    c = coarse(max_i summary(V_i))                   (Q, 3) centres of the missing part
    H = decoder(query([max, c]), V)
    fine = {c_q + fold(H_q)} and the input           step^2 points around each centre, a folded square (FoldingNet)

The attention under test fills the decoder's cross attention, the slot of LAVO Table 7; the others are softmax
attention. Neighbours take the time of all distances and the memory of one chunk of them. In LAVO's sizes, 3,584 queries
x 2^2 and 2,048 input points make 16,384 output points (D-35).

    B batch, N input points, M proxies, Q queries, S = step^2, D width, F summary width
"""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.attention.base import Attention, Pattern
from models.attention.vanilla import Vanilla
from models.backbones.config import LayerConfig
from models.backbones.layer import TransformerLayer, chain
from models.backbones.pointr_grouper import SLOPE, Grouper, edge_parts
from models.layers.norms import BatchNorm
from models.ops.point_clouds import farthest_points, gather_points, neighbours


def pointwise(inputs: int, outputs: int) -> nn.Linear:
    """Linear with Xavier-normal weights; in the published code a convolution with kernel 1."""
    linear = nn.Linear(inputs, outputs)
    nn.init.xavier_normal_(linear.weight)
    return linear


def init_truncated_normal(module: nn.Module) -> None:
    """Initialise a Linear with weights from N(0, 0.02^2) and a zero bias."""
    if isinstance(module, nn.Linear):
        nn.init.trunc_normal_(module.weight, std=0.02)
        nn.init.zeros_(module.bias)


def linear_of_parts(linear: nn.Linear, *parts: Tensor) -> Tensor:
    """linear(cat(parts, -1)) for parts that broadcast; each is multiplied before it is expanded."""
    weights = linear.weight.split([part.shape[-1] for part in parts], 1)
    return sum(map(F.linear, parts, weights)) + linear.bias


def mlp(linear: Callable[[int, int], nn.Linear], inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    """Linear, batch norm, LeakyReLU, Linear: (B, N, inputs) -> (B, N, outputs)."""
    return nn.Sequential(linear(inputs, hidden), BatchNorm(hidden), nn.LeakyReLU(SLOPE), linear(hidden, outputs))


class GeometryFusion(nn.Module):
    """Attention output y (B, N, D) merged with the k source points (B, M, D) around each query, index (B, N, k).

        W' [y_i, max_j LeakyReLU(W [v_j - q_i, q_i] + b)] + b'

    Only the layers that use it have one. The published code creates one per layer: 11.2 M unused parameters.
    """

    def __init__(self, dim: int):
        super().__init__()
        self.edges, self.merge = nn.Linear(2 * dim, dim), nn.Linear(2 * dim, dim)
        self.apply(init_truncated_normal)

    def forward(self, y: Tensor, queries: Tensor, source: Tensor, index: Tensor) -> Tensor:
        near, centre = edge_parts(self.edges, source, queries)
        around = F.leaky_relu(gather_points(near, index).amax(2) + centre, SLOPE)  # LeakyReLU is monotone
        return self.merge(torch.cat([y, around], -1))


class PoinTrEncoderLayer(TransformerLayer):
    """A pre-LN layer whose attention is geometry-aware if `geometry`."""

    def __init__(self, attention: Attention, dim: int, ffn_dim: int, dropout: float, *, geometry: bool):
        super().__init__(attention, LayerConfig(dim=dim, ffn_dim=ffn_dim, dropout=dropout))
        self.geometry = GeometryFusion(dim) if geometry else None
        self.ffn.apply(init_truncated_normal)

    def forward(self, x: Tensor, index: Tensor) -> Tensor:
        """x (B, N, D), index (B, N, k) of each point's k nearest points -> (B, N, D)."""
        return self.feed_forward(self.geometry_attend(x, index))

    def geometry_attend(self, x: Tensor, index: Tensor) -> Tensor:
        """Self-attention with its norm and residual, merged with the points around each point."""
        normed = self.attention_norm(x)
        y, _ = self.attention(normed)
        if self.geometry is not None:
            y = self.geometry(y, normed, normed, index)
        return x + self.dropout(y)


class PoinTrDecoderLayer(PoinTrEncoderLayer):
    """An encoder layer with `cross` attention to the proxies before the feed-forward network."""

    def __init__(
        self, attention: Attention, cross: Attention, dim: int, ffn_dim: int, dropout: float, *, geometry: bool
    ):
        super().__init__(attention, dim, ffn_dim, dropout, geometry=geometry)
        self.cross, self.cross_norm, self.source_norm = cross, nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.cross_geometry = GeometryFusion(dim) if geometry else None

    def forward(self, x: Tensor, index: Tensor, source: Tensor, near: Tensor, carry: Any) -> tuple[Tensor, Any]:
        """x (B, Q, D) with index (B, Q, k), source (B, M, D) with near (B, Q, k) -> (x, carry for the next layer)."""
        x = self.geometry_attend(x, index)
        queries, source = self.cross_norm(x), self.source_norm(source)
        y, carry = self.cross(queries, source, carry=carry)
        if self.cross_geometry is not None:
            y = self.cross_geometry(y, queries, source, near)
        return self.feed_forward(x + self.dropout(y)), carry


class FoldingLayer(nn.Module):
    """Coordinates (B, Q, S, P) and features (B, Q, D) -> new coordinates (B, Q, S, 3)."""

    def __init__(self, places: int, dim: int, hidden: int):
        super().__init__()
        self.first = nn.Linear(dim + places, hidden)
        half = [BatchNorm(hidden), nn.ReLU(), nn.Linear(hidden, hidden // 2)]
        self.rest = nn.Sequential(*half, BatchNorm(hidden // 2), nn.ReLU(), nn.Linear(hidden // 2, 3))

    def forward(self, places: Tensor, features: Tensor) -> Tensor:
        return self.rest(linear_of_parts(self.first, features.unsqueeze(2), places))


class FoldingNet(nn.Module):
    """Features (B, Q, D) -> step^2 points around the origin per feature, (B, Q, step^2, 3)."""

    def __init__(self, dim: int, hidden: int, step: int):
        super().__init__()
        side = torch.linspace(-1, 1, step)
        self.register_buffer("square", torch.cartesian_prod(side, side), persistent=False)
        self.first, self.second = FoldingLayer(2, dim, hidden), FoldingLayer(3, dim, hidden)

    def forward(self, features: Tensor) -> Tensor:
        return self.second(self.first(self.square, features), features)


class PoinTr(nn.Module):
    """partial (B, N, 3) -> (coarse (B, Q + min(Q, N), 3), fine (B, output_points, 3)).

    coarse: the predicted centres, then the Q farthest input points, or all N. fine: S points around each centre, then
    the input. The loss uses both. `attention` is called for each decoder layer's cross attention as
    `attention(dim, heads, pattern=, max_length=, dropout=)`; the defaults are the published sizes. All attention is
    that of this repository, the same for all models in a table, with Xavier weights and biases of queries, keys and
    values; the published one has weights from N(0, 0.02^2) and no such biases.

    Raises ValueError for sizes that do not fit: output_points is input_points + queries x step^2; see also `Grouper`.
    """

    def __init__(
        self,
        attention: Callable[..., Attention],
        *,
        pattern: Pattern | str = Pattern.NONCAUSAL_CROSS,
        input_points: int,
        output_points: int,
        queries: int = 224,
        middle: int = 512,
        proxies: int = 128,
        neighbours: int = 16,
        group_dim: int = 128,
        dim: int = 384,
        heads: int = 6,
        ffn_dim: int = 768,
        encoder_layers: int = 6,
        decoder_layers: int = 8,
        geometry_layers: int = 1,
        geometry_neighbours: int = 8,
        feature_dim: int = 1024,
        folding_dim: int = 256,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
    ):
        super().__init__()
        if Pattern(pattern) is not Pattern.NONCAUSAL_CROSS:
            raise ValueError(f"PoinTr's slot is {Pattern.NONCAUSAL_CROSS}, not {pattern}")
        step = math.isqrt(max(0, output_points - input_points) // queries)
        if not step or queries * step**2 + input_points != output_points:
            raise ValueError(
                f"output_points {output_points} is not input_points {input_points} + queries {queries} x a square; "
                f"{input_points + queries * max(step, 1) ** 2} would be"
            )
        if geometry_neighbours > min(queries, proxies):
            raise ValueError(
                f"geometry_neighbours {geometry_neighbours} of {queries} queries and of {proxies} proxies; "
                f"no more than {min(queries, proxies)}"
            )
        self.input_points, self.queries, self.geometry_neighbours = input_points, queries, geometry_neighbours
        self.grouper = Grouper(group_dim, points=input_points, middle=middle, proxies=proxies, neighbours=neighbours)
        self.samples = min(input_points, max(middle, queries))

        self.position = mlp(pointwise, 3, group_dim, dim)
        self.input = mlp(pointwise, group_dim, dim, dim)
        self.summary = mlp(pointwise, dim, feature_dim, feature_dim)
        self.coarse = nn.Sequential(
            nn.Linear(feature_dim, feature_dim), nn.ReLU(), nn.Linear(feature_dim, 3 * queries)
        ).apply(init_truncated_normal)
        self.query = pointwise(feature_dim + 3, feature_dim)
        self.query_rest = nn.Sequential(
            nn.LeakyReLU(SLOPE), pointwise(feature_dim, feature_dim), nn.LeakyReLU(SLOPE), pointwise(feature_dim, dim)
        )

        def softmax(length: int) -> Attention:
            return Vanilla(dim, heads, pattern=Pattern.NONCAUSAL_SELF, max_length=length, dropout=attention_dropout)

        def cross() -> Attention:
            length = max(queries, proxies)
            return attention(dim, heads, pattern=pattern, max_length=length, dropout=attention_dropout)

        self.encoder = nn.ModuleList(
            PoinTrEncoderLayer(softmax(proxies), dim, ffn_dim, dropout, geometry=number < geometry_layers)
            for number in range(encoder_layers)
        )
        self.decoder = nn.ModuleList(
            PoinTrDecoderLayer(softmax(queries), cross(), dim, ffn_dim, dropout, geometry=number < geometry_layers)
            for number in range(decoder_layers)
        )
        chain([layer.cross for layer in self.decoder])

        self.expand = mlp(nn.Linear, dim, feature_dim, feature_dim)
        self.reduce = nn.Linear(feature_dim + dim + 3, dim)
        self.fold = FoldingNet(dim, folding_dim, step)

    def forward(self, partial: Tensor) -> tuple[Tensor, Tensor]:
        """Raises ValueError for a cloud with another number of points than `input_points`."""
        if partial.shape[1] != self.input_points:
            raise ValueError(f"a cloud of {partial.shape[1]} points, but input_points is {self.input_points}")
        order = farthest_points(partial, self.samples)
        places, features = self.grouper(partial, order)  # (B, M, 3), (B, M, C)
        source = self.encode(places, features)  # (B, M, D)

        summary = self.summary(source).amax(1, keepdim=True)  # (B, 1, F)
        centres = self.coarse(summary[:, 0]).unflatten(-1, (-1, 3))  # (B, Q, 3)
        queries = self.query_rest(linear_of_parts(self.query, summary, centres))  # (B, Q, D)
        x = self.decode(queries, centres, source, places)  # (B, Q, D)

        summary = self.expand(x).amax(1, keepdim=True)
        points = self.fold(linear_of_parts(self.reduce, summary, x, centres)) + centres.unsqueeze(2)  # (B, Q, S, 3)
        sample = gather_points(partial, order[:, : self.queries])
        return torch.cat([centres, sample], 1), torch.cat([points.flatten(1, 2), partial], 1)

    def encode(self, places: Tensor, features: Tensor) -> Tensor:
        """Proxies at `places` (B, M, 3) with features (B, M, C) -> (B, M, D)."""
        index = neighbours(places, places, self.geometry_neighbours)
        x, position = self.input(features), self.position(places)
        for layer in self.encoder:
            x = layer(x + position, index)
        return x

    def decode(self, x: Tensor, centres: Tensor, source: Tensor, places: Tensor) -> Tensor:
        """Queries x (B, Q, D) at `centres` (B, Q, 3), source (B, M, D) at `places` (B, M, 3) -> (B, Q, D)."""
        index = neighbours(centres, centres, self.geometry_neighbours)
        near = neighbours(centres, places, self.geometry_neighbours)
        carry = None
        for layer in self.decoder:
            x, carry = layer(x, index, source, near, carry)
        return x
