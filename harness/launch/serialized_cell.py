"""A cell request as a file: a resolved configuration with absolute paths, which later edits do not change.

Such a file may come from somebody else. Folders and trusted packages in it count only if whoever starts the
cell names them, too, or if they are those of this machine; a submission names those of its own files.

The file holds passwords that the configuration has, so only its owner can read it.
"""

import contextlib
import json
import os
import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from harness.config import yaml_files
from harness.config.cell import cell_of, flatten
from harness.config.declared import map_paths
from harness.config.overrides import typed_values
from harness.config.own_files import absolute, check_data_root, check_files, files_outside
from harness.config.plain import escaped, resolved
from harness.config.schema import PARTS, SHORT_CONV, Config, Paths, check_ranges
from harness.config.untrusted import OWNER
from harness.config.validation import StrictModel, TupleOf, parse
from harness.errors import UsageError, shown
from harness.masking import note, note_environment, note_overrides, noted
from harness.records.schema import SearchEntry
from harness.training.checkpoints.dependency import Dependency
from harness.training.run_cell import CellRequest
from tasks.regular_files import parse_json, read_text


class CellFile(NamedTuple):
    """`typed`: the folders, files elsewhere and trusted packages of the request, as its starting process names them."""

    path: Path
    typed: tuple[str, ...] = ()


def write(path: Path, request: CellRequest) -> CellFile:
    """Write a request. Raises OmegaConf's errors for a value that does not resolve."""
    config = resolved_config(request.cfg)
    serialized = {
        "overrides": list(request.overrides),
        "search": [str(Path(folder).absolute()) for folder in request.search],
        "since": request.since,
        "depends_on": [
            first.model_dump() | {"record": absolute_path(first.record), "run_dir": absolute_path(first.run_dir)}
            for first in request.depends_on
        ],
        "longest_s": request.longest_s,
        "dependents": [str(Path(path).absolute()) for path in request.dependents],
        "searched": None if request.searched is None else dict(request.searched),
        "config": config,
    }
    serialized["secrets"] = noted()  # after all values are resolved
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(text_of(serialized))
    typed = [f"paths.{name}={folder}" for name, folder in config["paths"].items()]
    typed += [f"task.data_root={config['task']['data_root']}"] if config["task"].get("data_root") else []
    typed += [f"{key}={file}" for key, file in files_outside(config, config["paths"]).items()]
    typed += [f"{key}=" for key in flatten({"logger": config["logger"]})]  # not the values, which may be passwords
    return CellFile(path, (*typed, f"trusted_packages=[{','.join(config['trusted_packages'])}]"))


def text_of(serialized: dict[str, Any]) -> str:
    """JSON, which takes a tenth of the time of YAML; YAML for infinity, which JSON lacks."""
    with contextlib.suppress(ValueError):
        return json.dumps(serialized, allow_nan=False)
    return yaml_files.text_of(serialized)


def content_of(path: Path) -> Any:
    """What `text_of` wrote. What is no JSON, or has too many values, is read as YAML, which says so."""
    with contextlib.suppress(ValueError):
        text = read_text(path, yaml_files.MOST_BYTES)
        if sum(map(text.count, ",[{")) < yaml_files.MOST_CONFIGURED:
            return parse_json(text)
    return yaml_files.read(path, follow=False, most_values=yaml_files.MOST_CONFIGURED)


class SerializedCell(StrictModel):
    overrides: TupleOf[str]
    search: TupleOf[str]
    since: float
    depends_on: TupleOf[Dependency]
    longest_s: float | None
    dependents: TupleOf[str]
    searched: SearchEntry | None
    config: dict[str, Any]
    secrets: TupleOf[str] = ()


def read(path: Path, typed: Sequence[str] = ()) -> CellRequest:
    """`typed`: as in `CellFile`. Raises UsageError for a broken file, and for other folders or trusted packages."""
    try:
        note_environment()
        serialized = parse(SerializedCell, content_of(path), "")
        note_overrides(serialized.overrides)
        for value in serialized.secrets:
            note(value)
        cfg = OmegaConf.merge(OmegaConf.structured(Config), escaped(serialized.config))
        if SHORT_CONV not in serialized.config.get("backbone", {}):  # the schema's, which composing leaves out
            cfg.backbone.pop(SHORT_CONV, None)
        cell = cell_of(cfg, [dependency.id for dependency in serialized.depends_on])
    except (UsageError, OSError, OmegaConfBaseException, yaml.YAMLError, *yaml_files.UNREADABLE) as error:
        raise UsageError(f"{shown(path)}: no serialized cell ({yaml_files.reason(error)})") from error
    words = typed_values(typed)
    for name in [key.removeprefix("paths.") for key in words if key.startswith("paths.")]:
        cfg.paths[name] = words[f"paths.{name}"]
    outside = files_outside(cfg, cfg.paths)
    try:
        check_settings_of_user(cfg, words)
        check_data_root(cfg.task, cfg.paths, words)
        check_files(outside, [key for key, file in outside.items() if words.get(key) == file])
        check_ranges(cfg)
    except UsageError as error:
        raise UsageError(f"{shown(path)}: {error}") from error
    return CellRequest(
        cell, cfg, serialized.overrides, serialized.search, serialized.since, serialized.depends_on,
        serialized.dependents, serialized.longest_s,
        searched=serialized.searched and serialized.searched.model_dump(),
    )  # fmt: skip


def check_settings_of_user(cfg: DictConfig, typed: Mapping[str, str]) -> None:
    """Raises UsageError for packages, folders and loggers that the process which starts the cell does not name."""
    trusted = {word.strip(" '\"") for word in typed.get("trusted_packages", "").strip("[] ").split(",")}
    if unknown := sorted(set(cfg.trusted_packages) - trusted):
        raise UsageError(f"trusted_packages={unknown}: {OWNER} trust packages; trusted_packages=[{unknown[0]}] does")
    for name, default in resolved(OmegaConf.structured(Paths)).items():
        if f"paths.{name}" not in typed and absolute(cfg.paths[name]) != absolute(default):
            raise UsageError(f"paths.{name}={cfg.paths[name]}: {OWNER} move folders; type paths.{name}=... to use it")
    if unnamed := flatten({"logger": resolved(cfg.logger)}).keys() - typed.keys() - {"logger"}:
        key = min(unnamed)
        raise UsageError(f"{key}: {OWNER}, and conf/logger of this clone, set loggers; type {key}=... to use it")


def absolute_path(path: str) -> str:
    return str(Path(path).expanduser().absolute())


def resolved_config(cfg: DictConfig) -> dict[str, Any]:
    """The configuration as plain values with absolute paths."""
    plain = resolved(cfg)
    plain["paths"] = {name: str(Path(path).absolute()) for name, path in plain["paths"].items()}
    for group in PARTS:
        plain[group] = plain[group] | map_paths(plain[group], absolute_path)
    if plain["task"].get("data_root"):
        plain["task"]["data_root"] = absolute_path(plain["task"]["data_root"])
    return plain


def new_folder(parent: Path) -> Path:
    """Create a folder for serialized cells, named after the time."""
    folder = parent / f"{datetime.now():%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
    folder.mkdir(parents=True)
    return folder
