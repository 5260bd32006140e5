"""Completion by the training shape that fits best: the nearest neighbour of a partial cloud (Tatarchenko et al., 2019,
"What Do Single-view 3D Reconstruction Networks Learn?").

The distance of a partial cloud p and a training shape s is one-sided, since p is a part: the mean over points of p of
the squared distance to the nearest point of s.

    B clouds, n points of a partial cloud, m of a complete one, T training shapes
"""

import torch
from torch import Tensor

POINTS = 64  # of a partial cloud and of each training shape, by which they are compared
AT_ONCE = 16  # training shapes


class NearestShape:
    """Gives the complete cloud of the nearest training shape, in a model's format: coarse and fine.

    `shapes`: complete clouds of training shapes, (T, m, 3). With B partial clouds it takes B T POINTS^2 distances.
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
