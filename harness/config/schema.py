"""The harness' own keys, typed. What belongs to a model, a task or a backbone stays open: their constructors check it.

Registered in Hydra's ConfigStore as `schema`, the first entry of `conf/config.yaml`'s defaults list, so that a mistyped
key or a value of the wrong type is refused while the configuration is composed, before anything heavy is imported.
A new setting is a field here, with its bound and its part in the identity of a cell as metadata (`key`), and the code
that uses it. A setting that is WHEN_SET leaves the ids of all earlier cells as they are.
"""

import math
from dataclasses import Field, dataclass, field, fields
from enum import Enum
from pathlib import Path
from typing import Any

from omegaconf import MISSING

from harness.config.places import CLONE, LEDGER
from harness.errors import UsageError

Rerun = Enum("Rerun", ["missing", "failed", "all"])
Kernels = Enum("Kernels", ["torch", "native"])
Rule = Enum("Rule", ["best_val", "last", "last_mean", "best_test"])

# whether a setting belongs to the identity of a cell: only while it is set, or not at all; by default it does
WHEN_SET, NEVER = "when set", "never"


@dataclass(frozen=True)
class Bound:
    """Of a number: at least `least`, and more than `above`."""

    least: float | None = None
    above: float | None = None

    def check(self, key: str, value: Any) -> None:
        """Raises UsageError for a number outside the bound, and for nan and inf; other values are passed by."""
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return
        if not math.isfinite(value):
            raise UsageError(f"{key}={value}: a finite number is expected")
        if self.least is not None and value < self.least:
            raise UsageError(f"{key}={value} is less than {self.least}")
        if self.above is not None and value <= self.above:
            raise UsageError(f"{key}={value} is not more than {self.above}")


def key(default: Any, *, least: float | None = None, above: float | None = None, identity: str | None = None) -> Any:
    """A field with its bound and its part in the identity of a cell (None, WHEN_SET or NEVER), as metadata."""
    bound = None if least is None and above is None else Bound(least, above)
    return field(default=default, metadata={"bound": bound, "identity": identity})


def bound_of(field: "Field[Any]") -> Bound | None:
    return field.metadata.get("bound")


def names_of(schema: type, identity: str) -> list[str]:
    """The fields of a class that are WHEN_SET or NEVER part of a cell's identity."""
    return [entry.name for entry in fields(schema) if entry.metadata.get("identity") == identity]


@dataclass
class Recipe:
    """One paper's protocol. A recipe in several sizes has them as `configurations`, which ${size:key} reads."""

    name: str = MISSING
    configuration: str | None = key(None, identity=WHEN_SET)  # which one
    configurations: dict[str, Any] = field(default_factory=dict, metadata={"identity": NEVER})  # {name: {key: value}}


@dataclass
class Scale:
    """The scale of a run: paper, reduced, smoke, or a user's own `conf/budget/<name>.yaml`."""

    name: str = MISSING


@dataclass
class Select:
    """Which weights the test split is scored on. `best_test` is a leak and is stamped as one."""

    rule: Rule = Rule.best_val
    after: float = key(0.0, least=0)  # fraction of max_steps before which no checkpoint counts


@dataclass
class Train:
    max_steps: int = key(MISSING, least=1)  # optimiser updates
    batch_size: int = key(MISSING, least=1)  # examples in an update, over all devices
    # examples in one forward pass of one device; null: whatever fits the update
    micro_batch_size: int | None = key(None, least=1, identity=NEVER)
    # tokens in an update, with padding, in place of batch_size examples
    batch_tokens: int | None = key(None, least=1, identity=WHEN_SET)
    # tokens in one forward pass of one device; null: an update's share
    micro_batch_tokens: int | None = key(None, least=1, identity=NEVER)
    eval_batch_size: int = key(MISSING, least=1, identity=NEVER)
    eval_every: int = key(MISSING, least=1)  # updates between two passes over the validation split
    optimizer: dict[str, Any] = field(default_factory=dict)
    schedule: dict[str, Any] = field(default_factory=dict)
    clip_norm: float | None = key(None, above=0)
    clip_value: float | None = key(None, above=0)
    clip_each: float | None = key(None, above=0, identity=WHEN_SET)  # norm of each parameter's gradient
    precision: str = "32-true"  # as in lightning.pytorch.Trainer
    select: Select = field(default_factory=Select)
    # select.rule=last_mean: evaluations, the last ones, whose weights are averaged
    mean_of: int | None = key(None, identity=WHEN_SET)
    # evaluations in a row without a better one after which training ends; null: never
    patience: int | None = key(None, least=1, identity=WHEN_SET)


