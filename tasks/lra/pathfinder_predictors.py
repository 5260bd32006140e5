"""What a simple predictor reads of a Pathfinder picture: the distance of its discs, and the ink near the line between.

The distance alone predicts much of the class. The first disc is the one around which the levels within its radius add
up to the most; the second disc is found the same way once the first one is erased, so two that touch are also
separated. Short paths are nearly straight, so the ink along the line tells whether the discs are joined, and following
the path is not required.

    B pictures, W pixels in a row, A places along the line, S places across it
"""

import numpy as np
import torch
from scipy.ndimage import map_coordinates
from torch.nn import functional as F

ALONG = np.linspace(-0.5, 1.5, 17)  # in units of the distance: 0 is the first disc, 1 the second
ACROSS = np.linspace(-1, 1, 9)  # in units of `reach` pixels, to both sides
REACH = 4.0  # pixels of a picture of 16 in a row, more of a larger one


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


def line_ink(tokens: np.ndarray, size: int, radius: float) -> np.ndarray:
    """Grey levels (B, >= W^2), W = `size` -> (B, A S + A + S + 5) float32.

    Columns: the level at each place of a grid laid along the line, interpolated; the mean and the largest level over
    S and over A; the distance of the discs and their places.
    """
    pictures = tokens[:, : size**2].reshape(-1, size, size).astype(np.float32)
    first, second = (places.astype(np.float64) for places in disc_places(pictures, radius))
    first, second = ordered(first, second)
    step = second - first  # (B, 2) row, column
    distance = np.sqrt((step**2).sum(1, keepdims=True))
    across = np.stack([-step[:, 1], step[:, 0]], 1) / np.maximum(distance, 1) * REACH * max(1, size / 16)
    places = (
        first[:, None, None]
        + step[:, None, None] * ALONG[:, None, None]
        + across[:, None, None] * ACROSS[None, :, None]
    )  # (B, A, S, 2)
    number = np.broadcast_to(np.arange(len(pictures))[:, None, None], places.shape[:-1])
    ink = map_coordinates(pictures, [number, places[..., 0], places[..., 1]], order=1, cval=0.0)  # (B, A, S)
    parts = [ink.reshape(len(ink), -1), ink.mean(2), ink.mean(1), distance, first, second]
    return np.concatenate(parts, 1).astype(np.float32)


def ordered(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Places (B, 2) of two discs, the upper one first: which of them is brighter tells nothing."""
    swap = ((second - first) @ [1.0, 1e-3] < 0)[:, None]
    return np.where(swap, second, first), np.where(swap, first, second)
