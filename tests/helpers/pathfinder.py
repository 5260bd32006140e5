"""Helpers for tests of Pathfinder: a tiny task, and folders laid out as in LRA's release."""

import io
from pathlib import Path

from PIL import Image

from tasks.lra.pathfinder import Pathfinder
from tasks.lra.pathfinder_generator import generate
from tests.helpers import tasks
from tests.helpers.tasks import ready

NEXT = "do=prepare task=lra/pathfinder"
DESIGN = {"contour_length": 2, "distractor_length": 1, "distractors": 1, "seed_distance": 2}
TINY = {"max_length": 144, "design": DESIGN, "train": 60, "val": 10, "test": 20, "workers": 1}


def tiny(root, **changes) -> Pathfinder:
    return Pathfinder(data_root=root, **{**TINY, **changes})


def loaded(root, **changes) -> Pathfinder:
    return ready(tiny(root, **changes))


def read(root, folder, **changes) -> Pathfinder:
    """The task on a folder of pictures of 12 x 12 pixels."""
    return Pathfinder(data_root=root, **{"source": "slice", "path": folder, "max_length": 144, **changes})


def one_line(error, *parts):
    tasks.one_line(error, *parts, NEXT)


def png(pixels, mode="L", **options) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(stream, "PNG", **options)
    return stream.getvalue()


def write_folder(folder: Path, count=40, batches=2, seed=0) -> Path:
    """A folder laid out as in LRA's release."""
    examples = generate(count, loaded_design(), seed=seed)
    pictures = examples.tokens.reshape(count, 12, 12)
    (folder / "metadata").mkdir(parents=True)
    for batch in range(batches):
        (folder / "imgs" / str(batch)).mkdir(parents=True)
        rows = []
        for i, picture in list(enumerate(pictures))[batch::batches]:
            (folder / "imgs" / str(batch) / f"sample_{i}.png").write_bytes(png(picture))
            rows.append(f"imgs/{batch} sample_{i}.png {i} {examples.labels[i]} 1.0 14 4 2 0.5 1 1\n")
        (folder / "metadata" / f"{batch}.npy").write_text("".join(rows))
    return folder


def loaded_design():
    return tiny(".").design


def pairs(task):
    """All (pixels, label) of all splits."""
    labelled = []
    for name in ("train", "val", "test"):
        batch = task.split(name).batch(range(len(task.split(name))))
        labelled += zip(batch["tokens"].tolist(), batch["label"].tolist(), strict=True)
    return labelled
