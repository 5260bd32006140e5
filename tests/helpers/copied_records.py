"""Copies of the committed records with other seeds, each with the id of its configuration and the files beside it."""

import copy
import itertools
import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.config.cell import Cell, identity
from harness.config.places import ROOT
from harness.records import record
from harness.records.listing import record_files

COMMITTED = ROOT / "results" / "records"
SEEDS = 1000  # no committed record has a larger one


def with_seed(entries: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """The record with another seed, and with the id that follows from it."""
    changed = copy.deepcopy(dict(entries))
    changed["config"]["seed"] = changed["cell"]["seed"] = seed
    return fitted(changed)


def fitted(entries: dict[str, Any]) -> dict[str, Any]:
    """The record with the id of its configuration."""
    config = {key: value for key, value in entries["config"].items() if key != "trainer"}
    return entries | {"cell": entries["cell"] | {"id": identity(config)}}


def copies(committed: Path = COMMITTED) -> Iterator[tuple[Path, dict[str, Any]]]:
    """(file of a committed record, the record with another seed), without an end."""
    files = [(path, record.load_json(path)) for path in record_files(committed, [])]
    for turn in itertools.count(1):
        yield from ((path, with_seed(entries, turn * SEEDS + entries["cell"]["seed"])) for path, entries in files)


def save_copy(root: Path, source: Path, entries: dict[str, Any]) -> Path:
    """Write a record at the path that its names give; the files beside `source` are linked there."""
    name = Cell(entries["cell"]["id"], entries["config"]).path
    target = root / name.with_name(f"{name.name}.json")
    target.parent.mkdir(parents=True, exist_ok=True)
    artifacts = {beside: beside.replace(source.stem, target.stem) for beside in entries["artifacts"]}
    for beside, copied in (artifacts | {f"{source.stem}.npz": f"{target.stem}.npz"}).items():
        if source.with_name(beside).is_file():
            shutil.copyfile(source.with_name(beside), target.with_name(copied))
    entries["artifacts"] = {artifacts[beside]: digest for beside, digest in entries["artifacts"].items()}
    target.write_text(json.dumps(entries, indent=2, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")
    return target


def populate(root: Path, number: int, committed: Path = COMMITTED) -> None:
    for source, entries in itertools.islice(copies(committed), number):
        save_copy(root, source, entries)
