"""The ink of a Pathfinder picture near the line between its discs, for boosted trees.

Short paths are nearly straight, so the ink along the line tells whether the discs are joined, and following the path is
not required.

    B pictures, W pixels in a row, A places along the line, S places across it
"""

import numpy as np
from scipy.ndimage import map_coordinates

from tasks.lra.pathfinder_discs import disc_places

ALONG = np.linspace(-0.5, 1.5, 17)  # in units of the distance: 0 is the first disc, 1 the second
ACROSS = np.linspace(-1, 1, 9)  # in units of `reach` pixels, to both sides
REACH = 4.0  # pixels of a picture of 16 in a row, more of a larger one


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
