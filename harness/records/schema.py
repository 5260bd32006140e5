"""The parts of a record: keys, types, and the range of each value. `harness.records.record` reads and writes them.

A new field is declared here and filled in by `harness.training.attempt.Attempt.entries`. Its annotation tells the rest:
`Column` that the frame of records has it, `KNOWN_WHEN_DONE` that only an unfinished cell may have null there.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, ConfigDict, Field, JsonValue, PrivateAttr, model_validator

from harness.config.search import MOST
from harness.config.validation import StrictModel, TupleOf, described, shortened
from harness.records.shared_file import LARGEST, Amount, Count, SharedFile


@dataclass(frozen=True)
class Column:
    """Marks a field of a record as a column of `harness.records.collect.frame`, by default with the field's name."""

    name: str = ""


# evaluations of untrained predictors: baseline/<name> in the test, <evaluation>/baseline/<name> in a further evaluation
BASELINE_PREFIX = "baseline/"
KNOWN_WHEN_DONE = "known when done"  # marks a field that is null only in an unfinished cell


def columns(model: type[StrictModel], path: tuple[str, ...] = ()) -> Iterator[tuple[str, tuple[str, ...]]]:
    """(name of a column, path of keys in a record) for each field that is marked as a `Column`."""
    for key, field in model.model_fields.items():
        yield from ((mark.name or key, (*path, key)) for mark in field.metadata if isinstance(mark, Column))
        for part in (field.annotation, *get_args(field.annotation)):
            if isinstance(part, type) and issubclass(part, StrictModel):
                yield from columns(part, (*path, key))


def matching(description: str, pattern: str) -> Any:
    """The type of a string that matches a pattern; messages name it by the description."""
    return Annotated[str, Field(pattern=described(description, f"^(?:{pattern})$"))]


def check_time(text: str) -> str:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{shortened(text)} is not an ISO 8601 time") from None
    return text


Hex = matching("hexadecimal digits", "[0-9a-f]+")
Status = Literal["done", "failed", "oom", "nan", "timeout", "preempted"]
STATUSES = get_args(Status)
Name = matching("a name", r"\w[\w.+-]{0,59}")
TaskName = matching("the name of a task", r"\w[\w.+-]{0,59}(/\w[\w.+-]{0,59}){0,2}")
PartName = matching("a name", r"\w[\w.+-]{0,59}(/\w[\w.+-]{0,59}){0,2}")
FileName = matching("the name of a file beside the record", r"\w[^/\x00]{0,199}")
Label = Annotated[str, Field(min_length=1, max_length=120)]
DataSource = matching("full | slice:<name> | synthetic | unknown", "full|slice:.{1,120}|synthetic|unknown")
Time = Annotated[str, AfterValidator(check_time)]
Score = Annotated[float, Field(ge=-LARGEST, le=LARGEST)]
Scores = dict[Label, Score]
Seed = Annotated[int, Field(ge=-LARGEST, le=LARGEST)]


class CellEntry(StrictModel):
    id: Annotated[Hex, Column()]
    model: Annotated[Name, Column()]
    task: Annotated[TaskName, Column()]
    protocol: Annotated[Name, Column()]
    budget: Annotated[Name, Column()]
    seed: Annotated[Seed, Column()]


