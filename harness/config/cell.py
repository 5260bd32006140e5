"""A cell: a model, task, protocol, budget and seed with their resolved configuration. Its address is its content.

The id is the hash of every setting that can change a number, in canonical form: the same command twice is the same
cell, and another learning rate is another cell. The data folder, the device, the checkpoint interval and the loggers
change no number and do not count. Neither do import paths, so that files can move: of a `_target_` below `models`,
`tasks` or `harness` only the name of the class or function counts.
"""

import functools
import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from omegaconf import DictConfig

from harness.config.declared import content_digests, declared, make_identifying, without_unset
from harness.config.places import below, folder_below
from harness.config.plain import resolved, resolved_alone
from harness.config.schema import (
    DECLARES,
    NEVER,
    PARTS,
    SHORT_CONV,
    WHEN_SET,
    Recipe,
    Scale,
    Train,
    check_names,
    names_of,
)
from harness.errors import UsageError
from harness.masking import first_noted, with_masked_keys

IDENTITY = ("model", "task", "backbone", "train", "protocol", "budget")  # and the seed
# folders, ways to compute the same numbers, and defaults of other budgets
NOT_IDENTITY = {
    "task": ("data_root", "workers", "protocol", DECLARES),
    "backbone": (DECLARES,),
    "model": ("budgets", DECLARES),
    "train": names_of(Train, NEVER),
    "protocol": names_of(Recipe, NEVER),
    "budget": names_of(Scale, NEVER),
}
# keys that count only while they are set: a config without them is the same cell
IDENTITY_WHEN_SET = {
    "train": names_of(Train, WHEN_SET),
    "protocol": names_of(Recipe, WHEN_SET),
    "backbone": (SHORT_CONV,),
}
NAMES = ("id", "model", "task", "protocol", "budget", "seed")  # the keys of `cell` in a record
# packages of this project: only the names of their classes and functions count
PACKAGES = ("models", "tasks", "harness")


@dataclass(frozen=True)
class Cell:
    id: str  # 16 hexadecimal digits
    config: dict[str, Any]  # canonical form; the id is its hash

    @property
    def model(self) -> str:
        return self.config["model"]["name"]

    @property
    def task(self) -> str:
        return self.config["task"]["name"]

    @property
    def protocol(self) -> str:
        return self.config["protocol"]["name"]

    @property
    def budget(self) -> str:
        return self.config["budget"]["name"]

    @property
    def seed(self) -> int:
        return self.config["seed"]

    @functools.cached_property
    def path(self) -> PurePath:
        """The path of the record below the records, and of the run directory below the outputs."""
        return PurePath(name_of(**self.names()))

    def __str__(self) -> str:
        train = self.config["train"]
        trial = f" · trial at lr {train['optimizer']['lr']:g}" if train.get("trial") else ""
        return f"{self.model} · {self.task} · {self.protocol} · {self.budget} · seed {self.seed}{trial}"

    def names(self) -> dict[str, Any]:
        """The `cell` entry of a record."""
        return {key: getattr(self, key) for key in NAMES}

    def record_path(self, cfg: Any) -> Path:
        """The file of the record. `cfg`: has `paths.records`. Raises UsageError for a link in the place of a folder."""
        return below(cfg.paths.records, self.path.with_name(self.path.name + ".json"))

    def folder(self, cfg: DictConfig) -> Path:
        """The run directory. Raises UsageError for a link in its place, or in that of a folder above it."""
        return folder_below(cfg.paths.outputs, "cells", self.path)


def name_of(id: str, model: str, task: str, protocol: str, budget: str, seed: int) -> str:
    """`Cell.path` of a cell with these names, as a text: a path takes ten times as long to make."""
    return f"{task}/{protocol}/{budget}/{model}-s{seed}-{id[:8]}"


def cell_of(cfg: DictConfig, dependencies: Sequence[str] = ()) -> Cell:
    """The cell of a composed configuration. Raises UsageError for a missing value.

    `dependencies`: the ids of the cells that `cfg.depends_on` describes. They are part of the identity, so the id of a
    cell changes with the ids of the cells that it starts from.
    """
    further = {"dependencies": list(dependencies)} if dependencies else {}
    config = identifying_config(cfg) | {"seed": cfg.seed} | further
    return Cell(identity(config), config)


def identifying_config(cfg: DictConfig, alone: Collection[str] = ()) -> dict[str, Any]:
    """The canonical configuration that identifies a cell, without its seed. `alone`, errors: of `resolved_alone`."""
    config = identifying_parts(resolved_alone(cfg, alone, IDENTITY))
    return config | ({"depends_on": resolved(cfg.depends_on)} if cfg.get("depends_on") else {})


def identifying_parts(config: dict[str, Any]) -> dict[str, Any]:
    """The canonical form of resolved parts. Raises UsageError."""
    config = canonical(config)
    check_names(config)
    for group, part in config.items():
        without_unset(part, IDENTITY_WHEN_SET.get(group, ()))
        if group in PARTS:
            make_identifying(part, f"{group}.")
        for key in NOT_IDENTITY[group]:
            part.pop(key, None)
    config = with_masked_keys(config)
    if secret := first_noted(config):
        reads = "the value of an environment variable, which no record may show"
        raise UsageError(f"{secret} contains {reads}: type the value itself, or leave it out")
    return config


def require_same_files(cell: Cell, cfg: DictConfig) -> None:
    """Raises UsageError if a file that the cell's identity depends on has changed since its id was computed."""
    for group in PARTS:
        part = resolved(cfg[group])
        for key, digest in content_digests(part, declared(part, f"{group}.")).items():
            if cell.config[group].get(key) != digest:
                file = part[key.removesuffix("_sha256")]
                raise UsageError(f"{file}: it changed after the cell was planned; the same command runs it anew")


def canonical(config: Any) -> Any:
    """The configuration with each `_target_` of this project reduced to the name of the class or function.

    Targets in other packages keep their import paths.
    """
    if isinstance(config, list):
        return [canonical(value) for value in config]
    if not isinstance(config, dict):
        return config
    return {key: class_name(value) if key == "_target_" else canonical(value) for key, value in config.items()}


def class_name(target: Any) -> Any:
    """`LAVO` for `models.attention.lavo.LAVO`. A target in another package does not change."""
    package, dot, _ = str(target).partition(".")
    return target.rpartition(".")[2] if dot and package in PACKAGES else target


def identity(config: dict[str, Any]) -> str:
    """The id of a cell: 16 hexadecimal digits of the sha256 of its configuration in canonical form."""
    text = json.dumps(config, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# differences in these keys are no changes of the recipe: records have entries for them
NOT_A_CHANGE = ("seed", "task.source", "task.path", "train.precision", "dependencies")

# other values of a recipe may follow from these: the pattern of the attention, and the paper's size of the model
AXES = ("task.pattern", "protocol.configuration")


def values_at(config: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    """The entries of `flatten(config)` with these keys; for few keys it takes a tenth of the time."""
    values = {}
    for key in keys:
        *parents, last = key.split(".")
        node: Any = config
        for parent in parents:
            node = node.get(parent) if isinstance(node, Mapping) else None
        if isinstance(node, Mapping) and last in node and not isinstance(node[last], Mapping):
            values[key] = node[last]
    return values


def flatten(node: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"train.optimizer.lr": 1e-3, ...}"""
    flat: dict[str, Any] = {}
    for key, value in node.items():
        if isinstance(value, dict):
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat
