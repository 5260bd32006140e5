"""Pictures as vectors for the nearest neighbours: their levels, the pixels that are on, and both moved to the corner.

B pictures, W pixels in a row
"""

import numpy as np


def levels(tokens: np.ndarray, size: int) -> np.ndarray:
    """Grey levels (B, >= W^2), W = `size` -> (B, W^2) float32."""
    return tokens[:, : size**2].astype(np.float32)


def switched_on(tokens: np.ndarray, size: int) -> np.ndarray:
    """(B, >= W^2) -> (B, W^2) float32: 1 where a pixel is lighter than the darkest one of its picture, else 0."""
    pictures = tokens[:, : size**2]
    return (pictures > pictures.min(1, keepdims=True)).astype(np.float32)


def in_corner(pictures: np.ndarray, size: int) -> np.ndarray:
    """(B, W^2) -> (B, W^2): moved so that the first row and column with a pixel that is on are 0, dark where empty."""
    on = switched_on(pictures, size).reshape(-1, size, size)
    dark = pictures.min(1)[:, None, None]
    top, left = (on.max(axis).argmax(1) for axis in (2, 1))
    grid = np.arange(size)
    rows, columns = (grid + first[:, None] for first in (top, left))  # (B, W)
    inside = (rows < size)[:, :, None] & (columns < size)[:, None, :]
    number = np.arange(len(on))[:, None, None]
    moved = pictures.reshape(on.shape)[number, rows[:, :, None] % size, columns[:, None, :] % size]
    return np.where(inside, moved, dark).reshape(len(on), -1)
