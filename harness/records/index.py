"""The record files below a folder in short: names, status, outcome, and what is wrong with each.

This is enough to list runs, to find a record and to choose those of a table, so that only these are read as a whole.
`harness.records.cache` keeps it between commands.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from harness.errors import one_line, shown
from harness.records import checks, predictions, record
from harness.records.cache import NO_CACHE, Cache
from harness.records.record import RecordError

SCHEMA = "schema"  # the rule that a file without valid parts breaks
Problems = list[list[str]]  # pairs of a rule and what is wrong, in the order of the rules


class Summary(NamedTuple):
    """A record file. `cell`, `status`, `finished` and `artifacts` are those of the record; empty if its parts are
    not valid. `sha256`: of the content that was checked. `outcome`: of a valid record, as `record.outcome` gives it."""

    file: Path
    problems: Problems
    cell: dict[str, Any]
    status: str
    outcome: str
    finished: str
    artifacts: dict[str, str]
    sha256: str

    @property
    def message(self) -> str:
        """What is wrong, in one line with the file; empty for a valid record."""
        return f"{shown(self.file)}: {one_line(self.problems[0][1])}" if self.problems else ""


def summaries(
    root: Path, files: Sequence[Path], cache: Cache = NO_CACHE, report: Callable[[int], object] = lambda number: None
) -> list[Summary]:
    """One for each record file. `report` gets the number of files that were read."""
    results = cache.results("records", root, files, _summary, report=report)
    return [Summary(file, **result) for file, result in zip(files, results, strict=True)]


def _summary(file: Path) -> dict[str, Any]:
    empty = {"cell": {}, "status": "", "outcome": "", "finished": "", "artifacts": {}, "sha256": ""}
    try:
        entries, sha256 = record.load(file)
        parsed = record.parsed(entries)
    except RecordError as error:
        return {"problems": [[SCHEMA, str(error)]]} | empty
    problems = [[rule.__name__, problem] for rule in checks.RULES for problem in rule(parsed)]
    parts = {key: entries[key] for key in ("cell", "status", "finished", "artifacts")} | {"sha256": sha256}
    return {"problems": problems, "outcome": "" if problems else record.outcome(entries)} | parts


def contradictions(
    root: Path, files: Sequence[Path], cache: Cache = NO_CACHE, report: Callable[[int], object] = lambda number: None
) -> list[Problems]:
    """What the rules of `harness.records.evidence` find for each of these records, whose parts are valid."""
    return cache.results(
        "evidence", root, files, _contradictions, lambda file: [str(predictions.path_of(file))], report
    )


def _contradictions(file: Path) -> Problems:
    from harness.records import evidence

    entries = record.load_json(file)
    return [[name, problem] for name, rule in evidence.RULES.items() for problem in rule(file, entries)]
