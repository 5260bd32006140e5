"""The record: the JSON file that one cell leaves behind, and the only source of every table and figure.

There is one file per cell and no database, so a thousand jobs can write at once. Files are replaced atomically. A
record is checked when it is written and when it is read. `schema.Record` is its schema; `checks` has the rules between
its parts.

Units: seconds; memory in MiB (`peak_memory_mb`) and GiB (`memory_gb`); scores in the metric's own unit, which is the
one that papers print (accuracy in percent); times in ISO 8601. Numbers are finite. An unknown value is null; fields
that are marked with `schema.KNOWN_WHEN_DONE` are null only in an unfinished cell (`status` other than `done`).
"""

import hashlib
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from harness.config.validation import parse, shortened
from harness.errors import UsageError, one_line, shown
from harness.progress import clock
from harness.records import checks
from harness.records.files import write_json_atomic
from harness.records.schema import Record
from tasks.regular_files import RefusedFileError, read_bytes

SCHEMA_VERSION = 2
MAX_BYTES = 2**22  # of a file


class RecordError(UsageError):
    """A file that is no valid record. One line: file, key, what is wrong."""


def validate(record: Any) -> None:
    """Check a record against the schema and its own parts against each other (`checks`). Raises RecordError."""
    valid = parsed(record)
    for problem in checks.problems(valid):
        raise RecordError(one_line(problem))


def parsed(record: Any) -> Record:
    """A record whose parts are valid, each alone. Raises RecordError."""
    version = record.get("schema_version") if isinstance(record, dict) else None
    if isinstance(version, int) and version != SCHEMA_VERSION:
        cure = "remove the record and run its cell again, or read it with the Longhaul that wrote it"
        other = shortened(version)
        raise RecordError(f"schema_version: {other}, but this Longhaul reads {SCHEMA_VERSION} alone; {cure}")
    return parse(Record, record, "", RecordError)


def read(path: str | os.PathLike[str], *, follow: bool = False, valid_sha256: str = "") -> dict[str, Any]:
    """The record in a file. Raises RecordError, naming file and key, if it is not valid.

    `follow`: it may be a link out of its folder. `valid_sha256`: of content that was checked already.
    """
    path = Path(path)
    try:
        record, sha256 = load(path, follow=follow)
        if sha256 != valid_sha256:
            validate(record)
    except RecordError as error:
        raise RecordError(f"{shown(path)}: {error}") from error
    return record


def is_done(path: str | os.PathLike[str]) -> bool:
    try:
        return Path(path).exists() and read(path)["status"] == "done"
    except RecordError:
        return False


def load_json(path: Path) -> Any:
    """What a file holds, of any version. Raises RecordError without the file's name."""
    return load(path)[0]


def load(path: Path, *, follow: bool = False) -> tuple[Any, str]:
    """`load_json`, and the sha256 of the file."""
    try:
        data = read_bytes(path, MAX_BYTES, follow=follow)
        return from_json(data, allow_inf_nan=False), hashlib.sha256(data).hexdigest()
    except RefusedFileError as error:
        raise RecordError(f"no record: {error.strerror}") from error
    except OSError as error:
        raise RecordError(f"cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise RecordError(f"no record: {one_line(error)[:80]}; remove it and run its cell") from error


def check_writable(entries: dict[str, Any]) -> None:
    """Raises RecordError for what no record can hold, before a run: names, configuration, data, hardware.

    `entries`: those of an attempt that has not ended, with the status of a failure.
    """
    now = datetime.now(UTC).isoformat(timespec="seconds")
    error = {"type": "", "message": "", "traceback": ""}
    validate(entries | {"error": error, "started": now, "finished": now})


def write(record: dict[str, Any], path: str | os.PathLike[str]) -> None:
    """Check a record and write it; an older one there is replaced. Raises RecordError or OSError."""
    try:
        validate(record)
    except RecordError as error:
        raise RecordError(f"{path}: not written: {error}") from error
    write_json_atomic(path, record)


def summary(record: Mapping[str, Any]) -> str:
    """`score_text`; of a trial with its learning rate: `trial at lr 0.003: val acc 49.1 (n 500) · 0:28`."""
    train = record["config"]["train"]
    trial = f"trial at lr {train['optimizer'].get('lr'):g}: " if train.get("trial") else ""
    return trial + score_text(record)


def score_of(record: Mapping[str, Any]) -> float:
    """The score of a record that is done, on the test split: of the selected weights, in the metric's unit."""
    return record["metrics"][_point(record)]["test"][record["metric"]["name"]]


def _point(record: Mapping[str, Any]) -> str:
    return "last" if record["selection"]["rule"] == "last" else "best"


def score_text(record: Mapping[str, Any]) -> str:
    """The score of a record that is done: `test acc 52.6 (n 2000, chance 12) · 0:28`; of a trial on validation.

    For lines that name the cell, whose name has the learning rate of a trial.
    """
    name, point = record["metric"]["name"], _point(record)
    if record["config"]["train"].get("trial"):
        val = record["metrics"][point]["val"]
        return f"val {name} {val[name]:.4g} (n {val['n']}) · {clock(record['wall_s'])}"
    test = record["metrics"][point]["test"]
    chance = f", chance {record['baseline']['test']:.4g}" if record["baseline"] else ""
    leak = " [selected on test]" if record["selection"]["leak"] else ""
    return f"test {name} {test[name]:.4g}{leak} (n {test['n']}{chance}) · {clock(record['wall_s'])}"


def outcome(record: Mapping[str, Any]) -> str:
    """The summary of a record that is done, else its error on one line."""
    return summary(record) if record["status"] == "done" else one_line(record["error"]["message"])[:160]
