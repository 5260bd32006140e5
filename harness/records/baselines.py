"""The scores of simple predictors on the data of cells: one file for all cells that share data and updates.

`baselines/<task>/<key>.json`, in a folder beside that of the records, has for each predictor what it was fitted to, how
long that took, and its metrics on the validation split, and an evaluation of the test split for each pass that models
make. The names of evaluations are those of a record: `baseline/<predictor>` in the test,
`<evaluation>/baseline/<predictor>` in a further pass. `<key>.npz` beside it has the score of each test example, as
`harness.records.predictions` stores them. A predictor or a pass that failed is not kept.

The key is a digest of the task's configuration, the number of training examples that a model draws, and the fingerprint
of the data, so a model, a seed or a learning rate does not change it. `data`, which files of earlier runs lack, has the
source of the data and the examples of each split.
"""

import functools
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Annotated, Any

from pydantic import Field, model_validator

from harness.config.declared import declared_scores
from harness.config.places import below
from harness.config.search import BY, LOSS, TIE
from harness.config.validation import StrictModel, parse
from harness.errors import one_line, shown
from harness.records import evidence, predictions
from harness.records.checks import impossible
from harness.records.files import write_json_atomic
from harness.records.record import RecordError, load_json
from harness.records.schema import BASELINE_PREFIX, Data, EvaluationEntry, Git, Hex, Scores, TaskName, Time, Versions
from harness.records.shared_file import Amount, SharedFile

FOLDER = "baselines"
SCHEMA_VERSION = 1
# settings of a task that change neither its examples nor their scores; the fingerprint covers the origin of the data
NOT_OF_DATA = ("pattern", "source", "path", "name")
OF_ALL = ("_all", " all")  # ends the name, and the label, of a predictor that saw more than a model
FLOOR_SHARE = 0.02


class Fit(StrictModel):
    """`saw`: what the predictor was fitted to, in words. `val`: metrics on the validation split; null if it failed."""

    saw: Annotated[str, Field(max_length=200)]
    seconds: Amount
    val: Scores | None


class BaselineFile(SharedFile):
    schema_version: int
    key: Hex
    task: TaskName
    fingerprint: str
    data: Data | None = None
    seen: Annotated[int, Field(ge=1)] | None
    fits: Annotated[dict[str, Fit], Field(min_length=1)]
    evaluations: dict[str, EvaluationEntry]
    versions: Versions
    git: Git
    finished: Time

    @model_validator(mode="after")
    def check_scores(self) -> "BaselineFile":
        """Each predictor is scored in the test, and all scores are possible."""
        if missing := [name for name in self.fits if f"{BASELINE_PREFIX}{name}" not in self.evaluations]:
            raise ValueError(f"evaluations.{BASELINE_PREFIX}{missing[0]}: missing")
        scores = {f"fits.{name}.val": fit.val or {} for name, fit in self.fits.items()}
        for name, evaluation in self.evaluations.items():
            if evaluation.status != "done":
                raise ValueError(f"evaluations.{name}: {evaluation.status}, which is not kept")
            scores[f"evaluations.{name}.metrics"] = evaluation.metrics
        for path, by_name in scores.items():
            for problem in impossible(by_name, declared_scores(self.task)):
                raise ValueError(f"{path}.{problem}")
        return self


def seen_by(train: Mapping[str, Any]) -> int | None:
    """The number of training examples that a model draws; None where batches are bounded by tokens.

    `train` is that part of a cell's configuration.
    """
    return train["max_steps"] * train["batch_size"] if train.get("batch_size") else None


