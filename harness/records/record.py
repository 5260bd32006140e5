"""The record: the JSON file that one cell leaves behind, and the only source of every table and figure.

There is one file per cell and no database, so a thousand jobs can write at once. Files are replaced atomically. A
record is checked when it is written and again when it is read. `Record` below is its schema.

Units: seconds; memory in MiB (`peak_memory_mb`) and GiB (`memory_gb`); scores in the metric's own unit, which is the
one that papers print (accuracy in percent); times in ISO 8601. Numbers are finite. An unknown value is null, and only
an unfinished cell (`status` other than `done`) may have one where `KNOWN_WHEN_DONE` lists the key.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, JsonValue, model_validator

from harness.config.validation import StrictModel, TupleOf, parse
from harness.errors import UsageError
from harness.records.atomic import write_atomic

SCHEMA_VERSION = 2
MIGRATE = "run: python -m harness.records.migrate <folder of the records>"
KNOWN_WHEN_DONE = (
    *("metrics", "metric", "parameters", "steps", "tokens", "examples"),
    *("wall_s", "examples_per_s", "tokens_per_s", "peak_memory_mb"),
)


PERCENTAGE = re.compile(r"(acc|f1|rouge\w*|bleu|sacrebleu|chrf)(/.*)?")  # metrics between 0 and 100
ROUNDING = 1e-6


class RecordError(UsageError):
    """A file that is no valid record. One line: file, key, what is wrong."""


def matching(what: str, pattern: str) -> Any:
    """The type of a string that matches a pattern; messages describe it as `what`."""

    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(f"{text!r} is not {what}")
        return text

    return Annotated[str, AfterValidator(check)]


def check_time(text: str) -> str:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is not an ISO 8601 time") from None
    return text


Hex = matching("hexadecimal digits", "[0-9a-f]+")
Name = matching("a name", r"\w[\w.+-]*")
FileName = matching("the name of a file beside the record", "[^/]+")
DataSource = matching("full | slice:<name> | synthetic | unknown", "full|slice:.+|synthetic|unknown")
Time = Annotated[str, AfterValidator(check_time)]


class CellEntry(StrictModel):
    id: Hex
    model: str
    task: str
    protocol: str
    budget: Name
    seed: int


class ErrorEntry(StrictModel):
    type: str
    message: str
    traceback: str


class Scores(StrictModel):
    """Metrics of one split by name, and `n`, the number of examples scored."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, float | None]
    n: int


class Evaluated(StrictModel):
    """What was measured at one step. `test` is absent where the test split was not scored."""

    step: int
    val: Scores
    test: Scores = None  # absent, but never null


class Metrics(StrictModel):
    best: Evaluated | None
    last: Evaluated | None


class Metric(StrictModel):
    name: str
    higher_is_better: bool


class Selection(StrictModel):
    """`leak`: the checkpoint was chosen on the examples that the test score is of."""

    rule: Literal["best_val", "last", "last_mean", "best_test"]
    after_steps: int
    leak: bool


class Baseline(StrictModel):
    name: str
    val: float
    test: float


class Parameters(StrictModel):
    total: int
    attention: int


class Hardware(StrictModel):
    device: str
    cpu: str
    cores: int
    memory_gb: float
    gpu: str | None
    threads: int


