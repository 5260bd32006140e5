"""The distance between two clouds of points: Chamfer distances (Fan et al., 2017), F-score (Tatarchenko et al., 2019).

With d1 the distance of each predicted point to the nearest of the target, and d2 that of each target point to the
nearest predicted one:

    CD-L1 = (mean d1 + mean d2) / 2     CD-L2 = mean d1^2 + mean d2^2     F = 2 P R / (P + R), 0 if P + R = 0
    P = share of d1 below tau           R = share of d2 below tau           tau = 0.01 unless given

Scores are 1000 CD-L1, 1000 CD-L2 and F, a share; the loss is CD-L1 itself. Time O(N M), memory as `nearest` bounds it.
PoinTr's code treats points whose coordinates sum to 0 as padding: it leaves them out of the scored Chamfer distances,
but not out of the F-score or the loss. `ignore_zeros` does the same. A cloud that has only such points keeps them.

    B clouds, N predicted points, M target points, C categories
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from models.ops.point_clouds import gather_points, nearest
from models.ops.precision import upcast
from tasks.metrics import Sums

NAMES = ("cd_l1", "cd_l2", "f1")
THRESHOLD = 0.01  # of the published F-score, in units of the coordinates
SCALE = 1000
POINTS = 64  # of a partial cloud and of each training shape, by which the nearest shape is found
AT_ONCE = 16  # training shapes


def chamfer_l1(prediction: Tensor, target: Tensor) -> Tensor:
    """CD-L1 of clouds (B, N, 3) and (B, M, 3), the mean over clouds: a scalar in units of the coordinates.

    A point at distance 0 has no gradient, because the gradient of the square root is infinite there.
    """
    return sum(_root(squares).mean() for squares in _both_ways(prediction, target)) / 2


def scores(prediction: Tensor, target: Tensor, *, ignore_zeros: bool = False, threshold: float = THRESHOLD) -> Tensor:
    """Scores (B, 3) float64, in the order of `NAMES`, of clouds (B, N, 3) and (B, M, 3). `threshold` is tau."""
    squares = _both_ways(prediction, target)
    near = [(_root(there) < threshold).double().mean(-1) for there in squares]
    f1 = 2 * near[0] * near[1] / (near[0] + near[1]).clamp_min(torch.finfo(torch.float64).tiny)
    clouds = (prediction, target)
    kept = [torch.ones_like(cloud[..., 0], dtype=torch.bool) for cloud in clouds]
    if ignore_zeros:
        kept = [_not_zero(cloud) for cloud in clouds]
        squares = _both_ways(*(_without(cloud, keep) for cloud, keep in zip(clouds, kept, strict=True)))
    l1 = sum(_mean(_root(there), keep) for there, keep in zip(squares, kept, strict=True)) / 2
    l2 = sum(_mean(there, keep) for there, keep in zip(squares, kept, strict=True))
    return torch.stack([SCALE * l1, SCALE * l2, f1], -1)


class CompletionScores(Sums):
    """Means over categories of the means of each, `cd_l1`, `cd_l2` and `f1`, and these, `cd_l1/<category>`.

    They are the same however a split is cut into batches. A category without examples counts for nothing.
    """

    def __init__(self, categories: Sequence[str]) -> None:
        super().__init__(len(categories), len(NAMES) + 1)  # scores, and the count
        self.categories = tuple(categories)

    def update(self, values: Tensor, category: Tensor) -> None:
        """`scores` (B, 3) float64 of clouds, and their categories (B,) int64."""
        member = F.one_hot(category, len(self.categories)).double()
        # no scattered sums, whose order is a GPU's
        self.sums += torch.cat([member.T @ values, member.sum(0, keepdim=True).T], 1)

    def compute(self) -> dict[str, Tensor]:
        mean, present = self.sums[:, :-1] / self.sums[:, -1:], self.sums[:, -1] > 0
        values = dict(zip(NAMES, mean[present].mean(0), strict=True))
        for number in present.nonzero().flatten().tolist():
            values |= {f"{name}/{self.categories[number]}": mean[number, i] for i, name in enumerate(NAMES)}
        return values


def _both_ways(prediction: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Squared distances to the nearest point of the other cloud: (B, N) and (B, M)."""
    return nearest(prediction, target)[0], nearest(target, prediction)[0]


def _root(squares: Tensor) -> Tensor:
    return upcast(squares).clamp_min(torch.finfo(squares.dtype).tiny).sqrt()


def _not_zero(cloud: Tensor) -> Tensor:
    """Mask (B, N) of the points that are not padding."""
    kept = cloud.sum(-1) != 0
    return kept | ~kept.any(-1, keepdim=True)


def _without(cloud: Tensor, kept: Tensor) -> Tensor:
    """The cloud with copies of its first kept point in the place of all others, so that none of these is nearest."""
    first = kept.int().argmax(-1)
    return torch.where(kept.unsqueeze(-1), cloud, gather_points(cloud, first.unsqueeze(1)))


def _mean(values: Tensor, kept: Tensor) -> Tensor:
    """Means (B,) float64 of the kept values (B, N)."""
    return (values.double() * kept).sum(-1) / kept.sum(-1)


class NearestShape:
    """Gives the complete cloud of the training shape that fits best, as coarse and as fine output (Tatarchenko, 2019).

    `shapes`: complete clouds of training shapes, (T, m, 3). The distance of a partial cloud and a shape is one-sided:
    the mean over its points of the squared distance to the shape's nearest point. B clouds take B T POINTS^2 of them.
    """

    def __init__(self, shapes: Tensor):
        self.shapes, self.saw = shapes, f"{len(shapes):,} shapes"

    def __call__(self, seen: Tensor) -> tuple[Tensor, Tensor]:
        few = _some(seen.float().cpu())  # (B, P, 3)
        squares = [
            torch.cdist(few[:, None], _some(part)[None]).square().amin(-1).mean(-1)  # (B, t)
            for part in self.shapes.split(AT_ONCE)
        ]
        nearest = self.shapes[torch.cat(squares, 1).argmin(1)].to(seen)
        return nearest, nearest


def _some(clouds: Tensor) -> Tensor:
    """(B, n, 3) -> (B, at most POINTS, 3), at equal steps: points have no order."""
    count = clouds.shape[1]
    return clouds[:, torch.linspace(0, count - 1, min(count, POINTS)).long()]
