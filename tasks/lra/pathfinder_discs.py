"""The distance of the two discs in a Pathfinder picture, which alone predicts much of its class.

The first disc is the one around which the levels within its radius add up to the most; the second disc is found
the same way once the first one is erased, so two that touch are also separated.

    B pictures, W pixels in a row
"""

import numpy as np
import torch
from torch.nn import functional as F

FINEST = 32  # a picture of more pixels in a row has no more keys than one of so many


def keys(size: int) -> int:
    """Numbers that `distance_key` may give."""
    return 2 * min(size, FINEST) ** 2


def distance_key(tokens: np.ndarray, size: int, radius: float) -> np.ndarray:
    """Grey levels (B, >= W^2), W = `size` -> (B,) int64, the square of the distance of the discs."""
    first, second = disc_places(tokens[:, : size**2].reshape(-1, size, size), radius)
    return ((first - second) ** 2).sum(1) * min(size, FINEST) ** 2 // size**2


def disc_places(pictures: np.ndarray, radius: float) -> tuple[np.ndarray, np.ndarray]:
    """Pictures (B, W, W) -> row and column of each of the two discs, (B, 2) int64."""
    size, reach = pictures.shape[1], int(radius)
    offset = torch.arange(-reach, reach + 1)
    disc = (offset[:, None] ** 2 + offset**2 <= radius**2).float()[None, None]
    levels = torch.from_numpy(np.ascontiguousarray(pictures, np.float32))[:, None]  # (B, 1, W, W)
    places = []
    for _ in range(2):
        brightest = F.conv2d(levels, disc, padding=reach).flatten(1).argmax(1)
        here = F.one_hot(brightest, size**2).float().reshape(levels.shape)
        levels = levels.masked_fill(F.conv2d(here, disc, padding=reach) > 0, 0.0)
        places.append(torch.stack([brightest // size, brightest % size], 1).numpy())
    return places[0], places[1]
