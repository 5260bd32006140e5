"""The base of all tasks on published data: the choice of a source, the messages, the cache.

A task lists its sources (`sources`), of which `task.source` chooses one: the published data, a library that has them,
a part of them (`slice`), or generated ones (`synthetic`). `DataTask` checks the settings that belong to a source and
names the next command in every error. `CachedTask` also keeps examples in the cache below `data_root`.
"""

import contextlib
import functools
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from models.attention.base import Pattern
from tasks import cache
from tasks.base import Split, Task
from tasks.cache import CacheError
from tasks.checks import DataError, Progress, at_least, one_of
from tasks.examples import AnyExamples, Examples, Shards, fingerprint
from tasks.file_digests import path_identity

SPLITS = ("train", "val", "test")
SLICE = "slice"  # a part of published data
SYNTHETIC = "synthetic"  # generated data in their place
PLAIN = re.compile(r"[\w./~+-]*")  # a value that a command takes without quotes


@dataclass(frozen=True)
class Source:
    """A source of a task's data.

    `read` gives all examples; `identity` gives what determines them, which is part of the cache key. Both raise
    DataError. `check` raises ValueError for settings of the task that this source cannot serve. `path` says, in a
    message, what `task.path` is; None: this source takes no path. A `complete` source must have all published examples.
    `version` is the generator's, of a source that generates.
    """

    read: Callable[[Progress], Any]
    identity: Callable[[], dict[str, Any]] = dict
    check: Callable[[], object] = lambda: None
    path: str | None = None
    requires_path: bool = False
    complete: bool = False
    version: int | None = None


