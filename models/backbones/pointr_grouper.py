"""Point proxies: some points of a cloud and their surroundings (Yu et al., 2021, arXiv 2108.08839, section 3.2).

Four graph convolutions (DGCNN: Wang et al., 2019, arXiv 1801.07829); the second and the fourth reduce the points by
farthest point sampling:

    f_i' = max_j LeakyReLU(GroupNorm(W [f_j - f_i, f_i]))       j among the k points nearest to i

W is applied to points, not to pairs: W [f_j - f_i, f_i] = W_1 f_j + (W_2 - W_1) f_i with W = [W_1, W_2].

    B batch, N points, Q centres, k neighbours, C channels
"""

import torch.nn.functional as F
from torch import Tensor, nn

from models.ops.point_clouds import gather_points, neighbours

SLOPE = 0.2  # for every LeakyReLU
WIDTH_DIVISORS = (16, 4, 2, 2, 1)  # divisors of the last width: 8, 32, 64, 64, 128 as published
GROUPS = 4


def edge_parts(linear: nn.Linear, features: Tensor, centres: Tensor) -> tuple[Tensor, Tensor]:
    """linear([f_j - f_i, f_i]) = near_j + centre_i: near (B, N, C') from features (B, N, C), centre (B, Q, C')."""
    near, centre = linear.weight.chunk(2, 1)
    return F.linear(features, near), F.linear(centres, centre - near, linear.bias)


class GraphConvolution(nn.Module):
    """f_i' for centres (B, Q, C) from features (B, N, C) at index (B, Q, k) -> (B, Q, C')."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.linear = nn.Linear(2 * inputs, outputs, bias=False)
        self.norm = nn.GroupNorm(GROUPS, outputs)

    def forward(self, features: Tensor, centres: Tensor, index: Tensor) -> Tensor:
        near, centre = edge_parts(self.linear, features, centres)
        pairs = gather_points(near, index) + centre.unsqueeze(2)  # (B, Q, k, C')
        return F.leaky_relu(self.norm(pairs.movedim(-1, 1)).amax(-1), SLOPE).mT


class Grouper(nn.Module):
    """A cloud (B, N, 3) -> (points of its proxies (B, proxies, 3), their features (B, proxies, dim)).

    The second convolution keeps `middle` points, the fourth keeps `proxies` of them (D-35). Raises ValueError for
    increasing sizes, fewer points than `neighbours`, and a width that is not a multiple of 16.
    """

    def __init__(self, dim: int, *, points: int, middle: int, proxies: int, neighbours: int):
        super().__init__()
        if dim % WIDTH_DIVISORS[0]:
            raise ValueError(f"group_dim {dim} is not a multiple of {WIDTH_DIVISORS[0]}")
        if not neighbours <= middle <= points or proxies > middle:
            sizes = f"input_points {points}, middle {middle}, proxies {proxies}, neighbours {neighbours}"
            raise ValueError(f"{sizes}: input_points >= middle >= proxies, and middle >= neighbours, must hold")
        self.middle, self.proxies, self.neighbours = middle, proxies, neighbours
        first, *widths = [dim // divisor for divisor in WIDTH_DIVISORS]
        self.inputs = nn.Linear(3, first)
        nn.init.xavier_normal_(self.inputs.weight)
        self.convolutions = nn.ModuleList(map(GraphConvolution, [first, *widths], widths))

    def forward(self, points: Tensor, order: Tensor) -> tuple[Tensor, Tensor]:
        """`order` (B, middle or more): indices of the farthest points, as `farthest_points` gives them."""
        first, second, third, fourth = self.convolutions
        features, near = self.inputs(points), neighbours(points, points, self.neighbours)
        features = first(features, features, near)
        order = order[:, : self.middle]
        features = second(features, gather_points(features, order), gather_points(near, order))
        centres = gather_points(points, order)
        near = neighbours(centres, centres, self.neighbours)
        features = third(features, features, near)
        kept = slice(self.proxies)  # the first of the farthest points are the farthest among them
        return centres[:, kept], fourth(features, features[:, kept], near[:, kept])
