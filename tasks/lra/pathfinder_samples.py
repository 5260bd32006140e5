"""A page of Pathfinder pictures: rows of both classes side by side, to show what a model sees."""

from pathlib import Path

import numpy as np

from tasks.examples import AnyExamples
from tasks.files import written_whole

SIDE = 128  # pixels that a picture is enlarged to, at least
GAP, FRAME, PAGE = 6, {0: (200, 80, 60), 1: (70, 160, 90)}, (40, 40, 40)  # frames: red, not connected; green, connected


def draw(examples: AnyExamples, size: int, rows: int = 4, columns: int = 8):
    """A PIL image of the first pictures (size, size) of each class: label 0 in the left half, 1 in the right one."""
    from PIL import Image

    scale = max(1, -(-SIDE // size))
    side = scale * size
    step = side + 2 * GAP
    page = Image.new("RGB", (columns * step, rows * step), PAGE)
    for label, colour in FRAME.items():
        chosen = np.flatnonzero(examples.labels == label)[: rows * columns // 2]
        for cell, i in enumerate(chosen.tolist()):
            row, column = divmod(cell, columns // 2)
            pixels = examples.tokens_of(i)[: size**2].reshape(size, size)
            picture = Image.fromarray(np.ascontiguousarray(pixels)).resize((side, side), Image.Resampling.NEAREST)
            x, y = (column + label * columns // 2) * step, row * step
            page.paste(colour, (x + GAP // 2, y + GAP // 2, x + step - GAP // 2, y + step - GAP // 2))
            page.paste(picture, (x + GAP, y + GAP))
    return page


def write(file: Path, examples: AnyExamples, size: int) -> None:
    """Write the page as a PNG. Raises OSError."""
    with written_whole(file) as stream:
        draw(examples, size).quantize(64).save(stream, "PNG")
