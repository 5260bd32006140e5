"""A picture of completed shapes: the input, the prediction and the target.

A row is a shape, in orthographic projection from a direction that shows what was seen and more of what was not, the
same for all three clouds. Near points are dark. Under a prediction stands its CD-L1 times 1000.
"""

from collections.abc import Sequence

import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

ROWS = 4
SIDE = 1.75  # inches of a cloud
DRAWN = 1200  # points of a cloud at most
COLUMNS = {"input": "#1b6ca8", "prediction": "#c8551b", "target": "#3d4650"}  # and the colour of near points
SHADES = 8
FAR = 0.72  # share of white in that of the farthest


def draw(
    partial: np.ndarray, prediction: np.ndarray, complete: np.ndarray, names: Sequence[str], errors: Sequence[float]
) -> Figure:
    """Clouds (B, n, 3), (B, m, 3) and (B, m, 3) of B shapes, their names, and their CD-L1 times 1000."""
    figure = Figure(figsize=(3 * SIDE, (SIDE + 0.1) * len(names) + 0.3), layout="constrained")
    axes = figure.subplots(len(names), 3, squeeze=False)
    shapes = zip(partial, prediction, complete, names, errors, strict=True)
    for row, (seen, predicted, complete_cloud, name, error) in enumerate(shapes):
        camera = camera_of(seen, complete_cloud)
        middle = (complete_cloud.min(0) + complete_cloud.max(0)) / 2
        reach = 1.05 * np.linalg.norm(complete_cloud - middle, axis=1).max()
        for axis, cloud, (column, colour) in zip(
            axes[row], (seen, predicted, complete_cloud), COLUMNS.items(), strict=True
        ):
            scatter(axis, (cloud - middle) @ camera.T, reach, colour)
            if not row:
                axis.set_title(column, fontsize=10)
        for axis, text in zip(axes[row], (name.replace("_", " "), f"CD-L1 {error:.1f}"), strict=False):
            axis.text(0.5, 0, text, transform=axis.transAxes, ha="center", va="top", fontsize=8)
    return figure


def pick(labels: np.ndarray) -> list[int]:
    """The first shape of each of `ROWS` categories, or as many of one as are missing then, in order."""
    firsts = np.unique(labels, return_index=True)[1]
    spread = firsts[np.linspace(0, len(firsts) - 1, min(ROWS, len(firsts))).round().astype(int)]
    others = [number for number in range(len(labels)) if number not in spread]
    return sorted([*spread.tolist(), *others[: ROWS - len(spread)]])


def camera_of(seen: np.ndarray, complete_cloud: np.ndarray) -> np.ndarray:
    """Axes (3, 3) of a view: right, up and towards the viewer, turned 30 degrees to the missing side."""
    gap = unit(complete_cloud.mean(0) - seen.mean(0), np.array([1.0, 0.0, 0.0]))
    level = unit(np.cross(gap, [0.0, 0.0, 1.0]), np.array([0.0, 1.0, 0.0]))
    towards = unit(level * np.cos(np.pi / 6) + gap * np.sin(np.pi / 6) + np.array([0.0, 0.0, 0.3]), level)
    right = unit(np.cross([0.0, 0.0, 1.0], towards), level)
    return np.stack([right, np.cross(towards, right), towards])


def unit(vector: np.ndarray, otherwise: np.ndarray) -> np.ndarray:
    length = np.linalg.norm(vector)
    return vector / length if length > 1e-6 else otherwise


def scatter(axis, points: np.ndarray, reach: float, colour: str) -> None:
    """Points (n, 3) in the camera's axes, near points drawn over far ones."""
    points = points[np.random.Generator(np.random.PCG64(0)).permutation(len(points))[:DRAWN]]
    points = points[points[:, 2].argsort()]
    red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    pale = tuple(FAR + (1 - FAR) * part for part in (red, green, blue))
    shades = LinearSegmentedColormap.from_list("depth", [pale, colour], SHADES)
    size = float(np.clip(3000 / max(1, len(points)), 2, 12))
    # hard edges: smooth ones are most of a PNG
    look = {"cmap": shades, "vmin": -reach, "vmax": reach, "s": size, "linewidths": 0, "antialiaseds": False}
    axis.scatter(*points[:, :2].T, c=points[:, 2], **look)
    axis.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")
    axis.set_axis_off()
