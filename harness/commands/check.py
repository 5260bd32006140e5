"""do=check: every rule for every record below paths.records, and for the files beside them. One line per problem.

Anyone can run it on a folder of records: paths.records=FOLDER. It writes nothing and needs neither data nor weights.
The exit status is 1 if a rule is broken. Every reader of records applies the rules of `harness.records.checks`.
Commands that publish scores apply those of `harness.records.evidence` and `recipe` as well; only this command applies
the other rules below.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from harness.config.cell import Cell
from harness.errors import UsageError, one_line
from harness.progress import Progress
from harness.records import checks, evidence, record
from harness.records.collect import record_files
from harness.records.recipe import unstated_changes
from harness.records.record import RecordError
from harness.records.schema import Record


@dataclass(frozen=True)
class RecordFile:
    """A record below `root`: its `entries` as they are in the file, and `parsed`."""

    path: Path
    root: Path
    entries: dict[str, Any]
    parsed: Record


def run(cfg: DictConfig, overrides: Sequence[str]) -> int:
    root = Path(cfg.paths.records)
    if not root.is_dir():
        raise UsageError(f"{root}: there is no folder of records")
    files = list(record_files(root))
    broken: Counter[str] = Counter()
    with Progress() as progress:
        for number, file in enumerate(files, 1):
            for rule, problem in problems_of(file, root):
                broken[rule] += 1
                print(f"{file}: {rule}: {one_line(problem)}")
            progress.update("records", number, len(files))
    for file in orphans(root, files):
        broken["orphans"] += 1
        print(f"{file}: orphans: no record names it")
    counts = ", ".join(f"{count} {rule}" for rule, count in broken.items())
    print(f"{len(files)} records, {len(checks.RULES) + len(FILE_RULES) + 1} rules: {counts or 'no problem'}")
    return int(bool(broken))


def problems_of(path: Path, root: Path) -> Iterator[tuple[str, str]]:
    """(rule, what is wrong) for each problem of one record."""
    try:
        entries = record.load_json(path)
        file = RecordFile(path, root, entries, record.parsed(entries))
    except RecordError as error:
        yield "schema", str(error)
        return
    for rule in checks.RULES:
        yield from ((rule.__name__, problem) for problem in rule(file.parsed))
    for rule in FILE_RULES:
        yield from ((rule.__name__, problem) for problem in rule(file))


def place(file: RecordFile) -> Iterator[str]:
    """Its path follows from its names."""
    expected = f"{Cell(file.entries['cell']['id'], file.entries['config']).path}.json"
    if file.path.relative_to(file.root) != Path(expected):
        yield f"it belongs at {expected}"


def recent(file: RecordFile) -> Iterator[str]:
    """It did not end in the future."""
    ended = datetime.fromisoformat(file.parsed.finished)
    if (ended if ended.tzinfo else ended.replace(tzinfo=UTC)) > datetime.now(UTC) + timedelta(days=1):
        yield f"finished: {file.parsed.finished} is in the future"


def scores(file: RecordFile) -> Iterator[str]:
    """The scores of its examples match its digests, and its metrics follow from them."""
    try:
        yield from evidence.scores(file.path, file.entries, file.parsed.cell.task)
    except RecordError as error:
        yield str(error)


def metric(file: RecordFile) -> Iterator[str]:
    """Its metric and the direction of the metric are the task's."""
    yield from evidence.metric(file.entries)


def artifacts(file: RecordFile) -> Iterator[str]:
    """The pictures and texts that it names are those of the run; they may be missing."""
    for name, digest in file.parsed.artifacts.items():
        path = file.path.with_name(name)
        if path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() != digest:
            yield f"{name} is not what the run made"


def recipe(file: RecordFile) -> Iterator[str]:
    """It states all changes to its recipe, as the recipe is in this clone."""
    for key, (by_recipe, used) in unstated_changes(file.entries).items():
        yield f"{key}: {used!r}, but {by_recipe!r} by the recipe, which `changed` does not say"


FILE_RULES: tuple[Callable[[RecordFile], Iterator[str]], ...] = (place, recent, scores, metric, artifacts, recipe)


def orphans(root: Path, files: Sequence[Path]) -> Iterator[Path]:
    """Files that belong to no record: predictions and artifacts share the stem of their record."""
    stems = {(file.parent, file.stem) for file in files}
    for path in sorted(root.rglob("*")):
        prefixes = (path.name[:end] for end, letter in enumerate(path.name) if letter == ".")
        has_record = any((path.parent, prefix) in stems for prefix in prefixes)
        if path.is_file() and path.suffix != ".json" and path.name[0] != "." and not has_record:
            yield path
