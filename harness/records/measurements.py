"""Measurements of do=bench, read from `results/bench`: the keys and types of their parts.

A file may come from elsewhere, so it is checked as a whole before any page uses a part of it. Keys that no reader uses
may be there as well.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, JsonValue, model_validator

from harness.config.validation import StrictModel, TupleOf, parse
from harness.errors import LONGEST_NAME, UsageError, one_line, shown
from harness.records.shared_file import LARGEST, Amount, Count, SharedFile
from tasks.regular_files import read_json

MAX_BYTES = 2**26  # of a file
OK = "ok"
Measurement = Mapping[str, Any]
Measurements = Mapping[str, Measurement]  # by name


Text = Annotated[str, Field(max_length=500)]
Positive = Annotated[float, Field(gt=0, le=LARGEST)]
Settings = dict[Text, JsonValue]


class Part(StrictModel):
    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[Text, JsonValue]


class Sizes(Part):
    """What was measured: layers, or with `task` the model of a recipe."""

    peer: Text
    pattern: Text | None
    dim: Count | None
    heads: Count | None
    batch: Count | None
    layers: Count | None
    precision: Text
    axis: Text = None  # absent, but never null
    task: Text | None = None
    protocol: Text | None = None
    set: Settings = None  # absent, but never null
    mode: TupleOf[Text] = ()
    batches: TupleOf[Count] = ()
    prompt: Count = None  # absent, but never null
    top_k: Count | None = None

    @model_validator(mode="after")
    def check_kind(self) -> "Sizes":
        needed = ("protocol",) if self.task else ("pattern", "dim", "heads")
        if missing := [key for key in needed if getattr(self, key) is None]:
            raise ValueError(f"{missing[0]} is missing")
        if self.task and self.set is None:
            raise ValueError("set is missing")
        if "prompt" in self.model_fields_set and "top_k" not in self.model_fields_set:
            raise ValueError("top_k is missing")
        return self


class Machine(Part):
    device: Text
    cpu: Text
    gpu: Text | None
    threads: Count


class Point(Part):
    """`status` is `ok`, or says why there is no number."""

    model: Text
    what: Text
    length: Count
    status: Text
    ms: Positive = None  # absent, but never null
    ms_quartiles: TupleOf[Amount] = ()
    memory_mb: Amount = None  # absent, but never null
    samples: TupleOf[Amount] = ()
    disturbed: Count = 0
    cold: Count = 0
    mode: Text | None = None
    batch: Count | None = None
    prompt: Count | None = None

    @model_validator(mode="after")
    def check_status(self) -> "Point":
        if self.status == OK and (self.ms is None or self.memory_mb is None):
            raise ValueError("status is ok, but ms or memory_mb is missing")
        return self


class MeasuredRow(Part):
    model: Text
    set: Settings


class Versions(Part):
    __pydantic_extra__: dict[Text, Text]
    torch: Text


class Measured(SharedFile, Part):
    kind: Literal["bench"]
    name: Text
    settings: Sizes
    models: dict[Text, Settings]
    points: Annotated[TupleOf[Point], Field(max_length=100_000)]
    hardware: Machine
    versions: Versions
    rows: dict[Text, MeasuredRow] = Field(default_factory=dict)
    absent: dict[Text, Text] = Field(default_factory=dict)
    timed: dict[Text, Text] = Field(default_factory=dict)
    kernels: dict[Text, TupleOf[Text]] = Field(default_factory=dict)  # of older measurements


def load_measurements(folder: Path) -> Measurements:
    """{name: measurement} of a folder. Raises UsageError for a file that is no measurement."""
    return {path.stem: read(path) for path in sorted(folder.glob("*.json"))}


def read(path: Path) -> Measurement:
    """Raises UsageError, in one line with the path, for a file that is no measurement."""
    try:
        measured = read_json(path, MAX_BYTES)
        if measured["name"] != path.stem:
            raise ValueError(f"its name is {str(measured['name'])[:LONGEST_NAME]}")
        parse(Measured, measured, "")
    except (OSError, ValueError, KeyError, TypeError, UsageError) as error:
        raise UsageError(
            f"{shown(path)}: not a measurement: {one_line(error)}; move it away or measure again"
        ) from error
    return measured
