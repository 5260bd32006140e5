"""The parts of a record: keys, types, and what a value alone may be. `harness.records.record` reads and writes them."""

import re
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, JsonValue, model_validator

from harness.config.validation import StrictModel, TupleOf


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
Name = matching("a name", r"\w[\w.+-]{0,59}")
TaskName = matching("the name of a task", r"\w[\w.+-]{0,59}(/\w[\w.+-]{0,59})*")
FileName = matching("the name of a file beside the record", "[^/]+")
DataSource = matching("full | slice:<name> | synthetic | unknown", "full|slice:.+|synthetic|unknown")
Time = Annotated[str, AfterValidator(check_time)]


class CellEntry(StrictModel):
    id: Hex
    model: Name
    task: TaskName
    protocol: Name
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
    kernels: str | None = None  # `native`; None: torch's


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
