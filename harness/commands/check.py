"""do=check: every rule for every record below paths.records, for the files beside them, for the files of simple
predictors, and for the measurements below paths.bench. One line per problem.

Anyone can run it on a folder of records: paths.records=FOLDER. It needs neither data nor weights, and writes nothing
but its cache below paths.outputs. The exit status is 1 if a rule is broken. Every reader of records applies the rules
of `harness.records.checks`. Commands that publish scores apply those of `harness.records.evidence` as well; only this
command applies the other rules below.
"""

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from omegaconf import DictConfig

from harness.config.cell import name_of
from harness.errors import UsageError, one_line, shown
from harness.progress import Progress
from harness.records import baselines, cache, checks, evidence, index, measurements
from harness.records.index import SCHEMA, Summary
from harness.records.listing import files_below, record_files
from tasks.regular_files import read_bytes

MAX_ARTIFACT_BYTES = 2**20  # a run keeps no larger file beside its record


def run(cfg: DictConfig, overrides: Sequence[str]) -> int:
    broken: Counter[str] = Counter()
    unread: list[str] = []
    files = files_of(cfg, unread)
    for file, rule, problem in all_problems(cfg, files, unread):
        broken[rule] += 1
        print(": ".join(filter(None, [file and shown(file), rule, one_line(problem)])))
    counts = ", ".join(f"{count} {rule}" for rule, count in broken.items())
    rules = len(checks.RULES) + len(evidence.RULES) + len(FILE_RULES) + 3  # orphans, predictors, measurements
    print(f"{len(files)} records, {rules} rules: {counts or 'no problem'}")
    return int(bool(broken))


def files_of(cfg: DictConfig, unread: list[str]) -> list[Path]:
    """The records; folders that cannot be read are added to `unread`. Raises UsageError if there is no folder."""
    root = Path(cfg.paths.records)
    if not root.is_dir():
        raise UsageError(f"{root}: there is no folder of records")
    return list(record_files(root, unread))


def all_problems(
    cfg: DictConfig, files: Sequence[Path], unread: Sequence[str]
) -> Iterator[tuple[Path | None, str, str]]:
    """(file, rule, what is wrong) of each problem; a folder that cannot be read has no file."""
    root = Path(cfg.paths.records)
    yield from ((None, "folders", problem) for problem in unread)
    for file, problems in problems_of(root, files, cache.of_command(cfg.paths.outputs)):
        yield from ((file, rule, problem) for rule, problem in problems)
    yield from ((file, "orphans", "no record names it") for file in orphans(root, files))
    for rule, folder, read in (
        ("predictors", baselines.folder_of(root), baselines.read_checked),
        ("measurements", Path(cfg.paths.bench), measurements.read),
    ):
        links: list[str] = []
        for file in record_files(folder, links):
            try:
                read(file)
            except UsageError as error:
                yield file, rule, str(error).removeprefix(f"{shown(file)}: ")
        yield from ((None, rule, problem) for problem in links)


def problems_of(root: Path, files: Sequence[Path], kept: cache.Cache) -> Iterator[tuple[Path, list[list[str]]]]:
    """(file, [rule, what is wrong] for each problem) of all record files."""
    with Progress() as progress:
        summaries = index.summaries(root, files, kept, lambda number: progress.update("records", number, len(files)))
        whole = [summary.file for summary in summaries if [rule for rule, _ in summary.problems] != [SCHEMA]]
        contradictions = index.contradictions(
            root, whole, kept, lambda number: progress.update("scores and recipes", number, len(whole))
        )
    outside = dict(zip(whole, contradictions, strict=True))
    for summary in summaries:
        problems = list(summary.problems)
        if summary.file in outside:
            for rule in FILE_RULES:
                problems += [[rule.__name__, problem] for problem in rule(summary, root)]
            problems += outside[summary.file]
        yield summary.file, problems


def place(summary: Summary, root: Path) -> Iterator[str]:
    """Its path follows from its names."""
    expected = f"{name_of(**summary.cell)}.json"
    if summary.file.relative_to(root) != Path(expected):
        yield f"it belongs at {expected}"


def recent(summary: Summary, root: Path) -> Iterator[str]:
    """It did not end in the future."""
    ended = datetime.fromisoformat(summary.finished)
    if (ended if ended.tzinfo else ended.replace(tzinfo=UTC)) > datetime.now(UTC) + timedelta(days=1):
        yield f"finished: {summary.finished} is in the future"


def artifacts(summary: Summary, root: Path) -> Iterator[str]:
    """The pictures and texts that it names are those of the run; they may be missing."""
    for name, digest in summary.artifacts.items():
        if not name.startswith(f"{summary.file.stem}."):
            yield f"{name[:80]} is not named after its record"
            continue
        path = summary.file.with_name(name)
        try:
            if hashlib.sha256(read_bytes(path, MAX_ARTIFACT_BYTES)).hexdigest() != digest:
                yield f"{name} is not what the run made"
        except FileNotFoundError:
            continue
        except OSError as error:
            yield f"{name[:80]} cannot be read: {error.strerror}"


FILE_RULES: tuple[Callable[[Summary, Path], Iterator[str]], ...] = (place, recent, artifacts)


def orphans(root: Path, files: Sequence[Path]) -> Iterator[Path]:
    """Files that belong to no record: predictions and artifacts share the stem of their record."""
    stems = {(file.parent, file.stem) for file in files}
    for path in files_below(root, []):
        prefixes = (path.name[:end] for end, letter in enumerate(path.name) if letter == ".")
        has_record = any((path.parent, prefix) in stems for prefix in prefixes)
        if path.suffix != ".json" and not has_record and not os.path.isdir(path):
            yield path
