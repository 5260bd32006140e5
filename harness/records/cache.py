"""Results per file that are kept until the file, a file beside it, or the code changes.

A folder may hold tens of thousands of records. To read, check and hash all takes a minute, to see that none changed a
fraction of a second. A file has changed if its inode, its size or one of its times is another one: nobody can set
the time of the last change of an inode. Files that changed within the last two seconds are not kept, because times are
coarse. The code is all of `harness` and `tasks` and the configuration that records are checked against.

The cache is a file below `paths.outputs`. Without it, with a damaged one or with one of other code, the results are the
same, only later.
"""

import functools
import hashlib
import json
import os
import stat
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pydantic

from harness.config.compose import folders, search_path
from harness.config.places import ROOT
from harness.errors import shown
from harness.garbage import rare_garbage_collection
from harness.records.files import write_atomic
from tasks.regular_files import read_bytes
from tasks.workers import divided

FOLDER = "cache"  # below paths.outputs
MAX_BYTES = 2**30  # of a file of results
CODE = ("harness", "tasks")  # their sources decide the results
RECENT_NS = 2 * 10**9
FEW = 200  # files below which there is no cache
MANY = 1000  # files for which further processes pay off: they take half a second to begin
MOST_WORKERS = 8
CHUNK = 250  # files that a process takes at once; neighbours share recipes
SIGNATURE = ("st_ino", "st_size", "st_mtime_ns", "st_ctime_ns")
Compute = Callable[[Path], Any]  # the result is JSON


@dataclass(frozen=True)
class Cache:
    """`folder`: where results are kept; None: nowhere. `workers`: processes that compute the results of many files."""

    folder: Path | None = None
    workers: int = 1

    def results(
        self,
        kind: str,
        root: Path,
        files: Sequence[Path],
        compute: Compute,
        beside: Callable[[Path], Sequence[str]] = lambda file: (),
        report: Callable[[int], object] = lambda number: None,
    ) -> list[Any]:
        """`compute(file)` for each file below `root`, or what it gave earlier.

        `kind` names the results. `beside`: further paths that a result depends on. `report` gets the number of files
        that have a result.
        """
        if self.folder is None or len(files) < FEW:
            return _computed(files, compute, self.workers, report)
        names = [str(file)[len(str(root)) :] for file in files]
        signatures = [_signatures((str(file), *beside(file))) for file in files]
        root_digest = hashlib.sha256(repr((str(root), str(root.absolute()))).encode()).hexdigest()[:16]
        path = self.folder / f"{kind}-{root_digest}.json"
        code = code_version()
        kept = _load(path, code)
        pairs = list(zip(names, signatures, strict=True))
        current = [signature is not None and kept.get(name, (None,))[0] == signature for name, signature in pairs]
        missing = [file for file, is_current in zip(files, current, strict=True) if not is_current]
        report(len(files) - len(missing))
        new = iter(_computed(missing, compute, self.workers, lambda number: report(len(files) - len(missing) + number)))
        results = [kept[name][1] if is_current else next(new) for name, is_current in zip(names, current, strict=True)]
        if missing:
            others = {name: kept[name] for name in kept.keys() - set(names) if os.path.lexists(f"{root}{name}")}
            rows = zip(pairs, results, strict=True)
            _save(path, code, others | {name: (signature, result) for (name, signature), result in rows if signature})
        return results


NO_CACHE = Cache()


def of_folder(outputs: str | os.PathLike[str]) -> Cache:
    """The cache of Python code with these `paths.outputs`. A script cannot spawn processes that import it again."""
    return replace(of_command(outputs), workers=1)


def of_command(outputs: str | os.PathLike[str]) -> Cache:
    """The cache of a command with these `paths.outputs`, which may use all cores.

    Further processes would not know config folders that the command added, so with these there are none.
    """
    folder: Path | None = Path(outputs) / FOLDER
    if folder.is_symlink():
        print(f"left out: {shown(folder)}: a link in the place of a folder, so nothing is kept there", file=sys.stderr)
        folder = None
    return Cache(folder, 1 if search_path() else min(MOST_WORKERS, len(os.sched_getaffinity(0))))


def _signatures(paths: Sequence[str]) -> list[list[int]] | None:
    """One for each path, empty for a missing file. None if one of them changed lately, or is no regular file."""
    latest, signatures = time.time_ns() - RECENT_NS, []
    for path in paths:
        try:
            status = os.lstat(path)
        except FileNotFoundError:
            signatures.append([])
            continue
        except OSError:
            return None
        if not stat.S_ISREG(status.st_mode) or max(status.st_mtime_ns, status.st_ctime_ns) > latest:
            return None
        signatures.append(_signature(status))
    return signatures


def _computed(files: Sequence[Path], compute: Compute, workers: int, report: Callable[[int], object]) -> list[Any]:
    chunks = [files[start : start + CHUNK] for start in range(0, len(files), CHUNK)]
    compute_all = functools.partial(_compute_all, compute)
    finished = 0

    def count(part: list[Any]) -> None:
        nonlocal finished
        finished += len(part)
        report(finished)

    parts = divided(compute_all, chunks, workers - 1 if len(files) >= MANY else 0, count)
    return [result for part in parts for result in part]


def _compute_all(compute: Compute, files: Sequence[Path]) -> list[Any]:
    with rare_garbage_collection():  # which takes a third of the time: a parsed file has no cycles
        return [compute(file) for file in files]


def code_version() -> str:
    """A digest of the names, sizes and times of the sources and of the configuration."""
    walks = map(os.walk, (*(ROOT / package for package in CODE), *folders()))
    paths = (os.path.join(parent, name) for walk in walks for parent, _, names in walk for name in names)
    files = sorted(path for path in paths if path.endswith((".py", ".yaml")))
    parts = (sys.version, pydantic.VERSION, files, [_signature(os.stat(path)) for path in files])
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _signature(status: os.stat_result) -> list[int]:
    return [getattr(status, key) for key in SIGNATURE]


def _load(path: Path, code: str) -> Mapping[str, Any]:
    """{name: [signatures, result]}; empty for a file that is missing, damaged or of other code."""
    try:
        digest, _, text = read_bytes(path, MAX_BYTES).partition(b"\n")
    except OSError:
        return {}
    if digest.decode(errors="replace") != hashlib.sha256(code.encode() + text).hexdigest():
        return {}
    return json.loads(text)


def _save(path: Path, code: str, results: Mapping[str, Any]) -> None:
    text = json.dumps(results, separators=(",", ":"))
    try:
        write_atomic(path, f"{hashlib.sha256((code + text).encode()).hexdigest()}\n{text}", durable=False)
    except OSError:  # a folder that cannot be written costs the next command its time and nothing else
        return
