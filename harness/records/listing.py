"""What lies in a folder of records: names, status and a line of each, without reading the files that are known.

A file is known if its size, times and inode are those of when it was read and checked. What was found then is kept in
a file of the user's cache folder, which is never the truth: it may be deleted, is made anew from the records, and does
not count once the rules for records change.
"""

import contextlib
import functools
import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from harness.config import cell
from harness.errors import one_line
from harness.progress import clock
from harness.records import checks, record, schema
from harness.records.atomic import write_atomic
from harness.records.record import RecordError

WORTH_KEEPING = 500  # records; fewer are read in less than half a second
Stamp = tuple[int, int, int, int]


@dataclass(frozen=True)
class Listed:
    """A record that is valid. `line`: its score, or why there is none."""

    file: Path
    id: str
    model: str
    task: str
    protocol: str
    budget: str
    seed: int
    status: str
    line: str


@dataclass(frozen=True)
class Listing:
    records: list[Listed]  # in the order of their files
    problems: list[str]  # of files that are no record, and of records of the same cell, which are both left out


def listing(root: str | os.PathLike[str]) -> Listing:
    """Every `**/*.json` below a folder that is a file and not hidden; no folder, no records."""
    root = Path(root)
    kept = Kept(root)
    found: dict[str, list[Listed]] = {}
    problems = []
    for path, stamp in record_files(root):
        known = kept.get(path, stamp)
        if isinstance(known, str):
            problems.append(known)
        else:
            found.setdefault(known.id, []).append(known)
    kept.save()
    for id, several in found.items():
        if len(several) > 1:
            files = " and ".join(str(one.file) for one in several)
            problems.append(f"{files} are records of one cell ({id}); remove all but one")
    return Listing([one for one, *others in found.values() if not others], problems)


def record_files(root: Path) -> Iterator[tuple[Path, Stamp]]:
    """What may be a record, and what tells that a file is still the same."""
    with contextlib.suppress(OSError), os.scandir(root) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.name[0] == ".":
                continue
            if entry.is_dir(follow_symlinks=False):
                yield from record_files(Path(entry.path))
            elif entry.name.endswith(".json") and entry.is_file():
                stat = entry.stat()
                yield Path(entry.path), (stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size, stat.st_ino)


class Kept:
    """What was found in the files of a folder before."""

    def __init__(self, root: Path):
        self.root = root.absolute()
        name = hashlib.sha256(os.fsencode(self.root)).hexdigest()[:16]
        cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        self.path = Path(cache) / "longhaul" / f"records-{name}.json"
        self._before: dict[str, Any] = {}
        self._now: dict[str, Any] = {}
        self._changed = False
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
            kept = json.loads(self.path.read_text(encoding="utf-8"))
            self._before = kept["files"] if kept["rules"] == rules() else {}

    def get(self, path: Path, stamp: Stamp) -> Listed | str:
        """The record in a file, or what is wrong with it."""
        name = path.absolute().relative_to(self.root).as_posix()
        with contextlib.suppress(ValueError, TypeError, KeyError):
            before, found = self._before[name]
            if before == list(stamp):
                self._now[name] = [before, found]
                return found if isinstance(found, str) else Listed(path, *found)
        self._changed = True
        try:
            listed: Listed | str = listed_as(path, record.read(path))
        except RecordError as error:
            listed = str(error)
        self._now[name] = [list(stamp), listed if isinstance(listed, str) else astuple(listed)[1:]]
        return listed

    def save(self) -> None:
        """Nothing depends on it, so nothing is said where it cannot be written."""
        if len(self._now) >= WORTH_KEEPING and (self._changed or len(self._now) < len(self._before)):
            with contextlib.suppress(OSError):
                write_atomic(self.path, json.dumps({"rules": rules(), "files": self._now}), durable=False)


@functools.cache
def rules() -> str:
    """A digest of the code that decides what a record is."""
    files = (cell.__file__, checks.__file__, record.__file__, schema.__file__, __file__)
    return hashlib.sha256(b"".join(Path(file).read_bytes() for file in files)).hexdigest()


def listed_as(path: Path, entries: dict[str, Any]) -> Listed:
    line = summary(entries) if entries["status"] == "done" else one_line(entries["error"]["message"])[:160]
    return Listed(path, **entries["cell"], status=entries["status"], line=line)


def summary(entries: dict[str, Any]) -> str:
    """The score of a record that is done: `test acc 52.6 (n 2000, chance 12) · 0:28`."""
    name, point = entries["metric"]["name"], "last" if entries["selection"]["rule"] == "last" else "best"
    test = entries["metrics"][point]["test"]
    chance = f", chance {entries['baseline']['test']:.4g}" if entries["baseline"] else ""
    leak = " [selected on test]" if entries["selection"]["leak"] else ""
    return f"test {name} {test[name]:.4g}{leak} (n {test['n']}{chance}) · {clock(entries['wall_s'])}"