class ConfigPart(StrictModel):
    """A part of a cell's configuration. Only the keys that readers use have a type."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, JsonValue]


class NamedPart(ConfigPart):
    name: PartName


class TaskPart(NamedPart):
    source: str | None = None


class SelectPart(ConfigPart):
    rule: str = None  # absent, but never null


class TrainPart(ConfigPart):
    max_steps: Count
    batch_size: Count | None = None
    batch_tokens: Count | None = None
    patience: Count | None = None
    trial: bool | None = None
    precision: str = None  # absent, but never null
    select: SelectPart = SelectPart()


class CellConfig(ConfigPart):
    """The canonical configuration of a cell, and that of its trainer."""

    model: NamedPart
    task: TaskPart
    train: TrainPart
    protocol: NamedPart
    budget: NamedPart
    seed: Seed
    dependencies: TupleOf[str] = ()
    trainer: dict[str, JsonValue] = Field(default_factory=dict)

    _as_written: dict[str, Any] = PrivateAttr()

    @model_validator(mode="wrap")
    @classmethod
    def keep(cls, raw: Any, handler: Callable[[Any], "CellConfig"]) -> "CellConfig":
        config = handler(raw)
        config._as_written = raw
        return config

    @property
    def as_written(self) -> dict[str, Any]:
        """The configuration as it stands in the file."""
        return self._as_written


class ErrorEntry(StrictModel):
    type: str
    message: str
    traceback: str


class ScoresEntry(StrictModel):
    """Metrics of one split by name, and `n`, the number of examples scored."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[Label, Score | None]
    n: Count


class Evaluated(StrictModel):
    """The scores at a step. `test` is absent if the test split was not scored. `val_se`: the standard error, over the
    validation examples, of the score that a search chooses by; absent from older records, and where it is not known."""

    step: Count
    val: ScoresEntry
    val_se: Amount = None  # absent, but never null
    test: ScoresEntry = None  # absent, but never null


class Metrics(StrictModel):
    best: Evaluated | None
    last: Evaluated | None


class CurvePoint(StrictModel):
    """The metric on the validation split after some updates."""

    step: Count
    val: Score


class Metric(StrictModel):
    name: Annotated[Label, Column("metric")]
    higher_is_better: Annotated[bool, Column()]


class Selection(StrictModel):
    """`leak`: the weights were chosen by the examples that the test scores."""

    rule: Annotated[Literal["best_val", "last", "last_mean", "best_test"], Column()]
    after_steps: Annotated[Count, Column()]
    leak: Annotated[bool, Column()]


class SearchEntry(StrictModel):
    """The search that chose the learning rate (`harness.config.search`).

    `by`: what it compared. `scores`: of each rate, the median over the trials of its seeds, null if they failed;
    `error`: the standard error of the chosen one. `floor`: the same score of the best simple predictor, null if it is
    not known; `at_floor`: the chosen rate does no better.
    """

    by: Label
    rates: Annotated[TupleOf[Amount], Field(min_length=1, max_length=MOST + 1)]
    scores: Annotated[TupleOf[Score | None], Field(max_length=MOST + 1)]
    seeds: Annotated[TupleOf[Seed], Field(min_length=1, max_length=2 * MOST)]
    chosen: Amount
    error: Amount | None
    on_edge: bool
    floor: Score | None = None
    at_floor: bool = False

    @model_validator(mode="after")
    def check_choice(self) -> "SearchEntry":
        if len(self.scores) != len(self.rates):
            raise ValueError(f"{len(self.scores)} scores of {len(self.rates)} rates")
        if self.chosen not in self.rates:
            raise ValueError("chosen is none of rates")
        return self


class Baseline(StrictModel):
    name: Annotated[Label, Column("baseline_name")]
    val: Score
    test: Annotated[Score, Column("baseline")]


class Parameters(StrictModel):
    total: Annotated[Count, Column("parameters")]
    attention: Annotated[Count, Column("attention_parameters")]


class Hardware(StrictModel):
    device: str
    cpu: str
    cores: Count
    memory_gb: Amount
    gpu: str | None
    threads: Count
    kernels: str | None = None  # `native`, `fla` or `flex`; null: torch's
    compile: bool = False  # whether torch.compile compiled the training passes
    matmul: str | None = None  # `high` (TF32) or `medium`; null: float32 in all its digits
    capability: str | None = None  # the CPU's instructions that were used; null in older records


