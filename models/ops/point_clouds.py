"""Nearest and farthest points of a cloud, computed in chunks, without a tensor of all pairs.

    nearest           min_m |a_n - b_m|^2 and its argument m                    (Chamfer distance: Fan et al., 2017)
    neighbours        the k points nearest to each query                        (graphs of Wang et al., 2019, DGCNN)
    farthest_points   each point is the one farthest from all previous points   (Qi et al., 2017, PointNet++)

Distances are sums of squared differences, never |a|^2 - 2 ab + |b|^2, which loses precision far from the origin. Time
O(N M), memory O(B (N + M)) plus one chunk. Among equally distant points, `nearest` and `farthest_points` return the
first, `neighbours` an unspecified but reproducible one. Duplicate points are separate points.

    B batch, N and M points, Q queries, k neighbours
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from models.ops.precision import upcast
from models.ops.tiles import TileBudget

TILE = TileBudget(2**18, 2**26)  # distances in one chunk


def nearest(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """For each point in a (B, N, 3), the nearest in b (B, M, 3) -> (squared distance (B, N), index (B, N)).

    Both points of each pair receive gradients. The gradient of the distance's square root is infinite at 0. Raises
    ValueError for an empty b.
    """
    if b.shape[1] == 0:
        raise ValueError("the nearest point of an empty cloud is undefined")
    index = torch.cat([chunk.argmin(-1) for chunk in distances(a, b)], 1)
    return (upcast(a) - gather_points(upcast(b), index)).square().sum(-1), index


def neighbours(queries: Tensor, points: Tensor, k: int) -> Tensor:
    """Indices (B, Q, k) of the k points in (B, N, 3) that are nearest to each query (B, Q, 3), nearest first.

    Raises ValueError for more neighbours than points.
    """
    if k > points.shape[1]:
        raise ValueError(f"{k} neighbours in a cloud of {points.shape[1]} points: at most {points.shape[1]}")
    return torch.cat([chunk.topk(k, largest=False).indices for chunk in distances(queries, points)], 1)


@torch.no_grad()
def farthest_points(points: Tensor, count: int) -> Tensor:
    """Indices (B, count) of points (B, N, 3) that are far apart, in order; the first is point 0.

    Raises ValueError if the cloud has fewer points.
    """
    batch, length, _ = points.shape
    if count > length:
        raise ValueError(f"{count} points from a cloud of {length}: at most {length}")
    axes = upcast(points).permute(2, 0, 1).contiguous()  # (3, B, N)
    chosen = torch.zeros(batch, count, dtype=torch.long, device=points.device)
    distance = axes.new_full((batch, length), torch.inf)  # to the nearest chosen point
    for number in range(1, count):
        last = chosen[:, number - 1].expand(len(axes), -1).unsqueeze(-1)  # (3, B, 1)
        torch.minimum(distance, (axes - axes.gather(2, last)).square_().sum(0), out=distance)
        torch.argmax(distance, dim=1, out=chosen[:, number])
    return chosen


def gather_points(features: Tensor, index: Tensor) -> Tensor:
    """Rows of features (B, N, C) at index (B, ...): (B, ..., C)."""
    first = torch.arange(0, features.shape[0] * features.shape[1], features.shape[1], device=index.device)
    # indexing rows of a matrix: unlike for `gather`, the gradient's summation order is deterministic on a GPU
    return features.flatten(0, 1)[index + first.view(-1, *[1] * (index.dim() - 1))]


@torch.no_grad()
def distances(a: Tensor, b: Tensor) -> Iterator[Tensor]:
    """Squared distances (B, n, M) of a (B, N, 3) to b (B, M, 3), n points of a at a time; chunks share one buffer.

    An empty a yields one empty chunk.
    """
    a_axes, b_axes = upcast(a).unbind(-1), upcast(b).mT.contiguous().unbind(1)
    length = a.shape[1]
    rows = max(1, TILE.fit(a, max(1, b_axes[0].numel()), length))
    # one buffer: repeated allocations between small tensors might each return new memory
    room = b_axes[0].new_empty(2, len(b), rows, b.shape[1])
    for start in range(0, max(1, length), rows):
        total, difference = room[:, :, : min(rows, length - start)]
        total.zero_()
        for x, y in zip(a_axes, b_axes, strict=True):
            torch.sub(x[:, start : start + rows, None], y[:, None], out=difference)
            total.addcmul_(difference, difference)
        yield total
