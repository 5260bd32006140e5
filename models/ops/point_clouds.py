"""Which points of a cloud are near, and which are far apart: chunked, so that no tensor of all pairs is made.

    nearest           min_m |a_n - b_m|^2 and the m that it is at               (Chamfer distance: Fan et al., 2017)
    neighbours        the k points nearest to each query                        (graphs of Wang et al., 2019, DGCNN)
    farthest_points   each next point is the one farthest from all before it    (Qi et al., 2017, PointNet++)

Distances are sums of squared differences, never |a|^2 - 2 ab + |b|^2, which loses a cloud's detail far from the origin.
Time O(N M), memory O(limit + B (N + M)). Of several points at one distance the first counts in `nearest` and in
`farthest_points`; in `neighbours` it is not said which, but always the same. A copy of a point is a point like others.

    B batch, N and M points, Q queries, k neighbours
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from models.ops.precision import upcast

# numbers in one chunk of distances: what a core's cache holds, what fills a GPU
LIMIT_CPU, LIMIT_GPU = 2**18, 2**26


def nearest(a: Tensor, b: Tensor, *, limit: int | None = None) -> tuple[Tensor, Tensor]:
    """Of each point of a (B, N, 3) the nearest one of b (B, M, 3) -> (squared distance (B, N), its index (B, N)).

    The gradient goes to both points of each pair. That of a square root of the distance is infinite where it is 0.
    `limit` is the number of distances held at once, M B at least. Raises ValueError for an empty b.
    """
    if b.shape[1] == 0:
        raise ValueError("no point is nearest in a cloud of none")
    index = torch.cat([chunk.argmin(-1) for chunk in distances(a, b, limit)], 1)
    return (upcast(a) - gather_points(upcast(b), index)).square().sum(-1), index


def neighbours(queries: Tensor, points: Tensor, k: int, *, limit: int | None = None) -> Tensor:
    """Indices (B, Q, k) of the k points (B, N, 3) nearest to each query (B, Q, 3), nearest first.

    `limit` as in `nearest`. Raises ValueError for more neighbours than points.
    """
    if k > points.shape[1]:
        raise ValueError(f"{k} neighbours of a cloud of {points.shape[1]} points; no more than {points.shape[1]}")
    return torch.cat([chunk.topk(k, largest=False).indices for chunk in distances(queries, points, limit)], 1)


@torch.no_grad()
def farthest_points(points: Tensor, count: int) -> Tensor:
    """Indices (B, count) of points (B, N, 3) that are far apart, in order; the first is point 0.

    Raises ValueError for more points than there are.
    """
    batch, length, _ = points.shape
    if count > length:
        raise ValueError(f"{count} points of a cloud of {length}; no more than {length}")
    axes = upcast(points).permute(2, 0, 1).contiguous()  # (3, B, N)
    chosen = torch.zeros(batch, count, dtype=torch.long, device=points.device)
    distance = axes.new_full((batch, length), torch.inf)  # to the nearest chosen point
    for number in range(1, count):
        last = chosen[:, number - 1].expand(len(axes), -1).unsqueeze(-1)  # (3, B, 1)
        torch.minimum(distance, (axes - axes.gather(2, last)).square_().sum(0), out=distance)
        torch.argmax(distance, dim=1, out=chosen[:, number])
    return chosen


def gather_points(features: Tensor, index: Tensor) -> Tensor:
    """Rows of features (B, N, C) at index (B, ...) -> (B, ..., C)."""
    first = torch.arange(0, features.shape[0] * features.shape[1], features.shape[1], device=index.device)
    # rows of a matrix: unlike that of `gather`, their gradient is summed in one order on a GPU too
    return features.flatten(0, 1)[index + first.view(-1, *[1] * (index.dim() - 1))]


@torch.no_grad()
def distances(a: Tensor, b: Tensor, limit: int | None) -> Iterator[Tensor]:
    """Squared distances (B, n, M) of a (B, N, 3) to b (B, M, 3), n points of a at a time; the next chunk overwrites it.

    One empty chunk where a is empty.
    """
    if limit is None:
        limit = LIMIT_GPU if a.is_cuda else LIMIT_CPU
    a_axes, b_axes = upcast(a).unbind(-1), upcast(b).mT.contiguous().unbind(1)
    length, rows = a.shape[1], max(1, min(limit // max(1, b_axes[0].numel()), a.shape[1]))
    # always the same memory: an allocator asked for it again between small pieces may return a new place each time
    room = b_axes[0].new_empty(2, len(b), rows, b.shape[1])
    for start in range(0, max(1, length), rows):
        total, difference = room[:, :, : min(rows, length - start)]
        total.zero_()
        for x, y in zip(a_axes, b_axes, strict=True):
            torch.sub(x[:, start : start + rows, None], y[:, None], out=difference)
            total.addcmul_(difference, difference)
        yield total
