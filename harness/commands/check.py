"""do=check: every rule for every record below paths.records, and for the files beside them. A line for each problem.

Anyone can run it on a folder of records: paths.records=FOLDER. It writes nothing and needs neither data nor weights.
The exit status is 1 if a rule is broken. Readers of records apply the rules of `harness.records.checks`, and that of
`recipe` to the paper's budget; the others are asked for here.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from harness.config.cell import Cell
from harness.errors import UsageError, one_line
from harness.progress import Progress
from harness.records import checks, predictions, record
from harness.records.collect import record_files
from harness.records.recipe import unstated_changes
from harness.records.record import RecordError
from harness.records.schema import Record

Entries = dict[str, Any]


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


def problems_of(file: Path, root: Path) -> Iterator[tuple[str, str]]:
    """(rule, what is wrong) of one record."""
    try:
        entries = record.load_json(file)
        parsed = record.parsed(entries)
    except RecordError as error:
        yield "schema", str(error)
        return
    for rule in checks.RULES:
        yield from ((rule.__name__, problem) for problem in rule(parsed))
    for rule in FILE_RULES:
        yield from ((rule.__name__, problem) for problem in rule(file, root, entries, parsed))


def place(file: Path, root: Path, entries: Entries, parsed: Record) -> Iterator[str]:
    """It lies where its names say."""
    meant = cell_in(entries).path
    if file.relative_to(root) != meant.with_name(f"{meant.name}.json"):
        yield f"it belongs at {meant}.json"


def recent(file: Path, root: Path, entries: Entries, parsed: Record) -> Iterator[str]:
    """It did not end in the future."""
    ended = datetime.fromisoformat(parsed.finished)
    if (ended if ended.tzinfo else ended.replace(tzinfo=UTC)) > datetime.now(UTC) + timedelta(days=1):
        yield f"finished: {parsed.finished} is in the future"


def scores(file: Path, root: Path, entries: Entries, parsed: Record) -> Iterator[str]:
    """The scores of its examples are those that it has a digest of."""
    if not any(evaluation.predictions for evaluation in parsed.evaluations.values()):
        return
    try:
        predictions.read(file, entries)
    except RecordError as error:
        yield str(error)


def artifacts(file: Path, root: Path, entries: Entries, parsed: Record) -> Iterator[str]:
    """Pictures and texts beside it that it names are the ones that it made; they may be missing."""
    for name, digest in parsed.artifacts.items():
        path = file.with_name(name)
        if path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() != digest:
            yield f"{name} is not what the run made"


def recipe(file: Path, root: Path, entries: Entries, parsed: Record) -> Iterator[str]:
    """It states all changes to its recipe, as this clone has it."""
    for key, (by_recipe, used) in unstated_changes(entries).items():
        yield f"{key}: {used!r}, but {by_recipe!r} by the recipe, which `changed` does not say"


Rule = Callable[[Path, Path, Entries, Record], Iterator[str]]
FILE_RULES: tuple[Rule, ...] = (place, recent, scores, artifacts, recipe)


def orphans(root: Path, files: Sequence[Path]) -> Iterator[Path]:
    """Files that belong to no record: predictions and artifacts have the name of theirs and an ending."""
    stems = {(file.parent, file.stem) for file in files}
    for path in sorted(root.rglob("*")):
        known = any((path.parent, path.name[:end]) in stems for end, letter in enumerate(path.name) if letter == ".")
        if path.is_file() and path.suffix != ".json" and path.name[0] != "." and not known:
            yield path


def cell_in(entries: Entries) -> Cell:
    return Cell(entries["cell"]["id"], entries["config"])