class Versions(StrictModel):
    """Versions of packages by name; at least these four."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, str]
    python: str
    torch: str
    lightning: str
    longhaul: str


class Git(StrictModel):
    sha: Annotated[str | None, Column()]
    dirty: Annotated[bool, Column()]


class Data(StrictModel):
    source: Annotated[DataSource, Column()]
    fingerprint: Annotated[str, Column()]
    sizes: dict[Label, Count]


class Update(StrictModel):
    """How an update is divided. `tokens`: the bound of a batch, with `train.batch_tokens`."""

    examples: Count | None
    micro_batch_size: Count | None
    devices: Annotated[int, Field(ge=1, le=LARGEST)]
    tokens: Count | None = None


class DependencyEntry(StrictModel):
    """A cell that this cell started from, and the digest of the weights that it took."""

    cell: Hex
    weights_sha256: Hex | None


class PredictionsEntry(StrictModel):
    """Names and digest of the scores of each example, which `harness.records.predictions` stores."""

    sha256: Hex
    scores: TupleOf[Label]


class EvaluationEntry(StrictModel):
    """A pass over a split with the chosen weights. A failed pass is a value as well, with a message."""

    status: Literal["done", "oom", "failed", "unsupported"]
    message: str | None
    metrics: Scores | None
    n: Count | None
    seconds: Amount | None
    peak_memory_mb: Amount | None
    predictions: PredictionsEntry | None

    @model_validator(mode="after")
    def check_status(self) -> "EvaluationEntry":
        if self.status == "done" and (self.metrics is None or self.n is None):
            raise ValueError("status is done, but metrics or n is null")
        if self.status != "done" and not self.message:
            raise ValueError(f"status is {self.status}, but message is empty")
        return self


class Record(SharedFile):
    """`config`: the cell's in canonical form, and the trainer's. `changed`: {key: [recipe's value, value used]}."""

    FREE = frozenset({"error"})

    schema_version: int
    cell: CellEntry
    config: Annotated[CellConfig, Column()]
    changed: dict[str, JsonValue]
    depends_on: TupleOf[DependencyEntry]
    status: Annotated[Status, Column()]
    error: ErrorEntry | None
    metrics: Annotated[Metrics | None, KNOWN_WHEN_DONE]
    # every evaluation on the validation split; absent from older records
    curve: Annotated[TupleOf[CurvePoint], Column()] = ()
    metric: Annotated[Metric | None, KNOWN_WHEN_DONE]
    evaluations: Annotated[dict[Label, EvaluationEntry], Column()]
    selection: Selection
    search: SearchEntry = None  # absent without a search and from older records, but never null
    baseline: Baseline | None
    parameters: Annotated[Parameters | None, KNOWN_WHEN_DONE]
    steps: Annotated[Count | None, Column(), KNOWN_WHEN_DONE]
    tokens: Annotated[Count | None, Column(), KNOWN_WHEN_DONE]
    examples: Annotated[Count | None, Column(), KNOWN_WHEN_DONE]
    wall_s: Annotated[Amount | None, Column(), KNOWN_WHEN_DONE]
    examples_per_s: Annotated[Amount | None, Column(), KNOWN_WHEN_DONE]
    tokens_per_s: Annotated[Amount | None, Column(), KNOWN_WHEN_DONE]
    peak_memory_mb: Annotated[Amount | None, Column(), KNOWN_WHEN_DONE]
    hardware: Hardware
    versions: Versions
    git: Git
    # of the source of model, backbone and task; absent from older records, but never null
    code_sha256: Annotated[Hex, Column("code")] = None
    training_sha256: Hex = None  # of the source of the training; absent from older records, but never null
    data: Data
    update: Update = None  # absent, but never null
    # the settings of `harness.config.schema.conditions`; absent from older records, but never null
    conditions: dict[Label, str | bool | Count | None] = None
    resumes: Annotated[Count, Column()]
    changed_at_resume: TupleOf[str] = ()  # conditions that differed, such as `step 16: torch 2.6.0, now 2.7.0`
    artifacts: dict[FileName, Hex]  # files beside the record and their sha256
    weights_sha256: Hex | None  # of the last step
    tested_weights_sha256: Hex | None  # of the weights that the test split was scored with
    started: Time
    finished: Annotated[Time, Column()]
