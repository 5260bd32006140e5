"""Where the code, its configuration and the published numbers lie: in a clone, or in an environment (a wheel)."""

import os
from collections.abc import Mapping
from pathlib import Path, PurePath

from harness.errors import UsageError, shown

ROOT = Path(__file__).resolve().parents[2]  # the folder of the packages harness, tasks and models
CLONE = ROOT if (ROOT / "run.py").is_file() else None
CONF = (CLONE or ROOT / "longhaul") / "conf"
LEDGER = CLONE / "results" / "paper" if CLONE else ROOT / "longhaul" / "paper"
# what is in the folders of `paths` that commands read
CONTENT = {"paper": "published numbers", "records": "records", "outputs": "outputs"}


def below(root: str | os.PathLike[str], *parts: str | PurePath) -> Path:
    """A path below a folder that the user typed and that may be a link, as clusters link outputs to scratch.

    Raises UsageError for a link in the place of a folder below it: whoever shared the folder chose where it leads.
    """
    path = os.fspath(Path(root))
    for part in PurePath(*parts).parent.parts:
        path = os.path.join(path, part)
        if os.path.islink(path):
            raise UsageError(f"{shown(path)}: a link in the place of a folder, which is not followed; move it away")
    return Path(root, *parts)


def folder_below(root: str | os.PathLike[str], *parts: str | PurePath) -> Path:
    """As `below`, for the path of a folder, which is no link either."""
    return below(root, *parts, "file").parent


def require_folders(paths: Mapping[str, str], typed: Mapping[str, str], *names: str) -> None:
    """Raises UsageError for a typed folder to read, of `paths.<name>`, that does not exist: nothing would be in it."""
    for name in names:
        if f"paths.{name}" in typed and not Path(paths[name]).is_dir():
            raise UsageError(f"{paths[name]}: there is no folder of {CONTENT[name]}; paths.{name}= names another one")
