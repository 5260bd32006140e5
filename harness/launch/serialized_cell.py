"""A cell as a file: its configuration resolved, every path absolute. What is edited afterwards does not change it."""

import secrets
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf

from harness.config.schema import Config
from harness.training.run_cell import CellRequest

PATHS_OF_A_TASK = ("data_root", "path")


def write(path: Path, request: CellRequest) -> None:
    """Freeze a request; raises OmegaConf's errors for a value that does not resolve."""
    frozen = {
        "overrides": list(request.overrides),
        "search": [str(Path(folder).absolute()) for folder in request.search],
        "since": request.since,
        "needs": [[name, str(Path(path).absolute())] for name, path in request.needs],
        "config": resolved(request.cfg),
    }
    path.write_text(yaml.dump(frozen, Dumper=Dumper, sort_keys=False, allow_unicode=True), encoding="utf-8")


def read(path: Path) -> CellRequest:
    frozen = yaml.load(path.read_text(encoding="utf-8"), Loader=Loader)
    cfg = OmegaConf.merge(OmegaConf.structured(Config), frozen.pop("config"))
    return CellRequest(cfg, **frozen)


def resolved(cfg: DictConfig) -> dict[str, Any]:
    """Plain values, paths of this machine made absolute."""
    plain = OmegaConf.to_container(cfg, resolve=True, enum_to_str=True)
    for name, path in plain["paths"].items():
        plain["paths"][name] = str(Path(path).absolute())
    for name in PATHS_OF_A_TASK:
        if plain["task"].get(name):  # a task knows what ~ is
            plain["task"][name] = str(Path(plain["task"][name]).expanduser().absolute())
    return plain


def new_folder(parent: Path) -> Path:
    """A folder for frozen cells that no other command has, named after the time."""
    folder = parent / f"{datetime.now():%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
    folder.mkdir(parents=True)
    return folder


Dumper, Loader = getattr(yaml, "CSafeDumper", yaml.SafeDumper), getattr(yaml, "CSafeLoader", yaml.SafeLoader)