def _naming_the_command(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(self: "DataTask", *arguments: Any) -> Any:
        with self.naming_the_command():
            return method(self, *arguments)

    return call


@dataclass(kw_only=True, eq=False, repr=False)
class DataTask(Task):
    """A task on published data. `path` is a file or folder, for the sources that take one.

    `generator_version`, of a recipe on generated data, is the generator's version. It is part of a cell's identity, so
    that other data are another cell. A version that is not the generator's is refused.

    Raises ValueError, in one line, before any data is touched. A subclass checks its own settings first and calls
    `super().__post_init__()` when `sources` can be called.
    """

    name: ClassVar[str]  # as in `task=...`
    release: ClassVar[str] = ""  # what `path` of the official source is, and where it is published
    reads: ClassVar[Sequence[str]] = ("**/*",)  # patterns of the files in a folder `path` that it may read
    repeated: ClassVar[Sequence[str]] = ()  # settings that the command in a message repeats where they were changed
    protocol: ClassVar[str] = ""  # the protocol to name in commands, if the default one has no recipe for this task

    data_root: str | Path
    source: str
    path: str | Path | None = None
    pattern: Pattern | str
    data_seed: int = 0
    generator_version: int | None = None

    def __init_subclass__(cls) -> None:
        """The errors of what the harness calls name the command, in the overrides of every subclass as well."""
        super().__init_subclass__()
        for name in ("check_source", "prepare", "check_is_prepared", "load", "backbone_kwargs"):
            if name in vars(cls):
                setattr(cls, name, _naming_the_command(vars(cls)[name]))

    def __post_init__(self) -> None:
        self.data_root = Path(self.data_root).expanduser()
        self.path = None if self.path is None else Path(self.path).expanduser()
        self.check_pattern()
        at_least(0, data_seed=self.data_seed)
        sources = self.sources()
        one_of(sources, source=self.source)
        self._source = sources[self.source]
        if self.path is not None and self._source.path is None:
            raise ValueError(f"source={self.source} takes no path: task.path=null")
        if self.generator_version not in (None, version := self._source.version):
            problem = f"generator_version={self.generator_version} is not the generator's, {version or 'it has none'}"
            raise ValueError(f"{problem} (source={self.source}): task.generator_version={version or 'null'}")
        self._source.check()
        self._splits: dict[str, Split] = {}

    def sources(self) -> dict[str, Source]:
        """The possible sources of the data, by the name that `source` takes."""
        raise NotImplementedError

    @property
    def hint(self) -> str:
        """The command at the end of a message."""
        command = ["python run.py do=prepare", f"task={self.name}"]
        command += [f"protocol={self.protocol}"] if self.protocol else []
        command += [f"task.source={self.source}"] if self.source != getattr(type(self), "source", None) else []
        command += [f"task.path={self.path}"] if self.path else []
        command += [f"(it is {self.release})"] if self.path and self.release and self.source == "official" else []
        settings = {key: getattr(self, key) for key in self.repeated}
        changed = {key: str(v) for key, v in settings.items() if v != getattr(type(self), key, None)}
        command += [f"task.{k}={v}" if PLAIN.fullmatch(v) else f"\"task.{k}='{v}'\"" for k, v in changed.items()]
        return " ".join(command)

    @contextlib.contextmanager
    def naming_the_command(self) -> Iterator[None]:
        """Adds `hint` to a DataError that is raised inside."""
        try:
            yield
        except DataError as error:
            error.command = error.command or self.hint
            raise

    @_naming_the_command
    def check_source(self) -> None:
        if self.path is None and self._source.requires_path:
            problem = f"source={self.source} requires task.path, {self._source.path}"
            raise DataError(problem, arguments="task.path=...")

    def identity(self, **published: Any) -> dict[str, Any]:
        """What the data follow from: the files at `path`, or without one what is published. Raises DataError."""
        return published if self.path is None else {"files": path_identity(self.path, self.reads)}

    def check_is_complete(self, where: object, counts: Sequence[int], published: Sequence[int], unit: str) -> None:
        """Raises DataError if the source must have all published examples and these counts differ from theirs."""
        if self._source.complete and tuple(counts) != tuple(published):
            difference = " instead of ".join(" + ".join(f"{n:,}" for n in numbers) for numbers in (counts, published))
            raise DataError(f"{where}: {difference} {unit}", f"get them all (task.source={SLICE} takes a part)")

    def origin(self, complete: bool, part: str | None = None) -> str:
        """`DataInfo.source`; `part` names what was used of published data, the last part of `path` by default."""
        if self.source == SYNTHETIC:
            return SYNTHETIC
        if complete:
            return "full"
        return f"slice:{part or (self.source if self.path is None else self.path.resolve().name)}"


@dataclass(frozen=True)
class CachedSet:
    """Examples that are cached together: what they follow from, and how they are made (raises DataError)."""

    parameters: Mapping[str, Any]
    make: Callable[[Progress], Mapping[str, Examples | Shards]]


@dataclass(kw_only=True, eq=False, repr=False)
class CachedTask(DataTask):
    """A task whose examples are sequences in the cache. Subclasses give `read_source` and `load`."""

    version: ClassVar[int] = 1  # part of the cache key: raise it when the same files give other examples

    workers: int | None = None  # processes that generate; None: one per core

    def __post_init__(self) -> None:
        at_least(1, workers=self.workers)
        super().__post_init__()

    def read_source(self, progress: Progress) -> Mapping[str, Examples | Shards]:
        """All splits, each with an example or more. Raises DataError."""
        raise NotImplementedError

    def cached_sets(self) -> list[CachedSet]:
        """The sets that `prepare` makes, the splits first. Raises DataError."""
        self.check_source()
        how = {"source": self.source, "reader": self.version, "data_seed": self.data_seed}
        return [CachedSet({**how, **self._source.identity()}, self.read_source)]

    def prepare(self, progress: Progress) -> None:
        for cached in self.cached_sets():
            try:
                cache.read(self.folder(cached), cached.parameters)
            except CacheError:  # missing or damaged
                self._make(cached, progress)

    def check_is_prepared(self) -> None:
        for cached in self.cached_sets():
            cache.manifest(self.folder(cached), cached.parameters)

    def open(self, cached: CachedSet) -> dict[str, AnyExamples]:
        """The splits of a prepared set, verified. Raises DataError."""
        return cache.read(self.folder(cached), cached.parameters)[0]

    def facts(self, cached: CachedSet) -> dict[str, dict[str, Any]]:
        """The manifest's entry of each split of a set that was opened, with the sha256 that was verified."""
        return cache.manifest(self.folder(cached), cached.parameters)["splits"]

    def fingerprint_of(self, cached: CachedSet) -> str:
        """sha256, hexadecimal, of everything in a set that was opened, references and texts included."""
        hashes = {name: facts["sha256"] for name, facts in self.facts(cached).items()}
        return fingerprint(hashes[name] for name in [*SPLITS, *sorted(hashes.keys() - set(SPLITS))])

    def folder(self, cached: CachedSet) -> Path:
        return self.data_root / self.name / cache.key(cached.parameters)[:12]

    def worker_count(self, pieces: int) -> int:
        """The number of processes for `pieces` of work, each large enough to start a process for."""
        return self.workers or max(1, min(cores(), pieces))

    def _make(self, cached: CachedSet, progress: Progress) -> None:
        try:
            made = cached.make(progress)
            pieces = max(len(split.makers) if isinstance(split, Shards) else 1 for split in made.values())
            workers = self.worker_count(pieces)
            cache.write(self.folder(cached), made, cached.parameters, workers=workers, progress=progress)
        except BrokenProcessPool as error:
            raise DataError("a generating process died (memory?)", arguments="task.workers=1") from error


def cores() -> int:
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
