"""The files below a folder that others filled. An entry that cannot be read is named; it hides no other one."""

import os
from collections.abc import Iterator
from pathlib import Path

from harness.errors import shown


def files_below(root: str | os.PathLike[str], problems: list[str]) -> Iterator[Path]:
    """Everything that is no folder and not hidden, in order: links, FIFOs and devices as well. A missing root has none.

    Each folder that is not read, such as one that a link leads to, is added to `problems`, in one line.
    """
    waiting: list[tuple[Path, bool]] = [(Path(root), True)]
    while waiting:
        path, is_folder = waiting.pop()
        if not is_folder:
            yield path
            continue
        try:
            with os.scandir(path) as entries:
                by_name = sorted(entries, key=lambda entry: entry.name, reverse=True)
        except OSError as error:
            if path != Path(root) or not isinstance(error, FileNotFoundError):
                problems.append(f"{shown(path)}: cannot be read: {error.strerror}")
            continue
        for entry in by_name:
            if entry.name[0] == ".":
                continue
            if entry.is_symlink() and os.path.isdir(entry.path):
                problems.append(f"{shown(entry.path)}: a link to a folder, which is not followed; move the folder here")
            else:
                waiting.append((path / entry.name, entry.is_dir(follow_symlinks=False)))


def is_record_file(path: Path) -> bool:
    """By its name; `record.read` says why another kind of file is no record."""
    return path.suffix == ".json"


def record_files(root: str | os.PathLike[str], problems: list[str]) -> Iterator[Path]:
    """Every `**/*.json` below a folder, in the order of `files_below`."""
    return filter(is_record_file, files_below(root, problems))
