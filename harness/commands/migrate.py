"""do=migrate: scores of examples of earlier runs, beside records and baselines, in the form in which runs keep them.

    python run.py do=migrate

The scores are rounded and packed (`harness.records.packed`): their sums and the metrics stay, and a record gets the
digests of the rounded scores. What is in this form already is left alone, so the verb may be typed again. Both files
of a cell are replaced one after the other. If the command is killed between them, `do=check` names the cell; restore
its record from git.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from harness.config.declared import declared_scores
from harness.config.overrides import typed_values
from harness.config.places import folder_below, require_folders
from harness.errors import UsageError, one_line, shown
from harness.records import baselines, evidence, predictions, record
from harness.records.files import write_json_atomic
from harness.records.listing import record_files
from harness.records.record import RecordError


def run(cfg: DictConfig, overrides: Sequence[str]) -> int:
    """Returns 1 if a file was left as it is because it is not valid."""
    require_folders(cfg.paths, typed_values(overrides), "records")
    before = after = converted = 0
    problems: list[str] = []
    for path, read, task_of in _files(Path(cfg.paths.records), problems):
        try:
            entries = read(path)
            if not any(evaluation["predictions"] for evaluation in entries["evaluations"].values()):
                continue
            size = _size(path)
            converted += _convert(path, entries, task_of(entries))
        except (RecordError, OSError) as error:
            problems.append(one_line(error))
            continue
        before, after = before + size, after + _size(path)
    for problem in problems:
        print(f"left as it is: {problem}")
    print(f"{converted} files converted; scores of examples: {before / 1e6:.1f} MB before, {after / 1e6:.1f} MB now")
    return int(bool(problems))


Reader = Callable[[Path], dict[str, Any]]


def _files(records: Path, problems: list[str]) -> Iterator[tuple[Path, Reader, Callable[[Mapping[str, Any]], str]]]:
    """(file, what reads it, what gives its task) of all records and baselines."""
    for path in record_files(records, problems):
        yield path, record.read, lambda entries: entries["cell"]["task"]
    try:
        folder = folder_below(records.absolute().parent, baselines.FOLDER)
    except UsageError as error:
        problems.append(str(error))
        return
    for path in record_files(folder, problems):
        yield path, baselines.read, lambda entries: entries["task"]


def _size(path: Path) -> int:
    return predictions.path_of(path).stat().st_size


def _convert(path: Path, entries: dict[str, Any], task: str) -> bool:
    """Whether the files of a record changed. Raises RecordError for scores that are not those of the record."""
    kept = predictions.read(path, entries)
    try:
        rounded = {name: predictions.stored(scores) for name, scores in kept.items()}
    except ValueError as error:
        raise RecordError(f"{shown(path)}: {error}") from error
    for problem in evidence.unexplained(entries["evaluations"], rounded, declared_scores(task)):
        raise RecordError(f"{shown(path)}: rounded, its scores would not explain its metrics: {problem}")
    data = predictions.packed(rounded)
    digests = {name: predictions.described(scores) for name, scores in rounded.items()}
    same = all(entries["evaluations"][name]["predictions"] == digest for name, digest in digests.items())
    if same and predictions.path_of(path).read_bytes() == data:
        return False
    predictions.write(path, rounded)
    if not same:
        content = json.loads(path.read_text(encoding="utf-8"))
        for name, digest in digests.items():
            content["evaluations"][name]["predictions"] = digest
        write_json_atomic(path, content)
    return True
