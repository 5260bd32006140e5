"""Names of options in the folders of configurations: they never lead out of these folders."""

import functools
import re

from harness.errors import UsageError, shown

UNNAMED = "???"  # Hydra's mark for a choice that the user must type
PART = re.compile(r"[\w.+-]+")
LONGEST = 200  # characters; a file system has no longer names


@functools.lru_cache(maxsize=8192)
def is_option(path: str) -> bool:
    """Whether a path such as `task/lra/listops` is a name: no absolute path, and no `..`."""
    parts = path.split("/")
    return len(path) <= LONGEST and all(
        part == UNNAMED or (PART.fullmatch(part) is not None and part.strip(".")) for part in parts
    )


def check_option(path: str) -> None:
    """Raises UsageError for a path that is not a name."""
    if not path:
        raise UsageError("an override without a key: settings are typed key=value (python run.py --help)")
    if not is_option(path):
        raise UsageError(
            f"'{shown(path[:60])}' is no name of an option: names have letters, digits and _ . + -, with / between them"
        )