class Versions(StrictModel):
    """Versions of packages by name; these four at least."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, str]
    python: str
    torch: str
    lightning: str
    longhaul: str


class Git(StrictModel):
    sha: str | None
    dirty: bool


class Data(StrictModel):
    source: DataSource
    fingerprint: str
    sizes: dict[str, int]


class Update(StrictModel):
    """How an optimiser update was divided. `tokens` stands where batches are made by tokens."""

    examples: int | None
    micro_batch_size: int | None
    devices: int
    tokens: int | None = None


class Dependency(StrictModel):
    """A cell that this one started from, and the digest of the weights that it took."""

    cell: Hex
    weights_sha256: Hex | None


class Predictions(StrictModel):
    """Names of the scores of each example, and a digest of them; `harness.records.predictions` keeps them."""

    sha256: Hex
    scores: TupleOf[str]


class Evaluation(StrictModel):
    """One pass over a split with the chosen weights. A pass that failed is a value too, with a message."""

    status: Literal["done", "oom", "failed", "unsupported"]
    message: str | None
    metrics: dict[str, float] | None
    n: int | None
    seconds: float | None
    peak_memory_mb: float | None
    predictions: Predictions | None

    @model_validator(mode="after")
    def check_status(self) -> "Evaluation":
        if self.status == "done" and (self.metrics is None or self.n is None):
            raise ValueError("status is done, but metrics or n is null")
        if self.status != "done" and not self.message:
            raise ValueError(f"status is {self.status}, but message is empty")
        return self


class Record(StrictModel):
    """`config`: the cell's in canonical form, and the trainer's. `changed`: {key: [recipe's value, value used]}."""

    schema_version: int
    cell: CellEntry
    config: dict[str, JsonValue]
    changed: dict[str, JsonValue]
    depends_on: TupleOf[Dependency]
    status: Literal["done", "failed", "oom", "nan", "timeout", "preempted"]
    error: ErrorEntry | None
    metrics: Metrics | None
    metric: Metric | None
    evaluations: dict[str, Evaluation]
    selection: Selection
    baseline: Baseline | None
    parameters: Parameters | None
    steps: int | None
    tokens: int | None
    examples: int | None
    wall_s: float | None
    examples_per_s: float | None
    tokens_per_s: float | None
    peak_memory_mb: float | None
    hardware: Hardware
    versions: Versions
    git: Git
    code_sha256: Hex = None  # of the source of model, backbone and task; absent from older records, but never null
    data: Data
    update: Update = None  # absent, but never null
    resumes: int
    artifacts: dict[FileName, Hex]  # files beside the record and their sha256
    weights_sha256: Hex | None  # of the last step
    tested_weights_sha256: Hex | None  # of the weights that the test split was scored with
    started: Time
    finished: Time

    @model_validator(mode="after")
    def check_consistency(self) -> "Record":
        for problem in inconsistencies(self):
            raise ValueError(problem)
        return self


def inconsistencies(record: Record) -> Iterator[str]:
    """What is wrong between the parts of a record, each of which is valid alone."""
    done = record.status == "done"
    if done != (record.error is None):
        yield f"error: {'not null' if done else 'null'}, with status {record.status}"
    if record.selection.rule == "best_test" and not record.selection.leak:
        yield "selection.leak: false, but best_test selects on the test split"
    for name, evaluation in record.evaluations.items():
        yield from (f"evaluations.{name}.metrics.{problem}" for problem in impossible(evaluation.metrics or {}))
    if not done:
        return
    yield from (f"{key}: null, with status done" for key in KNOWN_WHEN_DONE if getattr(record, key) is None)
    if record.data.source == "unknown":
        yield "data.source: unknown, with status done"
    for point in ("best", "last"):
        evaluated = getattr(record.metrics, point)
        if evaluated is None:
            yield f"metrics.{point}: null, with status done"
            continue
        for split in ("val", "test"):
            scores = getattr(evaluated, split)
            found = scores.model_extra if scores else {}
            unknown = [name for name, score in found.items() if score is None]
            yield from (f"metrics.{point}.{split}.{name}: null, with status done" for name in unknown)
            yield from (f"metrics.{point}.{split}.{problem}" for problem in impossible(found))
        if record.metric.name not in evaluated.val.model_extra:
            yield f"metrics.{point}.val.{record.metric.name}: missing, but metric.name is {record.metric.name}"


def impossible(scores: Mapping[str, float | None]) -> Iterator[str]:
    """Percentages that are none; sacreBLEU rounds a perfect score to 100.00000000000004."""
    for name, score in scores.items():
        if score is not None and PERCENTAGE.fullmatch(name) and not -ROUNDING <= score <= 100 + ROUNDING:
            yield f"{name}: {score:g} is no percentage"


def validate(record: Any) -> None:
    """Check a record against the schema and its own parts against each other. Raises RecordError."""
    version = record.get("schema_version") if isinstance(record, dict) else None
    if isinstance(version, int) and version != SCHEMA_VERSION:
        known = MIGRATE if version == 1 else f"this Longhaul reads {SCHEMA_VERSION}"
        raise RecordError(f"schema_version: {version}; {known}")
    parse(Record, record, "", RecordError)


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The record in a file. Raises RecordError, naming file and key, if it is not valid."""
    path = Path(path)
    try:
        record = load_json(path)
        validate(record)
    except RecordError as error:
        raise RecordError(f"{path}: {error}") from error
    return record


def load_json(path: Path) -> Any:
    """What a file holds, of any version. Raises RecordError without the file's name."""
    try:
        return json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse_constant)
    except (OSError, UnicodeDecodeError) as error:
        raise RecordError(f"cannot be read: {getattr(error, 'strerror', None) or error}") from error
    except json.JSONDecodeError as error:
        raise RecordError(f"line {error.lineno}: no JSON: {error.msg}; remove it and run its cell") from error


def write(record: dict[str, Any], path: str | os.PathLike[str]) -> None:
    """Check a record and write it; an older one there is replaced. Raises RecordError or OSError."""
    try:
        validate(record)
    except RecordError as error:
        raise RecordError(f"{path}: not written: {error}") from error
    write_atomic(path, json.dumps(record, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n")


def _refuse_constant(constant: str) -> None:
    raise RecordError(f"{constant} is not a finite number")
