"""Records and run directories of schema version 1 -> version 2: `python -m harness.records.migrate`.

A cell's id no longer depends on import paths, so every id, and with it every file name, changes. Nothing is trained
again: scores, times and digests stay as they are. The command may be stopped and repeated at any time.
docs/migration.md says what changes.
"""

import argparse
import copy
import hashlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from harness.config.cell import IDENTITY, Cell, canonical, changes, identity, own_name
from harness.errors import UsageError, one_line
from harness.records import record
from harness.records.atomic import write_atomic, write_bytes_atomic
from harness.records.ownership import ENDED_STATES, read_heartbeat
from harness.records.record import RecordError

# one model with a setting now, a model for each value before
LUNA = {"luna_16": 16, "luna_32": 32, "luna_128": 128, "luna_256": 256}


@dataclass
class Summary:
    records: int = 0
    artifacts: int = 0
    run_directories: int = 0
    current: int = 0
    refused: list[str] = field(default_factory=list)

    def line(self, dry_run: bool) -> str:
        verb = "would be migrated" if dry_run else "migrated"
        return (
            f"{verb}: {self.records} records with {self.artifacts} artifacts, {self.run_directories} run directories; "
            f"{self.current} were of this version; {len(self.refused)} refused"
        )


def migrate(records: Path, outputs: Path, *, dry_run: bool = False) -> Summary:
    """Migrate every record below `records` and every run directory below `outputs/cells`.

    What cannot be migrated is left as it is and named in `Summary.refused`.
    """
    summary = Summary()
    for path in sorted(records.rglob("*.json")):
        try:
            migrate_record(path, summary, dry_run)
        except (UsageError, OSError) as error:
            summary.refused.append(f"{path}: {one_line(error)}")
    for path in sorted((outputs / "cells").rglob(".hydra/config.yaml")):
        try:
            migrate_run_directory(path, summary, dry_run)
        except (UsageError, OSError) as error:
            summary.refused.append(f"{path.parents[1]}: {one_line(error)}")
    return summary


def migrate_record(path: Path, summary: Summary, dry_run: bool) -> None:
    """Write the new record and its artifacts, then remove the old ones: a repeated call finishes a stopped one."""
    old = record.load_json(path)
    version = old.get("schema_version") if isinstance(old, dict) else None
    if version == record.SCHEMA_VERSION:
        summary.current += 1
        return
    if version != 1:
        raise RecordError(f"schema_version: {version!r} is not 1")
    try:
        new = converted(old)
    except (KeyError, TypeError, AttributeError) as error:
        raise RecordError(f"no record of version 1: {type(error).__name__}: {error}") from error
    target = path.with_name(f"{cell_in(new['config']).path.name}.json")
    files = {file: f"{target.stem}{file.name.removeprefix(path.stem)}" for file in artifacts_of(path)}
    contents = {file: file.read_bytes() for file in files}
    new["artifacts"] = {name: hashlib.sha256(contents[file]).hexdigest() for file, name in files.items()}
    record.validate(new)
    if target.exists() and record.read(target) != new:
        raise RecordError(f"{target} is another record of this cell; remove one of the two")
    summary.records += 1
    summary.artifacts += len(files)
    if dry_run:
        return
    for file, name in files.items():
        write_bytes_atomic(path.with_name(name), contents[file])
    record.write(new, target)
    for file in (*files, path):
        file.unlink()


def artifacts_of(path: Path) -> Iterator[Path]:
    """The files beside a record that are its own: `<stem>.png`, ..."""
    return (file for file in sorted(path.parent.glob(f"{path.stem}.*")) if file != path)


def converted(old: dict[str, Any]) -> dict[str, Any]:
    """A record of version 2 with the content of one of version 1, without its artifacts."""
    new = copy.deepcopy(old)
    new["config"] = converted_config(new["config"])
    cell = cell_in(new["config"])
    new["changed"] = {key: recipe_and_used(key, pair) for key, pair in new["changed"].items()}
    if cell.model != old["cell"]["model"]:  # Luna: what its yaml set is set against the recipe of `luna` now
        new["changed"] |= {key: pair for key, pair in changes(cell).items() if key.startswith("model.")}
    return new | {
        "schema_version": record.SCHEMA_VERSION,
        "cell": new["cell"] | cell.names(),
        "depends_on": [],  # no cell of version 1 started from the weights of another
        "evaluations": {},
        "artifacts": {},
        "tested_weights_sha256": None,
    }


def converted_config(old: dict[str, Any]) -> dict[str, Any]:
    new = canonical(old)
    name = new["model"]["name"]
    if name in LUNA:
        new["model"] = new["model"] | {"name": "luna"} | {"slots": new["model"].get("slots", LUNA[name])}
    if unknown := sorted(new.keys() - {*IDENTITY, "trainer"}):
        raise RecordError(f"config.{unknown[0]}: version 2 has no such key; remove the record and run its cell again")
    return new


def recipe_and_used(key: str, pair: Any) -> Any:
    return [own_name(value) for value in pair] if key.rpartition(".")[2] == "_target_" else canonical(pair)


def cell_in(config: dict[str, Any]) -> Cell:
    """The cell of a record's config. The trainer is no part of its identity."""
    own = {key: value for key, value in config.items() if key != "trainer"}
    return Cell(identity(own), own)


def migrate_run_directory(described: Path, summary: Summary, dry_run: bool) -> None:
    """Rename a run directory after the new id of the cell that its `.hydra/config.yaml` describes."""
    folder = described.parents[1]
    try:
        config = OmegaConf.to_container(OmegaConf.load(described))
        cell = cell_in(converted_config(config))
    except Exception as error:  # yaml's, OmegaConf's, or a key that is not there
        raise UsageError(f".hydra/config.yaml describes no cell: {type(error).__name__}: {one_line(error)}") from error
    target = folder.with_name(cell.path.name)
    if target == folder:
        summary.current += 1
        return
    last = read_heartbeat(folder)
    if last and last["alive"] and last["state"] not in ENDED_STATES:
        raise UsageError("a process is running here; migrate when it has ended")
    if target.exists():
        raise UsageError(f"{target} exists already; remove one of the two")
    summary.run_directories += 1
    if not dry_run:
        write_atomic(described, OmegaConf.to_yaml(cell.config))
        folder.rename(target)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m harness.records.migrate", description=__doc__.split("\n")[0])
    parser.add_argument("records", nargs="?", type=Path, default=Path("results/records"))
    parser.add_argument("--outputs", type=Path, default=Path("outputs"), help="its cells/ holds the run directories")
    parser.add_argument("--dry-run", action="store_true", help="say what would be done and change nothing")
    args = parser.parse_args(arguments)
    if not args.records.is_dir():
        parser.error(f"there is no folder {args.records}")
    summary = migrate(args.records, args.outputs, dry_run=args.dry_run)
    print("\n".join([*(f"refused: {line}" for line in summary.refused), summary.line(args.dry_run)]))
    return int(bool(summary.refused))


if __name__ == "__main__":
    sys.exit(main())