def key_of(config: Mapping[str, Any], fingerprint: str) -> str:
    """16 hexadecimal digits. `config` is that of a cell or of its record."""
    task = {name: value for name, value in config["task"].items() if name not in NOT_OF_DATA}
    identity = {"task": task, "seen": seen_by(config["train"]), "fingerprint": fingerprint}
    text = json.dumps(identity, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def path_of(root: str | os.PathLike[str], task: str, key: str) -> Path:
    """`root`: the folder of the records."""
    return folder_of(root) / PurePath(task) / f"{key}.json"


def folder_of(root: str | os.PathLike[str]) -> Path:
    """The folder of all files beside a folder of records."""
    return Path(os.path.abspath(root)).parent / FOLDER


def read(path: Path) -> dict[str, Any]:
    """The entries of a file. Raises RecordError, in one line, for a file that is not valid."""
    try:
        entries = load_json(path)
        if isinstance(entries, dict) and entries.get("schema_version") != SCHEMA_VERSION:
            raise RecordError(f"schema_version is not {SCHEMA_VERSION}; remove the file and run do=baselines")
        parse(BaselineFile, entries, "", RecordError)
    except RecordError as error:
        raise RecordError(f"{shown(path)}: {one_line(error)}") from error
    if not path.match(f"{entries['task']}/{entries['key']}.json"):
        raise RecordError(f"{shown(path)}: its task and key are {entries['task']}/{entries['key']}, not its path")
    return entries


@functools.lru_cache(maxsize=256)
def _read(path: Path, modified_ns: tuple[int, ...]) -> dict[str, Any]:
    """The entries of a file whose scores follow from those of its examples. Raises RecordError."""
    entries = read(path)
    for problem in evidence.contradicted(path, entries, entries["task"]):
        raise RecordError(f"{shown(path)}: {problem}")
    return entries


def of_record(root: str | os.PathLike[str], record: Mapping[str, Any]) -> dict[str, Any] | None:
    """The entries of the file for a record, with its path as `file`; None if there is none. Raises RecordError."""
    fingerprint = record["data"]["fingerprint"]
    path = path_of(root, record["cell"]["task"], key_of(record["config"], fingerprint))
    if not fingerprint or not os.path.lexists(path):
        return None
    entries = read_checked(path)
    if entries["fingerprint"] != fingerprint:
        theirs = entries["fingerprint"][:12]
        raise RecordError(f"{shown(path)}: of data with fingerprint {theirs}, not {fingerprint[:12]}")
    return entries


def files_of(root: str | os.PathLike[str], task: str) -> list[Path]:
    """The files of a task. `root`: the folder of the records."""
    return sorted(path_of(root, task, "").parent.glob("*.json"))


def read_checked(path: Path) -> dict[str, Any]:
    """The entries of a file with its path as `file`. Raises RecordError, also for scores that its examples refute."""
    beside = predictions.path_of(path)
    modified_ns = tuple(file.lstat().st_mtime_ns for file in (path, beside) if os.path.lexists(file))
    return _read(path, modified_ns) | {"file": path}


def with_floor(searched: Mapping[str, Any], root: str, entries: Mapping[str, Any]) -> dict[str, Any]:
    """A search as in a record, with the floor: the score of the best simple predictor on the data of the record."""
    try:
        kept = of_record(root, entries) or {"fits": {}}
    except RecordError:
        kept = {"fits": {}}
    by = searched["by"].removeprefix(BY)
    least = floor(kept["fits"], by) if by == LOSS or not entries["metric"]["higher_is_better"] else None
    chosen = searched["scores"][searched["rates"].index(searched["chosen"])]
    return {**searched, "floor": least, "at_floor": is_at_floor(chosen, searched["error"], least)}


def floor(fits: Mapping[str, Mapping[str, Any]], by: str) -> float | None:
    """The least score `by` of the predictors on the validation split, such as the loss of counting values; None where
    it is not known. Predictors that saw more than a model do not count."""
    known = [(fit["val"] or {}).get(by) for name, fit in fits.items() if not name.endswith(OF_ALL)]
    return min((score for score in known if score is not None), default=None)


def is_at_floor(score: float | None, error: float | None, floor: float | None) -> bool:
    """Whether a score, the lower the better, with its standard error is no better than the floor: within FLOOR_SHARE
    or TIE standard errors of it, or worse."""
    if score is None or floor is None:
        return False
    return score >= floor - max(FLOOR_SHARE * abs(floor), TIE * (error or 0.0))


def write(root: str | os.PathLike[str], entries: Mapping[str, Any], scores: Mapping[str, Any]) -> Path:
    """Write the file and the scores of its test examples; returns its path. Raises RecordError or OSError.

    `scores`: evaluation -> `predictions.stored` scores.
    """
    parse(BaselineFile, dict(entries), "", RecordError)
    folder = Path(os.path.abspath(root)).parent
    path = below(folder, path_of(root, entries["task"], entries["key"]).relative_to(folder))
    predictions.write(path, scores)
    write_json_atomic(path, entries)
    return path
