"""A picture of completed shapes: the input, the prediction and the target.

A row is a shape, in orthographic projection from a direction that shows what was seen and more of what was not, the
same for all three clouds. Near points are dark. Under a prediction stands its CD-L1 times 1000.
"""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

ROWS = 4
SIDE = 1.75  # inches of a cloud
DRAWN = 1200  # points of a cloud at most
COLUMNS = {"input": "#1b6ca8", "prediction": "#c8551b", "target": "#3d4650"}  # and the colour of near points
ELEVATION, TURN = 17, -60  # degrees above the horizon, and from where the missing side is


def draw(
    partial: np.ndarray, prediction: np.ndarray, complete: np.ndarray, names: Sequence[str], errors: Sequence[float]
) -> Figure:
    """Clouds (B, n, 3), (B, m, 3) and (B, m, 3) of B shapes, their names, and their CD-L1 times 1000."""
    figure = Figure(figsize=(3 * SIDE, (SIDE + 0.1) * len(names) + 0.3), layout="constrained")
    view = {"projection": "3d", "proj_type": "ortho"}
    axes = figure.subplots(len(names), 3, squeeze=False, subplot_kw=view)
    chosen = np.random.Generator(np.random.PCG64(0))
    for row, (name, error, *clouds) in enumerate(zip(names, errors, partial, prediction, complete, strict=True)):
        seen, _, target = clouds
        gap, middle = target.mean(0) - seen.mean(0), (target.min(0) + target.max(0)) / 2
        reach = 1.05 * np.linalg.norm(target - middle, axis=1).max()
        limits = dict(zip(("xlim", "ylim", "zlim"), np.stack([middle - reach, middle + reach], 1), strict=True))
        for axis, cloud, (column, colour) in zip(axes[row], clouds, COLUMNS.items(), strict=True):
            points = chosen.permutation(cloud)[:DRAWN]
            size = float(np.clip(3000 / max(1, len(points)), 2, 12))
            # hard edges: smooth ones are most of a PNG
            axis.scatter(*points.T, s=size, color=colour, linewidths=0, antialiaseds=False)
            axis.view_init(ELEVATION, np.degrees(np.arctan2(gap[1], gap[0])) + TURN)
            axis.set(title="" if row else column, **limits)
            axis.set_box_aspect((1, 1, 1), zoom=1.5)
            axis.set_axis_off()
        for axis, text in zip(axes[row], (name.replace("_", " "), f"CD-L1 {error:.1f}"), strict=False):
            axis.text2D(0.5, 0, text, transform=axis.transAxes, ha="center", va="top", fontsize=8)
    return figure


def pick(labels: np.ndarray) -> list[int]:
    """The first shape of each of `ROWS` categories, or as many of one as are missing then, in order."""
    firsts = np.unique(labels, return_index=True)[1]
    spread = firsts[np.linspace(0, len(firsts) - 1, min(ROWS, len(firsts))).round().astype(int)]
    others = [number for number in range(len(labels)) if number not in spread]
    return sorted([*spread.tolist(), *others[: ROWS - len(spread)]])
