"""The paths of a run below a folder of its own, named as in a clone."""

from collections.abc import Sequence
from pathlib import Path


def below(folder: Path, typed: Sequence[str] = ()) -> list[str]:
    """Overrides of `paths`, except for the typed ones."""
    places = {"data": "data", "outputs": "outputs", "records": "results/records"}
    given = {word.partition("=")[0] for word in typed}
    return [f"paths.{name}={folder / subfolder}" for name, subfolder in places.items() if f"paths.{name}" not in given]
