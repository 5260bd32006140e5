"""The typed keys of the harness and their ranges. Constructors check the keys of models, tasks and backbones.

Hydra's ConfigStore holds this as `schema`, the first entry of the defaults list in `conf/config.yaml`. A mistyped key
or a value of the wrong type is therefore refused during composition, before heavy packages are imported.
A new setting is a field here and the code that uses it. The field's metadata (`key`) are its bound and its part in the
identity of a cell. A setting that is WHEN_SET does not change the ids of earlier cells.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from omegaconf import MISSING, DictConfig, ValueNode
from omegaconf.errors import OmegaConfBaseException

from harness.config.allowed import check_trainer
from harness.config.places import CLONE, LEDGER
from harness.errors import UsageError

Rerun = Enum("Rerun", ["missing", "failed", "all"])
Kernels = Enum("Kernels", ["torch", "native", "fla", "flex"])
Matmul = Enum("Matmul", ["highest", "high", "medium"])
Rule = Enum("Rule", ["best_val", "last", "last_mean", "best_test"])

NAME = re.compile(r"\w[\w.+-]{0,59}(/\w[\w.+-]{0,59})*")  # of a task, with its family
# a setting belongs to the identity of a cell unless it is marked: only while it is set, or never
WHEN_SET, NEVER = "when set", "never"
PARTS = ("model", "task", "backbone")  # of a configuration: what classes are built from, and what opens files
DECLARES = "declares"  # key of one of PARTS; see harness.config.declared
SHORT_CONV = "short_conv"  # key of the backbone, and of `declares`; see harness.config.compose.apply_short_conv
NAMED_PARTS = ("model", "task", "protocol", "budget")  # a record has their names
LARGEST_SEED = 2**32 - 1  # of NumPy and Lightning
MOST_CPUS = 1_000  # of a machine: threads and processes beyond it end in the operating system's errors
LONGEST_MEASURED = 10**9  # tokens, LongNet's longest
# the last word of a key of a model or backbone -> its largest value
LARGEST = {"layers": 1_000, "heads": 10_000, "dim": 1_000_000, "": 100_000_000}


@dataclass(frozen=True)
class Bound:
    """The range of a number: at least `least`, greater than `above`, and at most `most`."""

    least: float | None = None
    above: float | None = None
    most: float | None = None

    def check(self, key: str, value: Any) -> None:
        """Raises UsageError for a number outside the bound, and for nan and inf. Skips other types."""
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return
        if isinstance(value, float) and not math.isfinite(value):
            raise UsageError(f"{key}={value}: a finite number is expected")
        if self.least is not None and value < self.least:
            raise UsageError(f"{key}={value} is less than {self.least}")
        if self.above is not None and value <= self.above:
            raise UsageError(f"{key}={value} is not more than {self.above}")
        if self.most is not None and value > self.most:
            raise UsageError(f"{key}={value} is more than {self.most:,}")


def key(default: Any, *, identity: str | None = None, condition: bool = False, **bound: float) -> Any:
    """A field with its bound and its part in the identity of a cell (None, WHEN_SET or NEVER), as metadata.

    `condition`: it is no part of the identity, but the last bits of the results depend on it.
    """
    metadata = {"bound": Bound(**bound) if bound else None, "identity": identity, "condition": condition}
    return field(default=default, metadata=metadata)


def names_of(schema: type, identity: str) -> list[str]:
    """The fields of a dataclass that are marked WHEN_SET or NEVER."""
    return [entry.name for entry in fields(schema) if entry.metadata.get("identity") == identity]


@dataclass
class Recipe:
    """A paper's protocol. A recipe in several sizes lists them in `configurations`, which ${size:key} reads."""

    name: str = MISSING
    configuration: str | None = key(None, identity=WHEN_SET)  # the chosen size
    configurations: dict[str, Any] = field(default_factory=dict, metadata={"identity": NEVER})  # {name: {key: value}}


@dataclass
class Scale:
    """The scale of a run: paper, reduced, smoke, or a user's own `conf/budget/<name>.yaml`."""

    name: str = MISSING
    # the search for a learning rate before a table's cells; none: the recipe's rate. OmegaConf merges nothing into null
    search: dict[str, Any] | None = field(
        default_factory=lambda: {"rates": [], "seeds": [], "ties": []}, metadata={"identity": NEVER}
    )


@dataclass
class Select:
    """The weights that are scored on the test split. `best_test` leaks test data; records say so."""

    rule: Rule = Rule.best_val
    after: float = key(0.0, least=0, most=1)  # fraction of max_steps before the first checkpoint counts


