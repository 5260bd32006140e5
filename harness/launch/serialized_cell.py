"""A cell request as a YAML file: a resolved configuration with absolute paths, which later edits do not change.

The file holds passwords that the configuration has, so only its owner can read it.
"""

import os
import secrets
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf

from harness.config.cell import DECLARING
from harness.config.declared import absolute_path, map_paths
from harness.config.masking import note, noted
from harness.config.schema import Config
from harness.training.checkpoints.dependency import Dependency
from harness.training.run_cell import CellRequest

Dumper, Loader = getattr(yaml, "CSafeDumper", yaml.SafeDumper), getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def write(path: Path, request: CellRequest) -> None:
    """Write a request. Raises OmegaConf's errors for a value that does not resolve."""
    serialized = {
        "overrides": list(request.overrides),
        "search": [str(Path(folder).absolute()) for folder in request.search],
        "since": request.since,
        "depends_on": [asdict(with_absolute_paths(dependency)) for dependency in request.depends_on],
        "longest_s": request.longest_s,
        "dependents": [str(Path(path).absolute()) for path in request.dependents],
        "config": resolved_config(request.cfg),
    }
    serialized["secrets"] = noted()  # after all values are resolved
    text = yaml.dump(serialized, Dumper=Dumper, sort_keys=False, allow_unicode=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(text)


def read(path: Path) -> CellRequest:
    serialized = yaml.load(path.read_text(encoding="utf-8"), Loader=Loader)
    cfg = OmegaConf.merge(OmegaConf.structured(Config), serialized.pop("config"))
    for value in serialized.pop("secrets", ()):
        note(value)
    depends_on = [Dependency(**entry) for entry in serialized.pop("depends_on")]
    return CellRequest(cfg, **serialized, depends_on=depends_on)


def with_absolute_paths(dependency: Dependency) -> Dependency:
    record, run_dir = (str(Path(path).absolute()) for path in (dependency.record, dependency.run_dir))
    return replace(dependency, record=record, run_dir=run_dir, weights=list(dependency.weights))


def resolved_config(cfg: DictConfig) -> dict[str, Any]:
    """The configuration as plain values with absolute paths."""
    plain = OmegaConf.to_container(cfg, resolve=True, enum_to_str=True)
    for name, path in plain["paths"].items():
        plain["paths"][name] = str(Path(path).absolute())
    for group in DECLARING:
        plain[group] |= map_paths(plain[group], absolute_path)
    if plain["task"].get("data_root"):
        plain["task"]["data_root"] = absolute_path(plain["task"]["data_root"])
    return plain


def new_folder(parent: Path) -> Path:
    """Create a folder for serialized cells, named after the time."""
    folder = parent / f"{datetime.now():%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
    folder.mkdir(parents=True)
    return folder
