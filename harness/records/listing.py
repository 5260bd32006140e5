"""The files below a folder that others filled. An entry that cannot be read is named; it hides no other one."""

import os
from collections.abc import Collection, Iterator
from pathlib import Path

from harness.errors import shown


def files_below(root: str | os.PathLike[str], problems: list[str]) -> Iterator[Path]:
    """Everything that is no folder and not hidden, in order: links, FIFOs and devices as well. A missing root has none.

    Links to folders are not followed. A folder that cannot be read is added to `problems`, in one line.
    """
    yield from map(Path, names_below(os.fspath(root), problems))


def names_below(root: str, problems: list[str], without: Collection[str] = ()) -> Iterator[str]:
    """`files_below` as texts: a Path takes longer to make than a file to list. `without`: paths that are left out."""
    waiting = [(root, True)]
    while waiting:
        path, is_folder = waiting.pop()
        if not is_folder:
            yield path
            continue
        try:
            with os.scandir(path) as entries:
                by_name = sorted(entries, key=lambda entry: entry.name, reverse=True)
        except OSError as error:
            if path != root or not isinstance(error, FileNotFoundError):
                problems.append(f"{shown(path)}: cannot be read: {error.strerror}")
            continue
        waiting += [
            (entry.path, entry.is_dir(follow_symlinks=False))
            for entry in by_name
            if not entry.name.startswith(".") and entry.path not in without
        ]


def record_files(root: str | os.PathLike[str], problems: list[str], without: Collection[str] = ()) -> Iterator[Path]:
    """Every `**/*.json` below a folder, in the order of `files_below`; `record.read` says what is no regular file.

    A link to a folder is a problem. `without`: folders below the root, such as `lra/listops`, that are not listed.
    """
    for path in names_below(os.fspath(root), problems, {os.path.join(root, folder) for folder in without}):
        if path.endswith(".json"):
            yield Path(path)
        elif os.path.islink(path) and os.path.isdir(path):
            problems.append(f"{shown(path)}: a link to a folder, which is not followed; move the folder here")