@dataclass
class Train:
    max_steps: int = key(MISSING, least=1, most=10**9)  # optimiser updates
    batch_size: int = key(MISSING, least=1, most=10**7)  # examples per update, over all devices
    # examples per forward pass and device; null: all of the device's share of an update
    micro_batch_size: int | None = key(None, least=1, identity=NEVER, condition=True)
    # tokens per update, padding included; replaces batch_size
    batch_tokens: int | None = key(None, least=1, identity=WHEN_SET)
    # the most examples per update of batch_tokens; null: no limit
    batch_examples: int | None = key(None, least=1, identity=WHEN_SET)
    # tokens per forward pass and device; null: all of the device's share of an update
    micro_batch_tokens: int | None = key(None, least=1, identity=NEVER, condition=True)
    eval_batch_size: int = key(MISSING, least=1, identity=NEVER, condition=True)
    eval_every: int = key(MISSING, least=1)  # updates between two validations
    optimizer: dict[str, Any] = field(default_factory=dict)
    schedule: dict[str, Any] = field(default_factory=dict)
    clip_norm: float | None = key(None, above=0)
    clip_value: float | None = key(None, above=0)
    clip_each: float | None = key(None, above=0, identity=WHEN_SET)  # norm of the gradient, parameter by parameter
    precision: str = "32-true"  # as in lightning.pytorch.Trainer
    select: Select = field(default_factory=Select)
    # select.rule=last_mean: the number of last evaluations whose weights are averaged
    mean_of: int | None = key(None, identity=WHEN_SET)
    # training ends after so many evaluations without improvement; null: never
    patience: int | None = key(None, least=1, identity=WHEN_SET)
    # a trial of a search: scored on the validation split alone
    trial: bool | None = key(None, identity=WHEN_SET)


@dataclass
class Checkpoint:
    """How much work a killed run can lose. These change no result."""

    every_s: float = key(120.0, least=0)
    every_steps: int | None = key(None, least=1)


@dataclass
class Resources:
    """The resources of a cell, here or in a job. Each device draws its own dropout masks."""

    nodes: int = key(1, least=1)
    devices: int = key(1, least=1, most=1_000)  # per node: GPUs, or CPU processes; they share an update
    accelerator: str = "auto"  # auto | cpu | gpu
    # torch threads per device; null: harness.training.process chooses
    cpus: int | None = key(None, least=1, most=MOST_CPUS, condition=True)
    # native: models.ops.native, which requires a C++ compiler. fla, flex: models.ops.fla_kernels and flex, for GPUs
    kernels: Kernels = field(default=Kernels.torch, metadata={"condition": True})
    compile: bool = key(False, condition=True)  # torch.compile for training: harness.training.compiled
    # how float32 is multiplied: torch.set_float32_matmul_precision; high is TF32 on a GPU, medium bfloat16
    matmul: Matmul = field(default=Matmul.highest, metadata={"condition": True})
    # keep only the inputs of each layer, and compute it again in the backward pass: harness.training.memory
    checkpoint_layers: bool = key(False, condition=True)
    memory_gb: float | None = key(None, above=0)  # per node of a job; null: the cluster's default
    minutes: int = key(60, least=1)  # the job then saves its state, is requeued and resumes
    cells_per_job: int = key(1, least=1)
    at_once: int = key(1, least=1, most=MOST_CPUS)  # cells that run in parallel on the job's devices


@dataclass
class Cluster:
    """How a site takes jobs. `resources=` sets their size."""

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    gres: str | None = None  # "gpu:a100:{devices}", for sites without --gpus-per-node
    sbatch: dict[str, Any] = field(default_factory=dict)  # further flags of sbatch: {reservation: icml}
    setup: list[str] = field(default_factory=list)  # shell lines before Python starts: module load ...
    folder: str | None = None  # code and job files, on storage that all nodes share; null: paths.outputs
    signal_s: int = key(120, least=0)  # warning before the time limit; a validation must fit
    max_requeues: int = key(1000, least=0)  # after time limits; preemptions do not count
    requeue: bool = False  # queue the job of an sbatch script of one's own again when its cells have saved
    jobs_at_once: int = key(256, least=1)  # per array
    array_size: int = key(1000, least=1)  # jobs per array (SLURM's MaxArraySize - 1)


