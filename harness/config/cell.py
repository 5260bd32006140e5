"""A cell: one (model, task, protocol, budget, seed) with its resolved configuration, addressed by its content.

Its identity is the hash of what can change a number: the same command twice is the same cell, and a changed learning
rate is another one. Where the data lie, which device runs it, how often it is saved and who logs it is not identity.
"""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from omegaconf import DictConfig, OmegaConf

from harness.errors import UsageError

IDENTITY = ("model", "task", "backbone", "train", "protocol", "budget", "seed")
# of those, what names a place or a manner of working
PLACES = {"task": ("data_root", "workers", "protocol")}
MANNERS = {"train": ("micro_batch_size", "eval_batch_size"), "model": ("budgets",)}
# of those, what is part of the identity only where it is set
IF_SET = {"train": ("patience", "batch_tokens")}


@dataclass(frozen=True)
class Cell:
    id: str  # 16 hexadecimal digits
    config: dict[str, Any]  # the identity: no place of this machine in it

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

    @property
    def path(self) -> PurePath:
        """Below the records and below the runs: readable first, unique by its end."""
        return PurePath(self.task, self.protocol, self.budget, f"{self.model}-s{self.seed}-{self.id[:8]}")

    def __str__(self) -> str:
        return f"{self.model} · {self.task} · {self.protocol} · {self.budget} · seed {self.seed}"

    def names(self) -> dict[str, Any]:
        """The `cell` entry of a record."""
        keys = ("id", "model", "task", "protocol", "budget", "seed")
        return {key: getattr(self, key) for key in keys}

    def record_path(self, cfg: DictConfig) -> Path:
        return Path(cfg.paths.records) / self.path.with_name(self.path.name + ".json")

    def folder(self, cfg: DictConfig) -> Path:
        """Run folder: log, metrics.csv, checkpoints, heartbeat."""
        return Path(cfg.paths.outputs) / "cells" / self.path


def cell_of(cfg: DictConfig) -> Cell:
    """The cell of a composed configuration. Raises UsageError for a value that is still missing."""
    parts = {key: cfg[key] for key in IDENTITY}
    nodes = {key: part for key, part in parts.items() if isinstance(part, DictConfig)}
    if missing := sorted(key for node in nodes.values() for key in OmegaConf.missing_keys(node)):
        raise UsageError(f"{missing[0]} has no value: add {missing[0]}=... to the command")
    resolved = {key: OmegaConf.to_container(node, resolve=True, enum_to_str=True) for key, node in nodes.items()}
    config = parts | resolved
    for group, keys in (PLACES | MANNERS).items():
        for key in keys:
            config[group].pop(key, None)
    for group, keys in IF_SET.items():
        for key in keys:
            if config[group][key] is None:
                del config[group][key]
    if cfg.depends_on:
        config["depends_on"] = list(cfg.depends_on)
    if config["task"].get("path"):
        config["task"]["path"] = PurePath(config["task"]["path"]).name
    return Cell(identity(config), config)


def with_seed(cfg: DictConfig, cell: Cell, seed: int) -> tuple[DictConfig, Cell]:
    """A cell's configuration and the cell, `cell` of `cfg`, with another seed; cheap where nothing else follows it."""
    cfg = cfg.copy()
    cfg.seed = seed
    if FOLLOWS_SEED.search(json.dumps(OmegaConf.to_container(cfg, enum_to_str=True), default=str)):
        return cfg, cell_of(cfg)
    config = cell.config | {"seed": seed}
    return cfg, Cell(identity(config), config)


FOLLOWS_SEED = re.compile(r"\$\{[^}]*\bseed\b")


def identity(config: dict[str, Any]) -> str:
    text = json.dumps(config, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# a record may differ from its recipe in these and still be the recipe's: they are stated in the record on their own
FREE = ("seed", "task.source", "task.path", "train.precision")


def changes(cell: Cell, search: Sequence[str] = ()) -> dict[str, list[Any]]:
    """{key: [value by the recipe, value used]} where a cell is not what its names alone compose to.

    A model that `conf/model/` does not have is its author's own: its keys have nothing to differ from.
    """
    from harness.config.compose import compose, options

    names = [f"{key}={getattr(cell, key)}" for key in ("task", "protocol", "budget")]
    known = cell.model in {name for name, _ in options("model")}
    plain = cell_of(compose([*names, *([f"model={cell.model}"] if known else [])], search)).config
    recipe, used = flatten(plain), flatten(cell.config)
    differing = {key for key in recipe.keys() | used.keys() if recipe.get(key) != used.get(key)}
    if not known:
        differing = {key for key in differing if not key.startswith("model.")}
    return {key: [recipe.get(key), used.get(key)] for key in sorted(differing - set(FREE))}


def flatten(node: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"train.optimizer.lr": 1e-3, ...}"""
    flat: dict[str, Any] = {}
    for key, value in node.items():
        flat |= flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat
