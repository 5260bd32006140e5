"""Records -> a tidy frame with one row per cell. A broken record is reported, never skipped in silence."""

import functools
import hashlib
import json
import os
import sys
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from harness.config.cell import IDENTITY, NAMES, flatten, name_of
from harness.config.compose import names_in
from harness.config.search import Trial, trial_of
from harness.config.sweep import PlannedCell
from harness.config.table_rows import format_settings, settings_key
from harness.errors import one_line, shown
from harness.garbage import rare_garbage_collection
from harness.records import baselines, index, predictions, record
from harness.records.cache import NO_CACHE, Cache
from harness.records.listing import record_files
from harness.records.record import RecordError
from harness.records.schema import Record, columns

if TYPE_CHECKING:
    import pandas as pd

Cells: TypeAlias = "pd.DataFrame"  # of records, a row for each cell
FIELDS = dict(columns(Record))  # column -> path in a record
COMPUTED = (
    *("variant", "changed", "score", "tested", "artifacts", "val", "n_test", "step", "predictions", "baselines"),
    *("core_hours", "gpu_hours", "hardware", "origin", "gives_weights", "trial"),
)
COLUMNS = (*FIELDS, *COMPUTED)


def load_records(
    root: str | os.PathLike[str],
    broken: list[str] | None = None,
    *,
    tasks: Collection[str] | None = None,
    cache: Cache = NO_CACHE,
) -> list[dict[str, Any]]:
    """The valid records below a folder, in an order that does not depend on the file system.

    Each has its path as a further entry, `file`. Files that are not valid records are left out, and each problem is
    added to `broken`; without such a list they raise RecordError. Two records of the same cell are both left out,
    because nothing says which of them counts. `tasks`: only the records of these tasks, and only their problems.
    """
    problems: list[str] = []
    valid = valid_summaries(root, problems, cache, tasks)
    if broken is None and problems:
        raise RecordError(problems[0])
    records = read_valid([summary for summary in valid if tasks is None or summary.cell["task"] in tasks], problems)
    (broken if broken is not None else []).extend(problems)
    return records


def read_valid(valid: Iterable[index.Summary], problems: list[str]) -> list[dict[str, Any]]:
    """The records of these summaries; `problems` gets those that have been replaced by invalid ones since."""
    records = []
    with rare_garbage_collection():
        for summary in valid:
            try:
                entries = record.read(summary.file, valid_sha256=summary.sha256)
            except RecordError as error:
                problems.append(str(error))
                continue
            records.append(entries | {"file": summary.file})
    return records


class TrialRecords:
    """Trials by their records (`harness.config.sweep.Validation`). A record is read once it is there, and then kept."""

    def __init__(self) -> None:
        self._results: dict[str, Trial] = {}

    def __call__(self, trial: PlannedCell) -> Trial | None:
        """The result of a trial; None without a valid record."""
        if trial.cell.id not in self._results:
            try:
                self._results[trial.cell.id] = trial_of(record.read(trial.cell.record_path(trial.config)))
            except (RecordError, OSError):
                return None
        return self._results[trial.cell.id]


def valid_summaries(
    root: str | os.PathLike[str],
    problems: list[str],
    cache: Cache = NO_CACHE,
    tasks: Collection[str] | None = None,
) -> list[index.Summary]:
    """Those of the records that `load_records` returns; `problems` gets what it adds to `broken`."""
    of_cell: dict[str, list[index.Summary]] = {}
    files = list(record_files(root, problems, other_folders(tasks)))
    for summary in index.summaries(Path(root), files, cache):
        if summary.problems:
            problems.append(summary.message)
        else:
            of_cell.setdefault(summary.cell["id"], []).append(summary)
    for id, duplicates in of_cell.items():
        if len(duplicates) > 1:
            paths = " and ".join(shown(summary.file) for summary in duplicates)
            problems.append(f"{paths} are records of the same cell ({id}); remove all but one")
    keys = ("task", "protocol", "budget", "model", "seed", "id")
    unique = [duplicates[0] for duplicates in of_cell.values() if len(duplicates) == 1]
    return sorted(unique, key=lambda summary: tuple(summary.cell[key] for key in keys))


def other_folders(tasks: Collection[str] | None) -> list[str]:
    """The folders of records of all tasks but these: a record lies in that of its task (`harness.commands.check`)."""
    if tasks is None:
        return []
    return [name for name in names_in("task") if not any(f"{task}/".startswith(f"{name}/") for task in tasks)]


def valid_records(
    root: str | os.PathLike[str],
    *,
    published: bool = False,
    tasks: Collection[str] | None = None,
    cache: Cache = NO_CACHE,
) -> tuple[list[dict[str, Any]], int]:
    """The valid records below a folder, and the number of files that are left out, each named on standard error.

    `published`: a record that does not state all changes to its recipe, or that contradicts the scores of its examples
    or the metric of its task, is left out as well (`harness.records.evidence`).
    `tasks`: only the records of these tasks, and only their problems.
    """
    broken: list[str] = []
    records = load_records(root, broken, tasks=tasks, cache=cache)
    if published:
        files = [entries["file"] for entries in records]
        contradictions = index.contradictions(Path(root), files, cache)
        broken += [
            f"{shown(file)}: {problems[0][1]}" for file, problems in zip(files, contradictions, strict=True) if problems
        ]
        records = [entries for entries, problems in zip(records, contradictions, strict=True) if not problems]
    say_left_out(broken)
    return records, len(broken)


def say_left_out(problems: Sequence[str]) -> None:
    for problem in problems:
        print(f"left out: {one_line(problem)}", file=sys.stderr)