@dataclass
class Bench:
    """do=bench: the cost of a layer or, if task= is typed, of the whole model of its recipe."""

    models: list[str] = field(default_factory=list)  # model=a,b; none: the composed model
    lengths: list[int] = field(default_factory=lambda: [1024, 2048, 4096, 8192, 16384])  # lengths=a,b
    what: list[str] = field(default_factory=lambda: ["forward"])  # what=forward,train,decode,generate
    peer: str = "vanilla"  # the model that the others are compared with
    pattern: str = "causal_self"
    dim: int = key(256, least=1)
    heads: int = key(4, least=1)
    batch: int = key(1, least=1)
    layers: int | None = key(None, least=1)  # layers of `decoder` around each model; null: a single layer
    decoder: dict[str, Any] = field(default_factory=lambda: {"_target_": "models.backbones.decoder.DecoderLM"})
    precision: str = "float32"
    rounds: int = key(5, least=1)  # samples per point; fewer if they take long
    limit_s: float = key(120.0, above=0)  # longer calls are skipped
    # calls that need more memory are skipped; null: most of the free memory
    limit_gb: float | None = key(None, above=0)
    # what=forward: tokens per step, continued from the state; null: all, unless lengths are long
    chunk: int | None = key(None, least=1)
    mode: list[str] = field(default_factory=lambda: ["incremental"])  # what=generate: mode=incremental,recompute
    batches: list[int] = field(default_factory=list)  # what=generate: batch sizes; none: `batch`
    prompt: int = key(1, least=1)  # what=generate: tokens of the prompt, included in `lengths`
    top_k: int | None = key(None, least=1)  # what=generate: samples from so many tokens; null: from all
    axis: str | None = None  # a setting of the models that takes each of `axis_values`, at one length
    axis_values: list[int] = field(default_factory=list)
    run: str | None = None  # table= or figure=: the name of a run; null: all


@dataclass
class Status:
    """do=status: which runs it lists, beside model=, task=, protocol=, budget=, seed= and table=."""

    state: list[str] = field(default_factory=list)  # state=failed,dead
    since: str | None = None  # since=30m, 12h, 7d: runs that changed within this time


def default_path(name: str) -> str:
    """A folder of the clone, or of the working directory if there is no clone."""
    return name if CLONE in (None, Path.cwd()) else str(CLONE / name)  # relative within the clone, for short messages


@dataclass
class Paths:
    """Typed paths are relative to the working directory."""

    data: str = field(default_factory=lambda: default_path("data"))
    slices: str = field(default_factory=lambda: default_path("data/slices"))  # parts of data sets, for reduced budgets
    outputs: str = field(default_factory=lambda: default_path("outputs"))
    records: str = field(default_factory=lambda: default_path("results/records"))
    paper: str = field(default_factory=lambda: default_path("results/paper") if CLONE else str(LEDGER))
    bench: str = field(default_factory=lambda: default_path("results/bench"))
    tables: str = field(default_factory=lambda: default_path("results/tables"))
    figures: str = field(default_factory=lambda: default_path("results/figures"))
    site: str = field(default_factory=lambda: default_path("outputs/pages"))  # do=report format=[html]
    docs: str = field(default_factory=lambda: default_path("docs"))  # of the generated page findings.md


@dataclass
class Config:
    do: str = "train"
    seed: int = key(1, least=0, most=LARGEST_SEED)
    rerun: Rerun = Rerun.missing
    check: bool = False  # do=report: write nothing, fail on a difference
    format: list[str] = field(default_factory=list)  # do=report: of md, tex, csv, png, html; none: all but html
    notes: bool = False  # do=report of a table: print its notes and details as well
    each_cell: bool = False  # do=plan, do=status: cells=true, a line per cell
    cells: list[str] = field(default_factory=list)  # do=compare: two cells, by the first digits of the id or by path
    record: str | None = None  # do=verify: the file of a record whose cell is run again
    costs: bool = False  # do=plan: count FLOPs and memory of each cell
    fail_fast: bool = False  # stop a sweep at the first failed cell
    n_jobs: int = key(1, least=1, most=MOST_CPUS)  # cells that run in parallel on this machine, each in a process
    trusted_packages: list[str] = field(default_factory=list)

    model: dict[str, Any] = field(default_factory=dict)
    task: dict[str, Any] = field(default_factory=dict)
    backbone: dict[str, Any] = field(default_factory=lambda: {SHORT_CONV: None})
    # settings of the recipe and the budget per model: {model name: {key: value}}; ${setting:key,default} reads them
    settings: dict[str, Any] = field(default_factory=dict)
    protocol: Recipe = field(default_factory=Recipe)
    budget: Scale = field(default_factory=Scale)
    # cells that must be done before this one, by the overrides in which they differ: "task=mlm/wikipedia seed=2",
    # or {cell: "<overrides>", weights: [prefixes of the parameters that start from its weights]}
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
    status: Status = field(default_factory=Status)
    paths: Paths = field(default_factory=Paths)


