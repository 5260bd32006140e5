"""Small trained models that come with the project: `longhaul.load("demo/lavo")`. docs/own.md says how they are made.

A folder `longhaul/weights/demo/<...>/<model>` is what `longhaul.export` wrote.
"""

import os
from pathlib import Path

from harness.config.places import ROOT
from harness.errors import UsageError, did_you_mean

FOLDER = ROOT / "longhaul" / "weights"
DEMO = "demo"


def names() -> list[str]:
    return sorted(path.parent.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("model.safetensors"))


def to_try(cell: str | os.PathLike[str]) -> Path | None:
    """The folder of `demo/<...>`; None for another name, and where the user has a folder of this name.

    Raises UsageError for an unknown name.
    """
    path = Path(cell)
    if path.parts[:1] != (DEMO,) or path.exists():
        return None
    if path.as_posix() not in names():
        raise UsageError(f"there are no weights {cell} to try: {did_you_mean(path.as_posix(), names())}")
    return FOLDER / path
