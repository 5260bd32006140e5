"""Pathfinder images: two long dashed snakes, short ones between them, and a disc at each end of a path.

Source: Linsley et al. 2018 and Kim et al. 2020, drewlinsley/pathfinder as of 2019 (`snakes2.py`, `snakes.py`), with the
arguments of google-research/long-range-arena `lra_benchmarks/data/pathfinder.py`. The label is 1 if both discs are on
the same snake. With L = dash length, m = margin, a mask of what is taken (a border of `padding` pixels, then every
dash with its margin), and d = seed distance:

    first snake   orientation and tail uniform over what leaves 2 d pixels free on each side; the second begins d away
    next dash     its pivot lies L + 2 m further along the last orientation; its head is a pixel of the ring of radius
                  L + m around it, drawn by (1 - largest mask within m) cos^2(min(continuity x turn, 90 degrees));
                  three draws, refused where mask and dash add up to 1.8; a failure begins both snakes anew
    distractors   the same from a uniform place, five trials each, left out if none succeeds
    image         dashes drawn at twice the size, shrunk by Lanczos' filter, times their contrast; discs at contrast 1;
                  the maximum of all, stretched to 0..255 (scipy.misc.imsave)

Our readings of what 2019's code does besides (X6: later versions of it lose the discs):
- A pixel whose dash would lie outside the image stops the search for a seed altogether. Where the margin is one pixel
  only the 31 orientations from -150 to -120 degrees (up and to the left) are left to the first snake's seed and to
  those of distractors, most of which fail: two of five are there on average.
- The targets' contrast is 0.75 x 2, that of distractors 2: brightness tells them apart (X5). `distractor_contrast=1.5`
  removes the cue.
- 14 is the contour's length; distractors have 14 // 3 = 4 dashes, and there are at most 20 // 4 = 5 of them.
- Displacements are rounded at 1e-9 before they are rounded up, so that no library's last digit of a sine counts.

How: every orientation's sprite, ring, weight and step is in a table, a snake's neighbourhood is looked at in place of
dilating the image, and the loops are compiled (`pathfinder_kernel`). A seed gives the same bytes for any number of
processes and with or without numba; sprites are Pillow's, so their digest is part of a cache key.
"""

from functools import partial
from typing import NamedTuple

import numpy as np

from tasks.checks import DataError
from tasks.examples import Examples, Shards
from tasks.lra.pathfinder_tables import LRA, Design, ring, tables

VERSION = 1  # part of every cache key: raise it when the same seed gives other images
BLOCK = 64  # images of one stream; the images depend on it
SHARD = 4096  # images of a file of the cache; no image depends on it


class Memory(NamedTuple):
    """What one image is drawn with. A snake's first row is its pivot and orientation, the others are its dashes."""

    mask: np.ndarray  # (3, W, W) uint8: the mask, the mask before a distractor, the mask of an empty image
    snakes: np.ndarray  # (2, dashes + 1, 3) int64: row, column and orientation, or sprite
    sums: np.ndarray  # (R,) float64: of the ring's weights


def generate(count: int, design: Design = LRA, *, seed: int = 0, start: int = 0) -> Examples:
    """Images start, ..., start + count - 1 of an endless sequence, row by row.

    Raises DataError if the two long snakes seem to have no room.
    """
    first = start - start % BLOCK
    pixels = np.empty((start - first + count, design.size, design.size), np.uint8)
    labels = np.empty(len(pixels), np.uint8)
    for block in range(0, len(pixels), BLOCK):
        draw_block(design, seed, (first + block) // BLOCK, pixels[block : block + BLOCK], labels[block : block + BLOCK])
    offsets = np.arange(count + 1, dtype=np.int64) * design.size**2
    return Examples(pixels[start - first :].reshape(-1), offsets, labels[start - first :])


def shards(start: int, count: int, design: Design = LRA, *, seed: int = 0) -> Shards:
    """The same images as `generate` makes, in shards for several processes."""
    from tasks.lra import pathfinder_kernel

    title = "generating Pathfinder" if pathfinder_kernel.COMPILED else "generating Pathfinder slowly (numba is missing)"
    stop = start + count
    makers = [
        partial(generate, min(SHARD, stop - first), design, seed=seed, start=first)
        for first in range(start, stop, SHARD)
    ]
    return Shards(makers, count, title)


def draw_block(design: Design, seed: int, block: int, pixels: np.ndarray, labels: np.ndarray) -> int:
    """Fill pixels (n, W, W) and labels (n,), a pure function of the first three. Returns the number of restarts."""
    from tasks.lra import pathfinder_kernel as kernel

    state = stream(seed, block)
    materials = [(tables(design, margin), memory(design, margin)) for margin in design.margins]
    lengths = np.array([design.contour_length, design.distractor_length, design.distractors])
    layers = np.zeros((len(labels), 3, design.size, design.size), np.uint8)
    tries = 0
    for i, image in enumerate(layers):
        labels[i] = kernel.below(state, 2)
        material = materials[kernel.below(state, len(materials))]
        begun = kernel.draw(*material, state, int(labels[i]), lengths, image)
        if not begun:
            room = f"{design.size} x {design.size} pixels"
            problem = f"found no room for two snakes of {design.contour_length} dashes in {room}"
            raise DataError(problem, "change task.design")
        tries += begun
    contrast = np.array([design.target_contrast, design.distractor_contrast, 1.0])[:, None, None]
    shown = (layers / 255 * contrast).max(1)  # (n, W, W)
    lowest, highest = shown.min((1, 2), keepdims=True), shown.max((1, 2), keepdims=True)
    pixels[:] = (shown - lowest) * (255 / (highest - lowest)) + 0.5
    return tries


def stream(seed: int, block: int) -> np.ndarray:
    """State (4,) int64 of the random numbers of one block."""
    return np.append(np.random.SeedSequence([seed, block]).generate_state(3, np.uint32).astype(np.int64), 1)


def memory(design: Design, margin: int) -> Memory:
    mask = np.zeros((3, design.size, design.size), np.uint8)
    mask[2] = 255
    mask[2, design.padding : -design.padding, design.padding : -design.padding] = 0
    return Memory(
        mask,
        snakes=np.zeros((2, 1 + max(design.contour_length, design.distractor_length), 3), np.int64),
        sums=np.zeros(len(ring(design.dash_length + margin)), np.float64),
    )