@functools.cache
def say_left_out_once(problem: str) -> None:
    """For a file that many records or columns share."""
    say_left_out([problem])


def frame(records: Sequence[dict[str, Any]]) -> "pd.DataFrame":
    """One row per cell: the columns that `schema.Record` marks, and COMPUTED. Unknown values are None or NaN, not zero.

    `score` is the metric on the test split with the selected weights, in the metric's own unit, and `tested` has all
    metrics there by name. `artifacts` are names of files in the record's folder. `predictions` is the Path of the
    scores of each example (`harness.records.predictions.read`), None without this file. `baselines` is
    the content of the cell's file of `harness.records.baselines`, None without it. `source` is the part of the
    data that was used, and `origin` the task's name for their origin: `full` if what was requested as a slice turned
    out to be everything. `variant` is equal for cells whose configurations differ only in the seed. `code` is the
    digest of their source and the kernels that are not torch's, None if unknown. `changed` are the settings that differ
    from the recipe, as pairs of key and JSON value (`harness.config.table_rows.settings_key`). `core_hours` are wall
    hours times threads of a run without a GPU; `gpu_hours` wall hours times GPUs. `gives_weights`: another of these
    cells started from its weights. `trial`: the result of a trial (`harness.config.search.Trial`), None of any other.
    """
    import pandas as pd

    starts = {dependency["cell"] for entries in records for dependency in entries["depends_on"]}
    rows = [_row(entries) | {"gives_weights": entries["cell"]["id"] in starts} for entries in records]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _row(entries: dict[str, Any]) -> dict[str, Any]:
    row = {column: _value(entries, path) for column, path in FIELDS.items()}
    row["parameters"] = row["parameters"] or None  # 0 in a cell that could not be built
    # an unfinished cell has no result, although it may have measured something
    metrics = entries["metrics"] if entries["status"] == "done" else None
    point = (metrics or {}).get("last" if row["rule"] == "last" else "best") or {}
    test, hardware = point.get("test") or {}, entries["hardware"]
    origin = entries["config"]["task"].get("source")
    cores = f"{hardware['threads']} of {hardware['cores']} cores"
    return row | {
        "variant": variant(entries["config"]),
        "code": row["code"] and " ".join([row["code"], *_kernels(hardware)]),
        "changed": settings_key({key: used for key, (_, used) in entries["changed"].items()}),
        "score": test.get(row["metric"]),
        "tested": test,
        "artifacts": tuple(sorted(entries["artifacts"])),
        "val": (point.get("val") or {}).get(row["metric"]),
        "n_test": test.get("n"),
        "step": point.get("step"),
        "predictions": _predictions(entries),
        "baselines": _baselines(entries),
        "core_hours": None if hardware["gpu"] else _hours(entries, hardware["threads"]),
        "gpu_hours": _hours(entries, entries.get("update", {}).get("devices", 1)) if hardware["gpu"] else None,
        "hardware": hardware["gpu"] or f"{hardware['cpu']} ({', '.join([cores, *_kernels(hardware)])})",
        "origin": row["source"] if (origin, row["source"]) == ("slice", "full") else origin,
        "trial": trial_of(entries) if entries["config"]["train"].get("trial") else None,
    }


def _value(entries: Any, path: Sequence[str]) -> Any:
    """The value at a path of keys; None below a key that is absent or null."""
    for key in path:
        entries = (entries or {}).get(key)
    return entries


def _baselines(entries: dict[str, Any]) -> dict[str, Any] | None:
    """None for records that were not read from a file. A broken file is named, and counts as missing."""
    if "file" not in entries:
        return None
    parts = 1 + name_of(**{key: entries["cell"][key] for key in NAMES}).count("/")
    folders = entries["file"].absolute().parents
    if len(folders) < parts:  # a record that lies elsewhere than its names say
        return None
    try:
        return baselines.of_record(folders[parts - 1], entries)
    except RecordError as error:
        say_left_out_once(str(error))
        return None


def _predictions(entries: dict[str, Any]) -> Path | None:
    """None for records that were not read from a file, and for unfinished cells."""
    if "file" not in entries or entries["status"] != "done":
        return None
    path = predictions.path_of(entries["file"])
    return path if os.path.lexists(path) else None


def variant(config: dict[str, Any]) -> str:
    """Eight hexadecimal digits, equal for cells that differ only in their seeds."""
    return hashlib.sha256(json.dumps(recipe(config), sort_keys=True).encode()).hexdigest()[:8]


def recipe(config: dict[str, Any]) -> dict[str, Any]:
    """A cell's identity without its seed."""
    return {key: config[key] for key in IDENTITY if key in config and key != "seed"}


def differences(configs: Sequence[dict[str, Any]]) -> list[str]:
    """For each config, the settings that not all share: `model.window=16, train.optimizer.lr=0.001`."""
    recipes = [flatten(recipe(config)) for config in configs]
    keys = {key for settings in recipes for key in settings}
    differing = {key for key in keys if len({json.dumps(settings.get(key)) for settings in recipes}) > 1}
    return [format_settings(settings_key({key: s[key] for key in differing if key in s})) for s in recipes]


def _hours(entries: dict[str, Any], units: int) -> float | None:
    """Wall hours times cores or GPUs; None for a cell that ended before they were known."""
    return None if entries["wall_s"] is None else entries["wall_s"] * units / 3600


def _kernels(hardware: dict[str, Any]) -> list[str]:
    """What computes other last bits than torch's own kernels."""
    named = [f"{key}={hardware[key]}" for key in ("kernels", "matmul") if hardware.get(key)]
    return named + ["compiled"] * bool(hardware.get("compile"))