@dataclass
class Checkpoint:
    """How much work a killed run can lose. No effect on any number."""

    every_s: float = key(120.0, least=0)
    every_steps: int | None = key(None, least=1)


@dataclass
class Resources:
    """What one cell is given, here or in a job. On several devices, dropout masks are each one's own."""

    nodes: int = key(1, least=1)
    devices: int = key(1, least=1)  # on each node: GPUs, or processes on the CPU; an update is divided between them
    accelerator: str = "auto"  # auto | cpu | gpu
    # for each device: threads of torch; null: harness.training.process chooses
    cpus: int | None = key(None, least=1)
    kernels: Kernels = Kernels.torch  # native: those of models.ops.native, on a CPU; they require a C++ compiler
    memory_gb: float | None = key(None, above=0)  # on each node of a job; null: the cluster's default
    minutes: int = key(60, least=1)  # after which a job is asked to save what it has; it is requeued and resumes
    cells_per_job: int = key(1, least=1)
    at_once: int = key(1, least=1)  # of these, so many side by side on the job's devices


@dataclass
class Cluster:
    """How jobs are submitted at one site; `resources=` says how large they are."""

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    gres: str | None = None  # "gpu:a100:{devices}", where --gpus-per-node is not understood
    sbatch: dict[str, Any] = field(default_factory=dict)  # any further flag of sbatch: {reservation: icml}
    setup: list[str] = field(default_factory=list)  # shell lines before Python starts: module load ...
    folder: str | None = None  # for code and job files, seen by all nodes; null: paths.outputs
    # warning before the time limit; longer than one pass over the validation split
    signal_s: int = key(120, least=0)
    max_requeues: int = key(1000, least=0)  # after time limits; preemptions do not count
    jobs_at_once: int = key(256, least=1)  # of one array
    array_size: int = key(1000, least=1)  # jobs in one array (SLURM's MaxArraySize - 1)


@dataclass
class Bench:
    """do=bench: what one layer costs, or with a typed task= the whole model of its recipe."""

    models: list[str] = field(default_factory=list)  # model=a,b; none: the composed one
    lengths: list[int] = field(default_factory=lambda: [1024, 2048, 4096, 8192, 16384])  # lengths=a,b
    what: list[str] = field(default_factory=lambda: ["forward"])  # what=forward,train,decode,generate
    peer: str = "vanilla"  # what all are compared with
    pattern: str = "causal_self"
    dim: int = key(256, least=1)
    heads: int = key(4, least=1)
    batch: int = key(1, least=1)
    layers: int | None = key(None, least=1)  # of `decoder`, with each model in it; null: one layer alone
    decoder: dict[str, Any] = field(default_factory=lambda: {"_target_": "models.backbones.decoder.DecoderLM"})
    precision: str = "float32"
    rounds: int = key(5, least=1)  # samples of each point; fewer where one takes long
    limit_s: float = key(120.0, above=0)  # a call that would take longer is not made
    # nor one that would need more; null: most of what the machine has free
    limit_gb: float | None = key(None, above=0)
    # what=forward: tokens read at once, from the state; null: all, unless lengths are long
    chunk: int | None = key(None, least=1)
    mode: list[str] = field(default_factory=lambda: ["incremental"])  # what=generate: mode=incremental,recompute
    batches: list[int] = field(default_factory=list)  # what=generate: several sizes; none: `batch`
    prompt: int = key(1, least=1)  # what=generate: tokens given; `lengths` count them, too
    top_k: int | None = key(None, least=1)  # what=generate: a token is drawn among so many; null: among all
    axis: str | None = None  # a setting of the models that takes `axis_values` one after another, at one length
    axis_values: list[int] = field(default_factory=list)
    run: str | None = None  # table= or figure=: one of its runs; null: all