def conditions(schema: type = Config, prefix: str = "") -> list[str]:
    """The keys of all settings that are a `condition`, such as `train.micro_batch_size`."""
    keys = [prefix + entry.name for entry in fields(schema) if entry.metadata.get("condition")]
    parts = (entry for entry in fields(schema) if is_dataclass(entry.type))
    return keys + [key for part in parts for key in conditions(part.type, f"{prefix}{part.name}.")]


def check_ranges(cfg: DictConfig, resolved_parts: Mapping[str, Any] | None = None) -> None:
    """Raises UsageError for a number outside its range and for a name that cannot be part of a path.

    The trainer must have the keys that the harness reads. Other values that are missing or do not resolve are skipped.
    Constructors check the rest. `resolved_parts`: model and backbone as plain values, for a caller that has them.
    """
    check_names(cfg)
    check_fields(cfg, Config)  # before the trainer's keys, which follow from resources.devices and nodes
    check_trainer({str(key): value_of(cfg.trainer, key) for key in cfg.trainer})
    check_sizes(resolved_parts or cfg)  # each value is resolved once: this takes longer than all the checks
    Bound(above=0, most=1_000).check("train.optimizer.lr", value_of(cfg.train.optimizer, "lr"))
    for length in cfg.bench.lengths:
        Bound(most=LONGEST_MEASURED).check("bench.lengths", length)
    check_folders(cfg.paths)


def check_fields(node: Mapping[str, Any], schema: type, prefix: str = "") -> None:
    """Raises UsageError for a number outside the bound of its field."""
    for entry in fields(schema):
        if is_dataclass(entry.type):
            check_fields(node[entry.name], entry.type, f"{prefix}{entry.name}.")
        elif (bound := entry.metadata.get("bound")) is not None:
            bound.check(f"{prefix}{entry.name}", value_of(node, entry.name))


def check_folders(paths: Mapping[str, Any]) -> None:
    """Raises UsageError for an empty folder, and for an address, which would become a folder of this name."""
    for name in map(str, paths):
        folder = str(value_of(paths, name))
        if not folder.strip() or "://" in folder:
            raise UsageError(f"paths.{name}={folder}: a folder of this machine is expected, paths.{name}=/folder")
        if left := [part for part in folder.split("/") if part.startswith("$")]:
            raise UsageError(f"paths.{name}={folder}: the shell did not replace {left[0]}; type the whole path")


def check_sizes(parts: Mapping[str, Any]) -> None:
    """Raises UsageError for a number of the model or backbone among `parts` outside its range."""
    for part in ("model", "backbone"):
        for key in parts.get(part, ()):
            value, word = value_of(parts[part], key), next((word for word in LARGEST if str(key).endswith(word)), "")
            is_counted = key in ("layers", "heads") or (str(key).endswith("dim") and key != "ffn_dim")
            least = int(is_counted) if part == "backbone" else None  # 0: no such network
            Bound(least, most=LARGEST[word]).check(f"{part}.{key}", value)
            if str(key).endswith("dropout") and isinstance(value, (int, float)) and not 0 <= value <= 1:
                raise UsageError(f"{part}.{key}={value} is not between 0 and 1")


def check_names(parts: Mapping[str, Any]) -> None:
    """Raises UsageError for a part without a name, or with one that cannot be part of a path of a record or a run."""
    for part in NAMED_PARTS:
        if part not in parts:
            continue
        if not isinstance(name := value_of(parts[part], "name"), str):
            raise UsageError(f"{part}.name is no text: its yaml has no name, name: ..., or {part}.name=... is left out")
        if not NAME.fullmatch(name) or (part != "task" and "/" in name):
            raise UsageError(f"{part}.name={name[:60]}: a name has letters, digits, and _ . + - between them")


def value_of(node: Any, key: str) -> Any:
    """The value of a key; None if it is missing or does not resolve."""
    value = node._content.get(key) if isinstance(node, DictConfig) and isinstance(node._content, dict) else None
    if isinstance(value, ValueNode) and not isinstance(value._value(), str):
        return value._value()  # nothing to evaluate: a fiftieth of the time
    try:
        return node[key]
    except (OmegaConfBaseException, ValueError, KeyError, TypeError):
        return None