def place(name: str) -> str:
    """A folder of the clone, wherever the command is typed; of the working directory where there is no clone."""
    return name if CLONE in (None, Path.cwd()) else str(CLONE / name)  # messages are short within the clone


@dataclass
class Paths:
    """A path that is typed is relative to the working directory."""

    data: str = field(default_factory=lambda: place("data"))
    slices: str = field(default_factory=lambda: place("data/slices"))  # parts of data sets, for reduced budgets
    outputs: str = field(default_factory=lambda: place("outputs"))
    records: str = field(default_factory=lambda: place("results/records"))
    paper: str = field(default_factory=lambda: place("results/paper") if CLONE else str(LEDGER))
    bench: str = field(default_factory=lambda: place("results/bench"))
    tables: str = field(default_factory=lambda: place("results/tables"))
    figures: str = field(default_factory=lambda: place("results/figures"))
    site: str = field(default_factory=lambda: place("results/site"))


@dataclass
class Config:
    do: str = "train"
    seed: int = key(1, least=0)
    rerun: Rerun = Rerun.missing
    check: bool = False  # do=report: write nothing, fail on a difference
    format: list[str] = field(default_factory=list)  # do=report: of md, tex, csv, png, html; none: all but html
    cells: list[str] = field(default_factory=list)  # do=compare: two, each an id's first digits or a path
    fail_fast: bool = False  # stop a sweep at its first failed cell
    n_jobs: int = key(1, least=1)  # cells side by side on this machine, each in a process of its own
    trusted_packages: list[str] = field(default_factory=list)

    model: dict[str, Any] = field(default_factory=dict)
    task: dict[str, Any] = field(default_factory=dict)
    backbone: dict[str, Any] = field(default_factory=dict)
    # what this recipe and budget set for a model: {model name: {key: value}}, read through ${setting:key,default}
    settings: dict[str, Any] = field(default_factory=dict)
    protocol: Recipe = field(default_factory=Recipe)
    budget: Scale = field(default_factory=Scale)
    # cells to be done before this one: the overrides in which each differs, "task=mlm/wikipedia train.max_steps=100",
    # or {cell: "<overrides>", weights: [prefixes of parameters that start from its weights]}
    depends_on: list[Any] = field(default_factory=list)
    train: Train = field(default_factory=Train)

    table: Any = None
    figure: Any = None
    trainer: dict[str, Any] = field(default_factory=dict)
    resources: Resources = field(default_factory=Resources)
    cluster: Cluster = field(default_factory=Cluster)
    logger: dict[str, Any] = field(default_factory=dict)
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    bench: Bench = field(default_factory=Bench)
    paths: Paths = field(default_factory=Paths)


# options that a user can type and that a file would say nothing about: {group: {name: (description, value)}}
BUILT_IN: dict[str, dict[str, tuple[str, dict[str, Any]]]] = {
    "table": {"all": ("Every table of this folder", {"all": True})},
    "figure": {"all": ("Every figure of this folder", {"all": True})},
    "resources": {"local": ("One device of this machine", {})},
    "cluster": {"default": ("What the site gives to a job that asks for nothing", {})},
    "logger": {"csv": ("metrics.csv in the run's folder, which every run writes whatever else logs", {})},
    "hydra/sweeper": {
        "cells": (
            "Lists of values: model=a,b seed=1,2,3",
            {"_target_": "hydra_plugins.longhaul.Sweeper", "max_batch_size": None, "params": None},
        ),
    },
    "hydra/launcher": {
        name: (description, {"_target_": "hydra_plugins.longhaul.CellLauncher", "launcher": launcher})
        for name, launcher, description in (
            ("here", "here", "This machine, before the command returns; n_jobs=4 runs four cells at any moment"),
            ("background", "local", "Jobs in the background of this machine, n_jobs of them; returns at once"),
            ("slurm", "slurm", "Arrays of SLURM jobs: resources= sets their size, cluster= the site; returns at once"),
        )
    },
}
